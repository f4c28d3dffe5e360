#include "tests/bench/operation.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

namespace stockade::bench {
namespace {

uint64_t Clock(clockid_t clock) {
    timespec now{};
    (void)clock_gettime(clock, &now);  // both clocks are always there
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// On the CPU: this process, and the children that it has waited for.
uint64_t Spent(Op op) {
    uint64_t spent = Clock(CLOCK_PROCESS_CPUTIME_ID);
    if (op != Op::kExec) return spent;
    rusage children{};
    (void)getrusage(RUSAGE_CHILDREN, &children);
    const auto ns = [](const timeval& t) {
        return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_usec) * 1000;
    };
    return spent + ns(children.ru_utime) + ns(children.ru_stime);
}

sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

int OpenClose(const Place& place) {
    const int fd = open(place.file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    (void)close(fd);
    return 0;
}

int Exec(const Place& place) {
    static char exit_word[] = "exit";
    char* argv[] = {const_cast<char*>(place.step), exit_word, nullptr};
    char* environment[] = {nullptr};
    const pid_t pid = vfork();
    if (pid == 0) {
        (void)execve(place.step, argv, environment);
        _exit(99);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : EPERM;
}

int Connect(const Place& place) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    const int rc = connect(fd, reinterpret_cast<const sockaddr*>(&place.closed), sizeof(place.closed));
    const int error = errno;
    (void)close(fd);
    // The answer of a port where nobody listens: the call went all its way.
    return rc != 0 && error == ECONNREFUSED ? 0 : rc == 0 ? EADDRINUSE : error;
}

int ConnectUdp(const Place& place) {
    if (place.connect_fd < 0) place.connect_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return connect(place.connect_fd, reinterpret_cast<const sockaddr*>(&place.closed),
                   sizeof(place.closed)) == 0
               ? 0
               : errno;
}

int UdpSend(const Place& place) {
    static const char bytes[64] = {};
    if (place.udp_fd < 0) place.udp_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const ssize_t n = sendto(place.udp_fd, bytes, sizeof(bytes), 0,
                             reinterpret_cast<const sockaddr*>(&place.udp), sizeof(place.udp));
    return n == sizeof(bytes) ? 0 : errno;
}

int SendQuery(const Place& place, const Query& query) {
    if (place.udp_fd < 0) place.udp_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const ssize_t n = sendto(place.udp_fd, query.message.data(), query.message.size(), 0,
                             reinterpret_cast<const sockaddr*>(&place.resolver), sizeof(place.resolver));
    return n == static_cast<ssize_t>(query.message.size()) ? 0 : errno;
}

int SendNew(const Place& place, Query& query) {
    query.Renew(++place.asked);
    return SendQuery(place, query);
}

int Once(const Place& place, Op op) {
    switch (op) {
        case Op::kGetppid:
            (void)syscall(SYS_getppid);
            return 0;
        case Op::kOpenClose:
            return OpenClose(place);
        case Op::kExec:
            return Exec(place);
        case Op::kConnect:
            return Connect(place);
        case Op::kConnectUdp:
            return ConnectUdp(place);
        case Op::kUdpSend:
            return UdpSend(place);
        case Op::kDnsUsual:
            return SendQuery(place, place.usual[++place.asked % place.usual.size()]);
        case Op::kDnsNew:
            return SendNew(place, place.fresh);
        case Op::kDnsDeepest:
            return SendNew(place, place.deepest);
        case Op::kDnsLongest:
            return SendNew(place, place.longest);
    }
    return EINVAL;
}

// Some 0.2 to 1 ms each: short against a time slice, long against reading the clock.
uint32_t BatchOf(Op op) {
    switch (op) {
        case Op::kGetppid:
            return 2000;
        case Op::kOpenClose:
            return 200;
        case Op::kExec:
            return 4;
        case Op::kConnect:
            return 40;
        case Op::kConnectUdp:
            return 1000;
        case Op::kUdpSend:
        case Op::kDnsUsual:
        case Op::kDnsNew:
        case Op::kDnsDeepest:
        case Op::kDnsLongest:
            return 200;
    }
    return 1;
}

constexpr uint64_t kPacesPerSecond = 200;
constexpr uint64_t kNanos = 1'000'000'000;

// Not at all when it is over.
void SleepUntil(uint64_t boot_ns) {
    const timespec until{.tv_sec = static_cast<time_t>(boot_ns / kNanos), .tv_nsec = static_cast<long>(boot_ns % kNanos)};
    while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
}

}  // namespace

Place::Place(const char* file, const char* step, uint16_t closed_port, uint16_t udp_port)
    : file(file), step(step), closed(Loopback(closed_port)), udp(Loopback(udp_port)), resolver(Loopback(53)) {
    resolver.sin_addr.s_addr = inet_addr(kResolver);
}

Answer Carry(const Place& place, const Order& order, double* samples) {
    Answer answer{};
    // Paced: as many as are due, each few milliseconds.
    const uint32_t batch = order.per_second > 0 ? static_cast<uint32_t>(1 + order.per_second / kPacesPerSecond) : BatchOf(order.op);
    const uint64_t begin = Clock(CLOCK_BOOTTIME), end = begin + order.wall_ns;
    // The first one warms caches and is not told.
    answer.error = Once(place, order.op);
    do {
        const uint64_t before = Spent(order.op);
        for (uint32_t i = 0; i < batch && answer.error == 0; i++) answer.error = Once(place, order.op);
        const uint64_t spent = Spent(order.op) - before;
        answer.calls += batch;
        if (order.keep) samples[answer.samples++] = static_cast<double>(spent) / batch;
        if (order.per_second > 0) SleepUntil(begin + answer.calls * kNanos / order.per_second);
    } while (answer.error == 0 && Clock(CLOCK_BOOTTIME) < end && answer.samples < kMaxSamples);
    return answer;
}

}  // namespace stockade::bench
