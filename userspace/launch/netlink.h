// Just enough rtnetlink: a veth pair, addresses, routes, link removal.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::launch {

// Speaks for the network namespace of the thread that creates it.
class Netlink {
  public:
    static StatusOr<Netlink> Create();
    // `name` here, `peer` in the namespace behind peer_ns_fd.
    Status AddVeth(const std::string& name, const std::string& peer, int peer_ns_fd);
    // `address` in network order. Adds it and brings the link up.
    Status AddAddress(const std::string& link, uint32_t address, uint8_t prefix_bits);
    Status LinkUp(const std::string& link);
    // Nothing passes it any more, of connections that stand neither; addresses stay.
    Status LinkDown(const std::string& link);
    Status AddDefaultRoute(uint32_t gateway);
    // OK when there is no such link.
    Status DeleteLink(const std::string& link);

  private:
    explicit Netlink(Fd fd) : fd_(std::move(fd)) {}
    Status SetUp(const std::string& link, bool up);
    Status Transact(const void* message, size_t size, const std::string& tried);
    Fd fd_;
};

}  // namespace stockade::launch
