// Datagrams to port 53 of loopback. Standard input: for each its length in two bytes, network order, and itself. And
// a client of names that does what its standard input says.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
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
int SendAll(int fd, const Address& to, int flags = 0) {
    static unsigned char bytes[65536];
    unsigned char head[2];
    while (ReadWhole(head, 2)) {
        const size_t size = static_cast<size_t>(head[0] << 8 | head[1]);
        if (!ReadWhole(bytes, size)) return Setup("read");
        const ssize_t sent = sendto(fd, bytes, size, flags, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
        const char word = sent >= 0 ? '.' : errno == EPERM ? 'x' : '?';
        if (write(1, &word, 1) != 1) return Setup("write");
    }
    return 0;
}

sockaddr_in Loopback() {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(53);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return to;
}

int To4(int fd, int flags = 0) { return SendAll(fd, Loopback(), flags); }

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

// The kernel sends what lies in the sender's memory then, and not what lay there when it was judged.
int Dns4Zerocopy(Args) {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) != 0) return Setup("SO_ZEROCOPY");
    return To4(fd, MSG_ZEROCOPY);
}

// The same by way of a pipe.
int Dns4Spliced(Args) {
    static unsigned char bytes[65536];
    unsigned char head[2];
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const sockaddr_in to = Loopback();
    int ends[2];
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0 || pipe(ends) != 0) return Setup("connect");
    while (ReadWhole(head, 2)) {
        const size_t size = static_cast<size_t>(head[0] << 8 | head[1]);
        if (!ReadWhole(bytes, size)) return Setup("read");
        const iovec vector = {bytes, size};
        if (vmsplice(ends[1], &vector, 1, 0) != static_cast<ssize_t>(size)) return Setup("vmsplice");
        const ssize_t sent = splice(ends[0], nullptr, fd, nullptr, size, 0);
        const char word = sent >= 0 ? '.' : errno == EPERM ? 'x' : '?';
        if (write(1, &word, 1) != 1) return Setup("write");
    }
    return 0;
}

constexpr int kSockets = 40;
constexpr int kPatienceMs = 20'000;

union Address {
    sockaddr any;
    sockaddr_in four;
    sockaddr_in6 six;
};

socklen_t AddressOf(const char* text, int port, Address* out) {
    *out = {};
    out->four.sin_port = htons(static_cast<uint16_t>(port));  // at the same place in both
    out->any.sa_family = strchr(text, ':') ? AF_INET6 : AF_INET;
    if (out->any.sa_family == AF_INET) return inet_pton(AF_INET, text, &out->four.sin_addr) == 1 ? sizeof(out->four) : 0;
    return inet_pton(AF_INET6, text, &out->six.sin6_addr) == 1 ? sizeof(out->six) : 0;
}

char Word(long result) { return result >= 0 ? '.' : errno == EPERM ? 'x' : '?'; }

size_t Unhex(const char* hex, unsigned char* out, size_t room) {
    size_t size = 0;
    unsigned byte = 0;
    for (; size < room && sscanf(hex, "%2x", &byte) == 1; hex += 2) out[size++] = static_cast<unsigned char>(byte);
    return size;
}

// The first two bytes of the next datagram, in hexadecimal: a DNS message's id.
void Hear(int fd) {
    unsigned char bytes[65536];
    pollfd waiting = {fd, POLLIN, 0};
    const bool heard = poll(&waiting, 1, kPatienceMs) == 1 && recv(fd, bytes, sizeof(bytes), 0) >= 2;
    printf(heard ? "%02x%02x\n" : "----\n", bytes[0], bytes[1]);
}

char Reach(const char* to, int port) {
    Address address;
    const socklen_t size = AddressOf(to, port, &address);
    const int fd = socket(address.any.sa_family, SOCK_STREAM, 0);
    const char word = Word(connect(fd, &address.any, size));
    close(fd);
    return word;
}

// Lines, each answered by one: "open N FAMILY", "bind N ADDRESS PORT", "plug N ADDRESS PORT" (connect), "send N ADDRESS
// PORT HEX" ("-" where it is plugged), "hear N", "reach ADDRESS PORT" (TCP).
int Talk(Args) {
    static char line[8192], hex[8192], to[64];
    static unsigned char bytes[4096];
    int sockets[kSockets], n = 0, port = 0;
    setvbuf(stdout, nullptr, _IOLBF, 4096);
    while (fgets(line, sizeof(line), stdin)) {
        Address address{};
        if (sscanf(line, "open %d %d", &n, &port) == 2 && n < kSockets) {
            sockets[n] = socket(port == 6 ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
            printf("%c\n", Word(sockets[n]));
        } else if (sscanf(line, "bind %d %63s %d", &n, to, &port) == 3) {
            const socklen_t size = AddressOf(to, port, &address);
            printf("%c\n", Word(bind(sockets[n], &address.any, size)));
        } else if (sscanf(line, "plug %d %63s %d", &n, to, &port) == 3) {
            const socklen_t size = AddressOf(to, port, &address);
            printf("%c\n", Word(connect(sockets[n], &address.any, size)));
        } else if (sscanf(line, "send %d %63s %d %8191s", &n, to, &port, hex) == 4) {
            const socklen_t size = AddressOf(to, port, &address);
            const size_t length = Unhex(hex, bytes, sizeof(bytes));
            printf("%c\n", Word(sendto(sockets[n], bytes, length, 0, size ? &address.any : nullptr, size)));
        } else if (sscanf(line, "hear %d", &n) == 1) {
            Hear(sockets[n]);
        } else if (sscanf(line, "reach %63s %d", to, &port) == 2) {
            printf("%c\n", Reach(to, port));
        } else {
            return Setup(line);
        }
    }
    return 0;
}

constexpr Trigger kTriggers[] = {{"dns4", 0, "", Dns4},
                                 {"dns6", 0, "", Dns6},
                                 {"dns4_segments", 1, "SIZE", Dns4Segments},
                                 {"dns4_options", 0, "", Dns4Options},
                                 {"dns4_zerocopy", 0, "", Dns4Zerocopy},
                                 {"dns4_spliced", 0, "", Dns4Spliced},
                                 {"dns6_options", 0, "", Dns6Options},
                                 {"dns_talk", 0, "", Talk}};

}  // namespace

std::span<const Trigger> DnsTriggers() { return kTriggers; }

}  // namespace stockade::triggers
