#include "tests/bench/worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/bench/operation.h"
#include "userspace/base/errno.h"

namespace stockade::bench {
namespace {

Status ReadExactly(int fd, void* bytes, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = read(fd, static_cast<char*>(bytes) + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ErrnoStatus(errno, "read the worker's answer");
        if (n == 0) return absl::AbortedError("the worker died: was it killed by its policy?");
        done += static_cast<size_t>(n);
    }
    return absl::OkStatus();
}

[[noreturn]] void Serve(const Worker::Options& options, int orders, int answers) {
    const Place place(options.file.c_str(), options.step.c_str(), options.closed_port, options.udp_port);
    static double samples[kMaxSamples];
    Order order;
    while (read(orders, &order, sizeof(order)) == sizeof(order)) {
        const Answer answer = Carry(place, order, samples);
        if (write(answers, &answer, sizeof(answer)) != sizeof(answer)) break;
        const size_t size = answer.samples * sizeof(double);
        if (size > 0 && write(answers, samples, size) != static_cast<ssize_t>(size)) break;
    }
    _exit(0);
}

StatusOr<Fd> Bound(int type, uint16_t* port) {
    Fd fd(socket(AF_INET, type | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (!fd.ok() || bind(fd.get(), generic, size) != 0 || getsockname(fd.get(), generic, &size) != 0) {
        return ErrnoStatus(errno, "bind a port of 127.0.0.1");
    }
    *port = ntohs(address.sin_port);
    return fd;
}

}  // namespace

const char* NameOf(Op op) {
    switch (op) {
        case Op::kGetppid:
            return "getppid";
        case Op::kOpenClose:
            return "open_close";
        case Op::kExec:
            return "exec";
        case Op::kConnect:
            return "connect";
        case Op::kConnectUdp:
            return "connect_udp";
        case Op::kUdpSend:
            return "udp_sendto";
        case Op::kDnsUsual:
            return "usual";
        case Op::kDnsNew:
            return "new_name";
        case Op::kDnsDeepest:
            return "deepest_name";
        case Op::kDnsLongest:
            return "longest_name";
    }
    return "?";
}

StatusOr<Fd> HoldResolver() {
    Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = inet_addr(kResolver);
    address.sin_port = htons(53);
    const int bytes = 4096;
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    if (!fd.ok() || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
        return ErrnoStatus(errno, absl::StrCat("bind port 53 of ", kResolver));
    return fd;
}

StatusOr<Ports> Ports::Take() {
    Ports ports;
    SK_ASSIGN_OR_RETURN(ports.closed_, Bound(SOCK_STREAM, &ports.closed_port_));
    SK_ASSIGN_OR_RETURN(ports.udp_, Bound(SOCK_DGRAM, &ports.udp_port_));
    // Full after a few datagrams, so that each one after them costs the same.
    const int bytes = 4096;
    (void)setsockopt(ports.udp_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    return ports;
}

StatusOr<std::unique_ptr<Worker>> Worker::Start(const Options& options) {
    std::unique_ptr<Worker> worker(new Worker());
    int orders[2], answers[2];
    if (pipe2(orders, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    Fd orders_read(orders[0]);
    worker->orders_ = Fd(orders[1]);
    if (pipe2(answers, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    worker->answers_ = Fd(answers[0]);
    Fd answers_write(answers[1]);
    SK_ASSIGN_OR_RETURN(Fd procs, Fd::Open(options.cgroup + "/cgroup.procs", O_WRONLY));
    worker->pid_ = fork();
    if (worker->pid_ < 0) return ErrnoStatus(errno, "fork a worker");
    if (worker->pid_ == 0) {
        (void)signal(SIGPIPE, SIG_DFL);
        // More batches that nobody interrupts; without the right to it they are fewer.
        if (options.preferred) (void)setpriority(PRIO_PROCESS, 0, -20);
        // Else it would hold the ends whose closing tells it to go.
        worker->orders_.Reset();
        worker->answers_.Reset();
        if (options.landlock && !EnterLandlock(*options.landlock).ok()) _exit(3);
        Serve(options, orders_read.get(), answers_write.get());
    }
    worker->pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, worker->pid_, 0)));
    SK_RETURN_IF_ERROR(
        Annotate(WriteAll(procs.get(), absl::StrCat(worker->pid_)), "move a worker to its cgroup"));
    // It has entered its domain, and nothing of its own start is measured.
    SK_RETURN_IF_ERROR(worker->Measure(Op::kGetppid, 0).status());
    return worker;
}

Worker::~Worker() {
    if (pid_ <= 0) return;
    (void)kill(pid_, SIGKILL);
    (void)waitpid(pid_, nullptr, 0);
}

Status Worker::Begin(Op op, uint64_t wall_ns, uint64_t per_second) {
    const Order order{.op = op, .keep = 0, .wall_ns = wall_ns, .per_second = per_second};
    return WriteAll(orders_.get(), {reinterpret_cast<const char*>(&order), sizeof(order)});
}

StatusOr<uint64_t> Worker::Finish() {
    Answer answer{};
    SK_RETURN_IF_ERROR(ReadExactly(answers_.get(), &answer, sizeof(answer)));
    if (answer.error != 0) return ErrnoStatus(answer.error, "the measured call failed");
    return answer.calls;
}

StatusOr<std::vector<double>> Worker::Measure(Op op, uint64_t wall_ns) {
    const Order order{.op = op, .keep = 1, .wall_ns = wall_ns, .per_second = 0};
    SK_RETURN_IF_ERROR(WriteAll(orders_.get(), {reinterpret_cast<const char*>(&order), sizeof(order)}));
    Answer answer{};
    SK_RETURN_IF_ERROR(ReadExactly(answers_.get(), &answer, sizeof(answer)));
    if (answer.samples > kMaxSamples) return absl::InternalError("the worker's answer makes no sense");
    std::vector<double> samples(answer.samples);
    SK_RETURN_IF_ERROR(ReadExactly(answers_.get(), samples.data(), samples.size() * sizeof(double)));
    if (answer.error != 0)
        return ErrnoStatus(answer.error, absl::StrCat("the measured call failed: ", NameOf(op)));
    return samples;
}

}  // namespace stockade::bench
