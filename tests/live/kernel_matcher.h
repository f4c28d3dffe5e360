// For tests: the matcher inside the kernel, called for a descriptor of the test's own.
#pragma once

#include <memory>
#include <vector>

#include "bpf/selftest/selftest.h"
#include "userspace/base/status.h"
#include "userspace/kernel/policy_maps.h"
#include "userspace/policy/compile.h"

struct selftest;

namespace stockade::live {

// Loads bpf/selftest. Ask may be called by up to SK_SELFTEST_PLACES threads, each with a place of its own.
class KernelMatcher {
  public:
    static StatusOr<std::unique_ptr<KernelMatcher>> Create(const sk_hash_keys& keys);
    ~KernelMatcher();

    StatusOr<uint32_t> Publish(const policy::CompiledPolicy& policy);
    Status Retire(uint32_t index) { return policies_->Release(index); }
    // `root_fd` below 0: the root directory of the caller.
    StatusOr<sk_selftest_call> Ask(int fd, int root_fd, uint32_t policy_index, uint32_t place = 0) const;
    uint32_t verified_instructions() const;

  private:
    KernelMatcher() = default;

    selftest* object_ = nullptr;
    int program_fd_ = -1;  // borrowed
    std::unique_ptr<kernel::PolicyMaps> policies_;
};

}  // namespace stockade::live
