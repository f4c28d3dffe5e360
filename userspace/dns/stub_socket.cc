#include "userspace/dns/stub_socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/dns/stub_query.h"

namespace stockade::dns {
namespace {

socklen_t ToSockaddr(const UpstreamAddress& from, sockaddr_storage* out) {
    std::memset(out, 0, sizeof(*out));
    if (from.address.family == 4) {
        auto* to = reinterpret_cast<sockaddr_in*>(out);
        to->sin_family = AF_INET;
        to->sin_port = htons(from.port);
        std::memcpy(&to->sin_addr, from.address.bytes.data(), sizeof(to->sin_addr));
        return sizeof(*to);
    }
    auto* to = reinterpret_cast<sockaddr_in6*>(out);
    to->sin6_family = AF_INET6;
    to->sin6_port = htons(from.port);
    std::memcpy(&to->sin6_addr, from.address.bytes.data(), sizeof(to->sin6_addr));
    return sizeof(*to);
}

StatusOr<int> SocketOption(const Fd& fd, int option) {
    int value = 0;
    socklen_t size = sizeof(value);
    if (getsockopt(fd.get(), SOL_SOCKET, option, &value, &size) != 0)
        return ErrnoStatus(errno, "look at a socket for the stub");
    return value;
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

std::string StubAddress::ToString() const {
    char text[INET6_ADDRSTRLEN];
    return inet_ntop(family == 4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof(text));
}

StatusOr<UpstreamAddress> UpstreamAddress::Parse(absl::string_view text, uint16_t port) {
    UpstreamAddress out;
    out.port = port;
    const std::string copy(text);
    if (inet_pton(AF_INET, copy.c_str(), out.address.bytes.data()) == 1)
        out.address.family = 4;
    else if (inet_pton(AF_INET6, copy.c_str(), out.address.bytes.data()) == 1)
        out.address.family = 6;
    else
        return absl::InvalidArgumentError(absl::StrCat("no IP address: ", text));
    return out;
}

StatusOr<Fd> ConnectStubSocket(const UpstreamAddress& to, int type) {
    const int family = to.address.family == 4 ? AF_INET : AF_INET6;
    Fd fd(socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.ok()) return ErrnoStatus(errno, "make a socket to a resolver");
    sockaddr_storage address;
    const socklen_t size = ToSockaddr(to, &address);
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 && errno != EINPROGRESS)
        return ErrnoStatus(errno, "connect to a resolver");
    return fd;
}

Status TakeStubSocket(const Fd& fd, int type, bool listening) {
    SK_ASSIGN_OR_RETURN(const int is_type, SocketOption(fd, SO_TYPE));
    SK_ASSIGN_OR_RETURN(const int accepts, SocketOption(fd, SO_ACCEPTCONN));
    if (is_type != type || (accepts != 0) != listening)
        return absl::InvalidArgumentError(listening ? "not a TCP socket that listens" : "not a UDP socket");
    const int flags = fcntl(fd.get(), F_GETFL);
    if (flags < 0 || fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0)
        return ErrnoStatus(errno, "make a socket of the stub not block");
    return absl::OkStatus();
}

StatusOr<uint16_t> RandomId() {
    uint16_t id;
    if (getrandom(&id, sizeof(id), 0) != sizeof(id)) return ErrnoStatus(errno, "get a random id");
    return id;
}

std::string Framed(absl::string_view message) {
    std::string out;
    AppendU16(&out, message.size());
    out.append(message.data(), message.size());
    return out;
}

StubRead ReadSome(int fd, size_t max_bytes, std::string* out) {
    std::array<char, 16384> buffer;
    const ssize_t count = recv(fd, buffer.data(), std::min(buffer.size(), max_bytes), 0);
    if (count > 0) {
        out->append(buffer.data(), count);
        return StubRead::kData;
    }
    if (count == 0) return StubRead::kEnd;
    return WouldBlock() ? StubRead::kNothing : StubRead::kError;
}

bool WriteSome(int fd, std::string* out) {
    const ssize_t count = send(fd, out->data(), out->size(), MSG_NOSIGNAL);
    if (count < 0) return WouldBlock();
    out->erase(0, count);
    return true;
}

}  // namespace stockade::dns
