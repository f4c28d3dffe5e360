// Sockets of other kinds, and unix sockets.
#include <arpa/inet.h>
#include <linux/if_alg.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "tests/triggers/trigger.h"

namespace stockade::triggers {
namespace {

int Raw(Args) { return Outcome(socket(AF_INET, SOCK_RAW, IPPROTO_UDP)); }
int RawSix(Args) { return Outcome(socket(AF_INET6, SOCK_RAW, IPPROTO_UDP)); }
int Ping(Args) { return Outcome(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP)); }
int Packet(Args) { return Outcome(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL))); }
int Alg(Args) { return Outcome(socket(AF_ALG, SOCK_SEQPACKET, 0)); }
int Vsock(Args) { return Outcome(socket(AF_VSOCK, SOCK_STREAM, 0)); }
int NetlinkRoute(Args) { return Outcome(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)); }
int NetlinkAudit(Args) { return Outcome(socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT)); }
int NetlinkUevent(Args) { return Outcome(socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT)); }

// A name that begins with @ is abstract.
socklen_t Address(const char* name, sockaddr_un& address) {
    address = {};
    address.sun_family = AF_UNIX;
    size_t length = strnlen(name, sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, name, length);
    if (name[0] == '@') address.sun_path[0] = 0;
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length + (name[0] == '@' ? 0 : 1));
}

int ConnectUnix(const char* name, int type) {
    sockaddr_un address;
    socklen_t length = Address(name, address);
    int fd = socket(AF_UNIX, type, 0);
    if (fd < 0) return Setup("socket");
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) return Refused();
    return Outcome(send(fd, "stockade", 8, MSG_NOSIGNAL));
}

int UnixStream(Args args) { return ConnectUnix(args[0], SOCK_STREAM); }

// A child connects, its parent has the socket.
int UnixByChild(Args args) {
    sockaddr_un address;
    socklen_t length = Address(args[0], address);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    const pid_t child = fork();
    if (child < 0) return Setup("fork");
    if (child == 0) _exit(connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 ? 0 : errno);
    int status = 0;
    waitpid(child, &status, 0);
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : ESRCH;
    return Outcome(errno != 0 ? -1 : send(fd, "stockade", 8, 0));
}

int UnixConnectedDatagram(Args args) { return ConnectUnix(args[0], SOCK_DGRAM); }

int UnixDatagram(Args args) {
    sockaddr_un address;
    socklen_t length = Address(args[0], address);
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    return Outcome(sendto(fd, "stockade", 8, 0, reinterpret_cast<sockaddr*>(&address), length));
}

// LINK becomes a name of TARGET, and is connected to.
int UnixAlias(Args args) {
    if (symlink(args[0], args[1]) != 0) return Setup("symlink");
    return ConnectUnix(args[1], SOCK_STREAM);
}

uint64_t Nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Kernels that are not preempted let nobody else run on a CPU whose task is in a call. Without effect where there is one CPU.
void PinTo(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

// Connects to NAME, which takes the kernel long to walk; meanwhile a thread puts a pipe under the descriptor. What
// was connected is used by its duplicate.
int UnixSwapped(Args args) {
    sockaddr_un address;
    const socklen_t length = Address(args[0], address);
    int other[2];
    if (pipe(other) != 0) return Setup("pipe");
    for (int tries = 0; tries < 50; ++tries) {
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0), kept = dup(fd);
        if (fd < 0 || kept < 0) return Setup("socket");
        std::atomic<bool> ready{false}, begun{false};
        std::thread swap([&] {
            PinTo(1);
            ready = true;
            while (!begun) sched_yield();
            // In which the call has taken the descriptor, and walks: not slept, for who sleeps may be woken too late.
            const uint64_t until = Nanoseconds() + 300'000;
            while (Nanoseconds() < until) sched_yield();
            dup2(other[0], fd);
        });
        PinTo(0);
        while (!ready) sched_yield();
        begun = true;
        const int rc = connect(fd, reinterpret_cast<sockaddr*>(&address), length);
        const int error = errno;
        swap.join();
        errno = error;
        if (rc != 0 && error == ENOTSOCK) continue;  // too early
        return rc != 0 ? Refused() : Outcome(send(kept, "stockade", 8, MSG_NOSIGNAL));
    }
    return Setup("swap");
}

int UnixBind(Args args) {
    sockaddr_un address;
    socklen_t length = Address(args[0], address);
    return Outcome(bind(socket(AF_UNIX, SOCK_STREAM, 0), reinterpret_cast<sockaddr*>(&address), length));
}

// Both ends are the sandbox's own.
int UnixPair(Args) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return Refused();
    return Outcome(write(pair[0], "x", 1));
}

const Trigger kTriggers[] = {
    {"socket_raw", 0, "", Raw},
    {"socket_raw6", 0, "", RawSix},
    {"socket_ping", 0, "", Ping},
    {"socket_packet", 0, "", Packet},
    {"socket_alg", 0, "", Alg},
    {"socket_vsock", 0, "", Vsock},
    {"socket_netlink_route", 0, "", NetlinkRoute},
    {"socket_netlink_audit", 0, "", NetlinkAudit},
    {"socket_netlink_uevent", 0, "", NetlinkUevent},
    {"unix_stream", 1, "NAME", UnixStream},
    {"unix_by_child", 1, "NAME", UnixByChild},
    {"unix_connected_datagram", 1, "NAME", UnixConnectedDatagram},
    {"unix_datagram", 1, "NAME", UnixDatagram},
    {"unix_alias", 2, "TARGET LINK", UnixAlias},
    {"unix_swapped", 1, "NAME", UnixSwapped},
    {"unix_bind", 1, "NAME", UnixBind},
    {"unix_pair", 0, "", UnixPair},
};

}  // namespace

std::span<const Trigger> SocketTriggers() { return kTriggers; }

}  // namespace stockade::triggers
