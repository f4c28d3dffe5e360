#include "tests/dns/fake_upstream.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "userspace/dns/stub_query.h"

namespace stockade {
namespace {

// The dotted form, case kept.
std::string Dotted(absl::string_view wire) {
    std::string out;
    for (size_t at = 0; at < wire.size() && wire[at];) {
        const auto size = static_cast<uint8_t>(wire[at]);
        if (!out.empty()) out.push_back('.');
        out.append(std::string(wire.substr(at + 1, size)));
        at += 1 + size;
    }
    return out;
}

sockaddr_in Loopback(uint16_t port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(port);
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return out;
}

}  // namespace

Fd BoundSocket(int type, uint16_t port) {
    Fd fd(socket(AF_INET, type | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(port);
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return {};
    if (type == SOCK_STREAM && listen(fd.get(), 64) != 0) return {};
    return fd;
}

uint16_t PortOf(int fd) {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.sin_port);
}

std::pair<Fd, Fd> BoundPair() {
    for (;;) {
        Fd udp = BoundSocket(SOCK_DGRAM, 0);
        Fd tcp = BoundSocket(SOCK_STREAM, PortOf(udp.get()));
        if (tcp.ok()) return {std::move(udp), std::move(tcp)};
    }
}

void FakeUpstream::Query::SendRaw(const std::string& raw) const {
    if (tcp)
        (void)send(fd, raw.data(), raw.size(), MSG_NOSIGNAL);
    else
        (void)sendto(fd, raw.data(), raw.size(), 0, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer));
}

void FakeUpstream::Query::Reply(const std::string& message) const {
    SendRaw(tcp ? U16(message.size()) + message : message);
}

void FakeUpstream::Query::ReplyFromElsewhere(const std::string& message) const {
    const Fd other = BoundSocket(SOCK_DGRAM, 0);
    (void)sendto(other.get(), message.data(), message.size(), 0, reinterpret_cast<const sockaddr*>(&peer),
                 sizeof(peer));
}

WireAnswer FakeUpstream::Query::Answer() const {
    return {.id = id, .name = Dotted(name), .type = type, .answers = {}, .authorities = {}};
}

FakeUpstream::FakeUpstream(Script script) : script_(std::move(script)), stop_(eventfd(0, EFD_CLOEXEC)) {
    std::tie(udp_, listener_) = BoundPair();
    port_ = PortOf(udp_.get());
    thread_ = std::thread([this] { Run(); });
}

FakeUpstream::~FakeUpstream() {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
}

std::vector<FakeUpstream::Query> FakeUpstream::queries() const {
    const std::lock_guard lock(mutex_);
    return queries_;
}

void FakeUpstream::Run() {
    for (;;) {
        std::array<pollfd, 3> fds = {
            {{udp_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
        if (poll(fds.data(), fds.size(), -1) < 0) continue;
        if (fds[2].revents) return;
        if (fds[0].revents) OnUdp();
        if (fds[1].revents) OnTcp();
    }
}

void FakeUpstream::OnUdp() {
    std::array<char, 4096> buffer;
    Query query;
    socklen_t size = sizeof(query.peer);
    const ssize_t count = recvfrom(udp_.get(), buffer.data(), buffer.size(), 0,
                                   reinterpret_cast<sockaddr*>(&query.peer), &size);
    if (count < 0) return;
    query.bytes.assign(buffer.data(), count);
    query.fd = udp_.get();
    Play(std::move(query));
}

void FakeUpstream::OnTcp() {
    const Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const timeval patience{.tv_sec = 2, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    std::array<char, 4096> buffer;
    Query query;
    query.tcp = true;
    query.fd = fd.get();
    if (recv(fd.get(), buffer.data(), 2, MSG_WAITALL) != 2) return;
    const size_t size = std::min<size_t>(
        buffer.size(), (static_cast<uint8_t>(buffer[0]) << 8) | static_cast<uint8_t>(buffer[1]));
    if (recv(fd.get(), buffer.data(), size, MSG_WAITALL) != static_cast<ssize_t>(size)) return;
    query.bytes.assign(buffer.data(), size);
    Play(std::move(query));
}

void FakeUpstream::Play(Query query) {
    const ReadMessage message = ReadWire(query.bytes);
    query.id = message.id;
    query.name = message.name;
    query.type = message.type;
    {
        const std::lock_guard lock(mutex_);
        query.number = static_cast<int>(queries_.size()) + 1;
        queries_.push_back(query);
    }
    script_(query);
}

}  // namespace stockade
