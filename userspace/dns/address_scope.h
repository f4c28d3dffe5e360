// Addresses that an answer from outside may not lead to.
#pragma once

#include "userspace/dns/stub_types.h"

namespace stockade::dns {

// Globally reachable by the registries of RFC 6890: not loopback, link-local (the cloud's metadata service),
// private, shared (RFC 6598), benchmarking, multicast or reserved, and of IPv6 nothing that carries an IPv4
// address inside.
bool IsPublicAddress(const StubAddress& address);

}  // namespace stockade::dns
