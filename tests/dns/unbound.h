// A real resolver with a zone of its own on loopback, for the time of a test.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/dns/stub_types.h"

namespace stockade {

struct UnboundOptions {
    // The text of a zone file of "test.": it is resolved by iteration, as names of the Internet are.
    std::string zone = "";
    std::string address = "127.0.0.1";
    uint16_t port = 0;  // 0: any that is free
    // Zones that a server on its own loopback has, and the server's port. Of other names there are none.
    std::vector<std::pair<std::string, int>> stubs = {};
    std::function<void()> in_child = {};  // after fork, before exec
    std::string more = {};                // lines of the server: section
};

class Unbound {
  public:
    static StatusOr<std::unique_ptr<Unbound>> Start(const std::string& zone) {
        return Start(UnboundOptions{.zone = zone});
    }
    static StatusOr<std::unique_ptr<Unbound>> Start(UnboundOptions options);
    ~Unbound();

    dns::UpstreamAddress address() const {
        return *dns::UpstreamAddress::Parse(options_.address, options_.port);
    }

    // Each query that came, as "name. TYPE CLASS"; with `log-queries: yes` among the lines.
    std::vector<std::string> Asked() const;

  private:
    Unbound(std::string directory, UnboundOptions options)
        : directory_(std::move(directory)), options_(std::move(options)) {}
    Status WriteFiles() const;
    std::string Config() const;
    Status Run();
    Status AwaitPort() const;

    const std::string directory_;
    const UnboundOptions options_;
    pid_t pid_ = -1;
};

}  // namespace stockade
