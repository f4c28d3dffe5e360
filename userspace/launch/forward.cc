// Connections to host: ports, carried from the sandbox's loopback to the host's.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <list>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/launch/network.h"

namespace stockade::launch {
namespace {

constexpr size_t kBufferBytes = 16384;
constexpr int kBacklog = 64;
// Tries to reach a listener whose backlog is full: 1 + 2 + 4 seconds, then the port counts as closed.
constexpr int kSynRetries = 2;

sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

StatusOr<Fd> Listen(uint16_t port) {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.ok()) return ErrnoStatus(errno, "socket for a host port");
    sockaddr_in address = Loopback(port);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(fd.get(), kBacklog) != 0) {
        return ErrnoStatus(errno, absl::StrCat("listen on the sandbox's port ", port));
    }
    return fd;
}

// One direction of a connection.
struct Flow {
    std::string pending;
    bool eof = false;   // nothing more will be read
    bool shut = false;  // ... and the other side knows
};

struct Connection {
    Fd inner, outer;
    Flow up, down;  // up: from the sandbox to the host
    bool connecting = false;
    bool failed = false;
    bool done() const { return failed || (up.shut && down.shut); }
};

short Wanted(const Flow& from_here, const Flow& to_here) {
    int events = 0;
    if (!from_here.eof && from_here.pending.size() < kBufferBytes) events |= POLLIN;
    if (!to_here.pending.empty()) events |= POLLOUT;
    return static_cast<short>(events);
}

void Pump(int from, int to, Flow& flow, bool* failed) {
    char buffer[kBufferBytes];
    if (!flow.eof && flow.pending.size() < kBufferBytes) {
        ssize_t n = recv(from, buffer, kBufferBytes - flow.pending.size(), MSG_DONTWAIT);
        if (n > 0) flow.pending.append(buffer, static_cast<size_t>(n));
        if (n == 0) flow.eof = true;
        if (n < 0 && errno != EAGAIN && errno != EINTR) *failed = true;
    }
    if (!flow.pending.empty()) {
        ssize_t n = send(to, flow.pending.data(), flow.pending.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) flow.pending.erase(0, static_cast<size_t>(n));
        if (n < 0 && errno != EAGAIN && errno != EINTR) *failed = true;
    }
    if (flow.eof && flow.pending.empty() && !flow.shut) {
        (void)shutdown(to, SHUT_WR);  // fails when the peer has gone, which is as good
        flow.shut = true;
    }
}

// A listener that does not accept must not stop the others: the connection is made meanwhile.
bool Accept(int listener, uint16_t port, std::list<Connection>* connections) {
    Fd inner(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!inner.ok()) return false;
    if (connections->size() >= kMaxForwarded) return true;
    Fd outer(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!outer.ok()) return true;
    (void)setsockopt(outer.get(), IPPROTO_TCP, TCP_SYNCNT, &kSynRetries, sizeof(kSynRetries));
    sockaddr_in address = Loopback(port);
    const int rc = connect(outer.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    if (rc != 0 && errno != EINPROGRESS) return true;  // closed, as a port without listener would be
    connections->push_back({std::move(inner), std::move(outer), {}, {}, rc != 0, false});
    return true;
}

void FinishConnect(Connection& c) {
    int error = 0;
    socklen_t size = sizeof(error);
    c.failed = getsockopt(c.outer.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0;
    c.connecting = false;
}

// Nothing of a descriptor that nothing is wanted from: its hang-up is reported whether asked for or
// not, and would turn the loop without pause until the other side takes what is pending.
pollfd Poll(const Fd& fd, int events) { return {events == 0 ? -1 : fd.get(), static_cast<short>(events), 0}; }

}  // namespace

StatusOr<std::unique_ptr<HostForwarder>> HostForwarder::Create(int pidfd,
                                                               const std::vector<uint16_t>& ports) {
    std::unique_ptr<HostForwarder> forwarder(new HostForwarder);
    forwarder->ports_ = ports;
    // Made by this process in the sandbox's namespace: they belong to its cgroup, not the sandbox's.
    SK_RETURN_IF_ERROR(InNetworkNamespace(pidfd, [&]() -> Status {
        for (uint16_t port : ports) {
            SK_ASSIGN_OR_RETURN(Fd fd, Listen(port));
            forwarder->listeners_.push_back(std::move(fd));
        }
        return absl::OkStatus();
    }));
    forwarder->stop_ = Fd(eventfd(0, EFD_CLOEXEC));
    if (!forwarder->stop_.ok()) return ErrnoStatus(errno, "eventfd");
    HostForwarder* self = forwarder.get();
    forwarder->thread_ = std::thread([self] { self->Run(); });
    return forwarder;
}

HostForwarder::~HostForwarder() {
    if (!thread_.joinable()) return;
    uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));  // cannot fail on an eventfd that counts 0
    thread_.join();
}

void HostForwarder::Run() {
    std::list<Connection> connections;
    for (;;) {
        std::vector<pollfd> fds{{stop_.get(), POLLIN, 0}};
        for (const Fd& listener : listeners_) fds.push_back({listener.get(), POLLIN, 0});
        for (const Connection& c : connections) {
            fds.push_back(Poll(c.inner, c.connecting ? 0 : Wanted(c.up, c.down)));
            fds.push_back(Poll(c.outer, c.connecting ? POLLOUT : Wanted(c.down, c.up)));
        }
        if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
        if (fds[0].revents != 0) return;
        size_t at = 1 + listeners_.size();
        for (Connection& c : connections) {
            const int events = fds[at].revents | fds[at + 1].revents;
            at += 2;
            if (events == 0) continue;
            if (c.connecting) {
                FinishConnect(c);
                continue;
            }
            if ((events & (POLLERR | POLLNVAL)) != 0) c.failed = true;
            Pump(c.inner.get(), c.outer.get(), c.up, &c.failed);
            Pump(c.outer.get(), c.inner.get(), c.down, &c.failed);
        }
        connections.remove_if([](const Connection& c) { return c.done(); });
        for (size_t i = 0; i < listeners_.size(); ++i) {
            if (fds[1 + i].revents != 0) (void)Accept(listeners_[i].get(), ports_[i], &connections);
        }
    }
}

}  // namespace stockade::launch
