// Ways to reach an inet address. Ports are of listeners that the test owns, all on loopback.
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/triggers/trigger.h"
#include "tests/triggers/uring.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

namespace stockade::triggers {
namespace {

constexpr char kBytes[] = "stockade";

sockaddr_in Four(const char* port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(Number(port)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

sockaddr_in6 Six(const char* text, const char* port) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<uint16_t>(Number(port)));
    inet_pton(AF_INET6, text, &address.sin6_addr);
    return address;
}

template <typename Address>
int Connect(int fd, const Address& address) {
    return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

template <typename Address>
ssize_t SendTo(int fd, const Address& address, int flags = 0) {
    return sendto(fd, kBytes, sizeof(kBytes), flags, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
}

int ConnectTcp4(Args args) { return Outcome(Connect(socket(AF_INET, SOCK_STREAM, 0), Four(args[0]))); }
int ConnectTcp6(Args args) { return Outcome(Connect(socket(AF_INET6, SOCK_STREAM, 0), Six("::1", args[0]))); }
int ConnectMapped(Args args) { return Outcome(Connect(socket(AF_INET6, SOCK_STREAM, 0), Six("::ffff:127.0.0.1", args[0]))); }

int ConnectMptcp(Args args) {
    int fd = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
    return fd < 0 ? Setup("socket") : Outcome(Connect(fd, Four(args[0])));
}

int ConnectUdp(Args args) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (Connect(fd, Four(args[0])) != 0) return Refused();
    return Outcome(send(fd, kBytes, sizeof(kBytes), 0));
}

// To the allowed port, away from it, and to the other.
int ConnectDissolved(Args args) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr nowhere{};
    nowhere.sa_family = AF_UNSPEC;
    if (Connect(fd, Four(args[0])) != 0 || connect(fd, &nowhere, sizeof(nowhere)) != 0) return Setup("connect");
    if (Connect(fd, Four(args[1])) != 0) return Refused();
    return Outcome(send(fd, kBytes, sizeof(kBytes), 0));
}

#if defined(__x86_64__)
void NoCompat(int) { _exit(2); }

int Compat(int number, unsigned b, unsigned c) {
    int result;
    asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(b), "c"(c), "d"(0) : "memory");
    if (result < 0) errno = -result;
    return result < 0 ? -1 : result;
}

// socketcall(2) of the 32-bit table: the arguments lie in user memory.
int ConnectCompat(Args args) {
    char* low = static_cast<char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
    if (low == MAP_FAILED) return Setup("map");
    signal(SIGSEGV, NoCompat);
    auto* words = reinterpret_cast<unsigned*>(low);
    words[0] = AF_INET;
    words[1] = SOCK_STREAM;
    words[2] = 0;
    int fd = Compat(102, 1, static_cast<unsigned>(reinterpret_cast<uintptr_t>(low)));
    if (fd < 0) return Setup("socketcall");
    sockaddr_in address = Four(args[0]);
    memcpy(low + 64, &address, sizeof(address));
    words[0] = static_cast<unsigned>(fd);
    words[1] = static_cast<unsigned>(reinterpret_cast<uintptr_t>(low + 64));
    words[2] = sizeof(address);
    return Outcome(Compat(102, 3, static_cast<unsigned>(reinterpret_cast<uintptr_t>(low))));
}
#endif

int ConnectUring(Args args) {
    Uring ring;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!ring.Start(0)) return Setup("io_uring_setup");
    sockaddr_in address = Four(args[0]);
    io_uring_sqe sqe{};
    sqe.opcode = IORING_OP_CONNECT;
    sqe.fd = fd;
    sqe.addr = reinterpret_cast<uint64_t>(&address);
    sqe.off = sizeof(address);
    int result = ring.Submit(sqe);
    if (result < 0) errno = -result;
    return Outcome(result);
}

int Fastopen(int protocol, const char* port) {
    int fd = socket(AF_INET, SOCK_STREAM, protocol);
    if (fd < 0) return Setup("socket");
    return Outcome(SendTo(fd, Four(port), MSG_FASTOPEN));
}
int SendFastopen(Args args) { return Fastopen(0, args[0]); }
int SendFastopenMptcp(Args args) { return Fastopen(IPPROTO_MPTCP, args[0]); }
int SendUdp4(Args args) { return Outcome(SendTo(socket(AF_INET, SOCK_DGRAM, 0), Four(args[0]))); }
int SendUdp6(Args args) { return Outcome(SendTo(socket(AF_INET6, SOCK_DGRAM, 0), Six("::1", args[0]))); }
int SendMapped(Args args) { return Outcome(SendTo(socket(AF_INET6, SOCK_DGRAM, 0), Six("::ffff:127.0.0.1", args[0]))); }
int SendFourOnSix(Args args) { return Outcome(SendTo(socket(AF_INET6, SOCK_DGRAM, 0), Four(args[0]))); }

