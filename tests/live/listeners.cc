#include "tests/live/listeners.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "userspace/base/errno.h"

namespace stockade::live {
namespace {

StatusOr<Fd> Bound(int family, int type, int port) {
    Fd fd(socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int on = 1, queue = 8;
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_addr = in6addr_loopback;
    six.sin6_port = htons(static_cast<uint16_t>(port));
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    four.sin_port = htons(static_cast<uint16_t>(port));
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); // bind tells
    auto* address = family == AF_INET ? reinterpret_cast<sockaddr*>(&four) : reinterpret_cast<sockaddr*>(&six);
    if (bind(fd.get(), address, family == AF_INET ? sizeof(four) : sizeof(six)) != 0) return ErrnoStatus(errno, "bind a listener");
    if (type == SOCK_STREAM) {
        (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_FASTOPEN, &queue, sizeof(queue)); // without it fast open becomes a plain connect
        if (listen(fd.get(), 8) != 0) return ErrnoStatus(errno, "listen");
    }
    return fd;
}

int PortOf(const Fd& fd) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    return getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0 ? ntohs(address.sin_port) : 0;
}

}  // namespace

StatusOr<Listeners::Port> Listeners::Open() {
    Status last = absl::OkStatus();
    // A number that is free for TCP over IPv4 may be taken in one of the others.
    for (int attempt = 0; attempt < 20; attempt++) {
        Port port;
        SK_ASSIGN_OR_RETURN(Fd first, Bound(AF_INET, SOCK_STREAM, 0));
        port.port = PortOf(first);
        port.streams.push_back(std::move(first));
        auto udp = Bound(AF_INET, SOCK_DGRAM, port.port), udp6 = Bound(AF_INET6, SOCK_DGRAM, port.port);
        auto tcp6 = Bound(AF_INET6, SOCK_STREAM, port.port);
        if (udp.ok()) port.datagrams.push_back(*std::move(udp));
        // A machine may have no IPv6.
        if (udp6.ok()) port.datagrams.push_back(*std::move(udp6));
        if (tcp6.ok()) port.streams.push_back(*std::move(tcp6));
        if (!port.datagrams.empty()) return port;
        last = absl::UnavailableError("no port is free for TCP and UDP");
    }
    return last;
}

StatusOr<Listeners> Listeners::Create() {
    Listeners listeners;
    SK_ASSIGN_OR_RETURN(listeners.allowed_, Open());
    SK_ASSIGN_OR_RETURN(listeners.refused_, Open());
    return listeners;
}

bool Listeners::Heard(Port& port) {
    bool heard = false;
    char bytes[64];
    for (Fd& fd : port.streams) {
        for (Fd peer(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)); peer.ok(); peer = Fd(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC))) heard = true;
    }
    for (Fd& fd : port.datagrams) {
        while (recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT) >= 0) heard = true;
    }
    return heard;
}

}  // namespace stockade::live
