// A real resolver with a zone of its own on loopback, for the time of a test.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "userspace/base/status.h"
#include "userspace/dns/stub_types.h"

namespace stockade {

class Unbound {
  public:
    // `zone` is the text of a zone file of "test."; it is resolved by iteration, as names of the Internet are.
    static StatusOr<std::unique_ptr<Unbound>> Start(const std::string& zone);
    ~Unbound();

    dns::UpstreamAddress address() const { return *dns::UpstreamAddress::Parse("127.0.0.1", port_); }

  private:
    Unbound(std::string directory, uint16_t port) : directory_(std::move(directory)), port_(port) {}
    Status WriteFiles(const std::string& zone) const;
    Status Run();
    Status AwaitPort() const;

    const std::string directory_;
    const uint16_t port_;
    pid_t pid_ = -1;
};

}  // namespace stockade
