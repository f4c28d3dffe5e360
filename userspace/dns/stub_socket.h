// Sockets of the stub. All are close-on-exec and never block.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/base/fd.h"
#include "userspace/dns/stub_types.h"

namespace stockade::dns {

// Connected to `to`, so that the kernel drops what comes from elsewhere. For UDP (SOCK_DGRAM) it also takes a
// random source port for each (since 4.2 from all of ip_local_port_range). TCP: the connect may be under way.
StatusOr<Fd> ConnectStubSocket(const UpstreamAddress& to, int type);

// Somebody else's socket as the stub's: of that type, and it does not block from now on.
Status TakeStubSocket(const Fd& fd, int type, bool listening);

StatusOr<uint16_t> RandomId();

// A message with its length before it (RFC 1035 4.2.2), as it goes over TCP.
std::string Framed(absl::string_view message);

enum class StubRead { kData, kNothing, kEnd, kError };
// Once, whatever there is up to `max_bytes`; errno tells of kError.
StubRead ReadSome(int fd, size_t max_bytes, std::string* out);
// Sends the front of *out and removes it. False: the peer is gone.
bool WriteSome(int fd, std::string* out);

}  // namespace stockade::dns
