// Where a sandbox finds its resolver: port 53 of the host's end of its veth.
#pragma once

#include <string>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::launch {

struct DnsSockets {
    Fd udp;  // bound
    Fd tcp;  // listening
};

// `address`: IPv4, of this network namespace; `link`: the interface that the sandbox's packets come in by, and
// nobody else's. Bound to both: a resolver of the host's own that has port 53 of all addresses keeps it, and then
// this is kAlreadyExists.
StatusOr<DnsSockets> ListenForDns(const std::string& address, const std::string& link);

}  // namespace stockade::launch