int SendUnspec(Args args) {
    sockaddr_in address = Four(args[0]);
    address.sin_family = AF_UNSPEC;
    return Outcome(SendTo(socket(AF_INET, SOCK_DGRAM, 0), address));
}

// The first to the allowed port, the second to the other: both in one call.
int SendMany(Args args) {
    sockaddr_in addresses[2] = {Four(args[0]), Four(args[1])};
    iovec bytes = {const_cast<char*>(kBytes), sizeof(kBytes)};
    mmsghdr messages[2] = {};
    for (int i = 0; i < 2; i++) {
        messages[i].msg_hdr.msg_name = &addresses[i];
        messages[i].msg_hdr.msg_namelen = sizeof(addresses[i]);
        messages[i].msg_hdr.msg_iov = &bytes;
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    int sent = sendmmsg(fd, messages, 2, 0);
    if (sent < 0) return Refused();
    if (sent == 2) return Done();
    // The call tells how many went; the error comes with the next.
    return Outcome(sendmmsg(fd, messages + 1, 1, 0));
}

// A whole UDP packet by a raw socket: no call names its destination to anybody but the packet filters.
int SendRaw(Args args) {
    struct {
        iphdr ip;
        udphdr udp;
        char bytes[sizeof(kBytes)];
    } packet{};
    packet.ip.version = 4;
    packet.ip.ihl = 5;
    packet.ip.ttl = 64;
    packet.ip.protocol = IPPROTO_UDP;
    packet.ip.tot_len = htons(sizeof(packet));
    packet.ip.saddr = packet.ip.daddr = htonl(INADDR_LOOPBACK);
    packet.udp.source = htons(9);
    packet.udp.dest = htons(static_cast<uint16_t>(Number(args[0])));
    packet.udp.len = htons(sizeof(packet.udp) + sizeof(kBytes));
    memcpy(packet.bytes, kBytes, sizeof(kBytes));
    int fd = socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
    if (fd < 0) return Setup("socket");
    sockaddr_in address = Four("0");
    return Outcome(sendto(fd, &packet, sizeof(packet), 0, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
}

template <typename Address>
int BindTo(int family, const Address& address) {
    return Outcome(bind(socket(family, SOCK_STREAM, 0), reinterpret_cast<const sockaddr*>(&address), sizeof(address)));
}
int Bind4(Args args) { return BindTo(AF_INET, Four(args[0])); }
int Bind6(Args args) { return BindTo(AF_INET6, Six("::1", args[0])); }
int Listen(Args) { return Outcome(listen(socket(AF_INET, SOCK_STREAM, 0), 1)); }

// A descriptor that the test left open: 7.
int UseInherited(Args args) { return Outcome(Connect(7, Four(args[0]))); }

// A socket that comes by a unix socket pair whose end is descriptor 7.
int UseReceived(Args args) {
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {};
    iovec bytes = {&byte, 1};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (recvmsg(7, &message, 0) < 0) return Refused();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    int fd = -1;
    if (header) memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    if (fd < 0) {
        errno = EPERM; // the kernel takes the descriptor out of the message and says nothing
        return Refused();
    }
    return Outcome(Connect(fd, Four(args[0])));
}

const Trigger kTriggers[] = {
    {"connect_tcp4", 1, "PORT", ConnectTcp4},
    {"connect_tcp6", 1, "PORT", ConnectTcp6},
    {"connect_mapped", 1, "PORT", ConnectMapped},
    {"connect_mptcp", 1, "PORT", ConnectMptcp},
    {"connect_udp", 1, "PORT", ConnectUdp},
    {"connect_dissolved", 2, "ALLOWED PORT", ConnectDissolved},
#if defined(__x86_64__)
    {"connect_compat", 1, "PORT", ConnectCompat},
#endif
    {"connect_io_uring", 1, "PORT", ConnectUring},
    {"send_fastopen", 1, "PORT", SendFastopen},
    {"send_fastopen_mptcp", 1, "PORT", SendFastopenMptcp},
    {"send_udp4", 1, "PORT", SendUdp4},
    {"send_udp6", 1, "PORT", SendUdp6},
    {"send_mapped", 1, "PORT", SendMapped},
    {"send_four_on_six", 1, "PORT", SendFourOnSix},
    {"send_unspec", 1, "PORT", SendUnspec},
    {"send_many", 2, "ALLOWED PORT", SendMany},
    {"send_raw", 1, "PORT", SendRaw},
    {"bind4", 1, "PORT", Bind4},
    {"bind6", 1, "PORT", Bind6},
    {"listen", 0, "", Listen},
    {"use_inherited", 1, "PORT", UseInherited},
    {"use_received", 1, "PORT", UseReceived},
};

}  // namespace

std::span<const Trigger> NetTriggers() { return kTriggers; }

}  // namespace stockade::triggers
