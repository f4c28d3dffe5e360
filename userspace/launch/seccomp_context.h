// libseccomp's filter context, owned.
#pragma once

#include <linux/filter.h>
#include <seccomp.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::launch {

class SeccompContext {
  public:
    // For the native ABI; a call of another one kills the process.
    static StatusOr<SeccompContext> Create(uint32_t default_action);
    scmp_filter_ctx get() const { return context_.get(); }
    StatusOr<std::vector<sock_filter>> Export() const;

  private:
    explicit SeccompContext(scmp_filter_ctx context) : context_(context, &seccomp_release) {}
    std::unique_ptr<void, void (*)(scmp_filter_ctx)> context_;
};

}  // namespace stockade::launch
