// Datagrams to port 53 of loopback. Standard input: for each its length in two bytes, network order, and itself.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/triggers/trigger.h"

namespace stockade::triggers {
namespace {

bool ReadWhole(void* out, size_t size) {
    auto* at = static_cast<char*>(out);
    while (size > 0) {
        const ssize_t n = read(0, at, size);
        if (n <= 0) return false;
        at += n;
        size -= static_cast<size_t>(n);
    }
    return true;
}

// One character for each: '.' it was taken, 'x' EPERM, '?' anything else.
template <typename Address>
int SendAll(int fd, const Address& to) {
    static unsigned char bytes[65536];
    unsigned char head[2];
    while (ReadWhole(head, 2)) {
        const size_t size = static_cast<size_t>(head[0] << 8 | head[1]);
        if (!ReadWhole(bytes, size)) return Setup("read");
        const ssize_t sent = sendto(fd, bytes, size, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
        const char word = sent >= 0 ? '.' : errno == EPERM ? 'x' : '?';
        if (write(1, &word, 1) != 1) return Setup("write");
    }
    return 0;
}

int To4(int fd) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(53);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return SendAll(fd, to);
}

int To6(int fd) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(53);
    to.sin6_addr = in6addr_loopback;
    return SendAll(fd, to);
}

int Dns4(Args) { return To4(socket(AF_INET, SOCK_DGRAM, 0)); }
int Dns6(Args) { return To6(socket(AF_INET6, SOCK_DGRAM, 0)); }

// Each message is cut into datagrams of SIZE bytes, on the way or by the device.
int Dns4Segments(Args args) {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0), size = Number(args[0]);
    if (setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof(size)) != 0) return Setup("UDP_SEGMENT");
    return To4(fd);
}

// Four bytes of options before the UDP header.
int Dns4Options(Args) {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const unsigned char nothing[] = {1, 1, 1, 1};
    if (setsockopt(fd, IPPROTO_IP, IP_OPTIONS, nothing, sizeof(nothing)) != 0) return Setup("IP_OPTIONS");
    return To4(fd);
}

int Dns6Options(Args) {
    const int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    const unsigned char nothing[] = {0, 0, 1, 4, 0, 0, 0, 0};  // an extension header of padding
    if (setsockopt(fd, IPPROTO_IPV6, IPV6_DSTOPTS, nothing, sizeof(nothing)) != 0) return Setup("IPV6_DSTOPTS");
    return To6(fd);
}

constexpr Trigger kTriggers[] = {{"dns4", 0, "", Dns4},
                                 {"dns6", 0, "", Dns6},
                                 {"dns4_segments", 1, "SIZE", Dns4Segments},
                                 {"dns4_options", 0, "", Dns4Options},
                                 {"dns6_options", 0, "", Dns6Options}};

}  // namespace

std::span<const Trigger> DnsTriggers() { return kTriggers; }

}  // namespace stockade::triggers
