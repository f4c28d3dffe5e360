#include "tests/live/answer_world.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/dns/zone_hash.h"

namespace stockade::live {
namespace {

sockaddr_in Four(const std::string& text, int port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &out.sin_addr), 1) << text;
    return out;
}

sockaddr_in6 Six(const std::string& text, int port) {
    sockaddr_in6 out{};
    out.sin6_family = AF_INET6;
    out.sin6_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &out.sin6_addr), 1) << text;
    return out;
}

bool IsSix(const std::string& text) { return text.find(':') != text.npos; }

// On loopback a whole prefix is the machine's own.
Status Own(int fd, const char* name, const std::string& address, const std::string& mask) {
    for (const auto& [request, text] : {std::pair{SIOCSIFADDR, address}, std::pair{SIOCSIFNETMASK, mask}}) {
        ifreq wanted{};
        strncpy(wanted.ifr_name, name, IFNAMSIZ - 1);
        const sockaddr_in value = Four(text, 0);
        std::memcpy(&wanted.ifr_addr, &value, sizeof(value));
        if (ioctl(fd, static_cast<unsigned long>(request), &wanted) != 0)
            return ErrnoStatus(errno, absl::StrCat("set ", text, " on ", name));
    }
    return absl::OkStatus();
}

Status Own6(int fd, const std::string& address) {
    in6_ifreq wanted{};
    wanted.ifr6_ifindex = 1;  // lo
    wanted.ifr6_prefixlen = 128;
    wanted.ifr6_addr = Six(address, 0).sin6_addr;
    if (ioctl(fd, SIOCSIFADDR, &wanted) != 0)
        return ErrnoStatus(errno, absl::StrCat("set ", address, " on lo"));
    return absl::OkStatus();
}

template <typename Address>
StatusOr<Fd> Bound(int type, const Address& address) {
    Fd fd(
        socket(reinterpret_cast<const sockaddr&>(address).sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (type == SOCK_STREAM) (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (std::is_same_v<Address, sockaddr_in6>)
        (void)setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    // An IPv6 address is not there before the kernel has looked for others that have it, in a work of its own.
    const uint64_t until = BootNow() + static_cast<uint64_t>(PatienceMs()) * 1'000'000;
    while (fd.ok() && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        if (errno != EADDRNOTAVAIL || BootNow() > until) return ErrnoStatus(errno, "bind");
        (void)poll(nullptr, 0, 1);  // nothing tells of it; the deadline ends the loop
    }
    // Connections are done when the kernel has them; nobody takes them.
    if (type == SOCK_STREAM && listen(fd.get(), 4096) != 0) return ErrnoStatus(errno, "listen");
    return fd;
}

sk_dns_server ServerOf(const std::string& text) {
    sk_dns_server out{};
    if (!IsSix(text)) {
        out.lo = ntohl(Four(text, 0).sin_addr.s_addr);
        return out;
    }
    const in6_addr address = Six(text, 0).sin6_addr;
    for (int i = 0; i < 8; i++) {
        out.hi = out.hi << 8 | address.s6_addr[i];
        out.lo = out.lo << 8 | address.s6_addr[i + 8];
    }
    return out;
}

}  // namespace

StatusOr<Server> Server::At(const std::string& address, int port) {
    Server server;
    if (IsSix(address)) {
        SK_ASSIGN_OR_RETURN(server.fd_, Bound(SOCK_DGRAM, Six(address, port)));
        server.peer_size_ = sizeof(sockaddr_in6);
    } else {
        SK_ASSIGN_OR_RETURN(server.fd_, Bound(SOCK_DGRAM, Four(address, port)));
    }
    return server;
}

std::string Server::Hear() {
    char bytes[4096];
    pollfd waiting = {fd_.get(), POLLIN, 0};
    if (poll(&waiting, 1, PatienceMs()) != 1) return {};
    socklen_t size = sizeof(peer_);
    const ssize_t n =
        recvfrom(fd_.get(), bytes, sizeof(bytes), 0, reinterpret_cast<sockaddr*>(&peer_), &size);
    return {bytes, static_cast<size_t>(n > 0 ? n : 0)};
}

bool Server::Silent() {
    char byte;
    return recv(fd_.get(), &byte, 1, MSG_PEEK) < 0;
}

void Server::Say(const std::string& bytes) {
    EXPECT_EQ(sendto(fd_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&peer_),
                     peer_size_),
              static_cast<ssize_t>(bytes.size()))
        << strerror(errno);
}

Client::Client(const How& how) {
    Policy policy;
    policy.observe = how.observe;
    policy.network_section = how.network_section;
    policy.network = how.network;
    policy.loopback = how.loopback;
    for (const std::string& name : how.exact)
        policy.network.push_back(absl::StrCat("{name: \"", name, "\", ports: [443]}"));
    for (const std::string& name : how.below)
        policy.network.push_back(absl::StrCat("{name: \"*.", name, "\", ports: [443]}"));
    sk_dns_budget amounts{};
    amounts.epoch_ns = BootNow();
    amounts.zone_budget = amounts.total_budget = amounts.ranked_budget = amounts.reverse_budget =
        SK_DNS_UNLIMITED;
    auto budget = TheSensor()->OpenDnsBudget(amounts, {});
    EXPECT_TRUE(budget.ok()) << budget.status();
    if (!budget.ok()) return;
    budget_ = *budget;
    sandbox_ = std::make_unique<Sandbox>(policy, std::vector<std::string>{"dns_talk"});
    if (!sandbox_->ok()) return;
    const Status bound = Bind(how);
    EXPECT_TRUE(bound.ok()) << bound;
    sandbox_->Go();
    ok_ = bound.ok();
}

Status Client::Bind(const How& how) {
    kernel::DnsBinding binding;
    binding.mode = SK_DNS_OPEN;
    binding.answers = how.answers;
    binding.budget = budget_;
    for (const std::string& server : how.servers) binding.servers.push_back(ServerOf(server));
    const sk_hash_keys keys = TheSensor()->keys();
    for (const std::string& name : how.exact)
        binding.pins.push_back({.zone = dns::ZoneHash(keys, name), .below = false, .ports = {443}, .tls = false});
    for (const std::string& name : how.below)
        binding.pins.push_back({.zone = dns::ZoneHash(keys, name), .below = true, .ports = {443}, .tls = false});
    for (const Opens& rule : how.opens)
        binding.pins.push_back({dns::ZoneHash(keys, rule.name), rule.below, rule.ports, false});
    return TheSensor()->BindDns(sandbox_->ref(), binding);
}

Client::~Client() {
    sandbox_.reset();
    const Status closed = TheSensor()->CloseDnsBudget(budget_);
    EXPECT_TRUE(closed.ok()) << closed;
}

std::string Client::Do(const std::string& line) {
    const size_t before = sandbox_->output().size();
    EXPECT_TRUE(sandbox_->WriteInput(line + "\n"));
    size_t end = std::string::npos;
    while ((end = sandbox_->output().find('\n', before)) == std::string::npos) {
        if (!sandbox_->WaitMore(1)) return "no answer";
    }
    return sandbox_->output().substr(before, end - before);
}

std::string Client::Send(int socket, const std::string& to, int port, const std::string& message) {
    return Do(absl::StrCat("send ", socket, " ", to, " ", port, " ", absl::BytesToHexString(message)));
}

Result Client::Finish() {
    sandbox_->CloseInput();
    return sandbox_->Finish();
}

std::unique_ptr<AnswerWorld> AnswerWorld::Create() {
    if (!TheSensor()) return nullptr;
    auto world = std::make_unique<AnswerWorld>();
    const Status started = world->Start();
    EXPECT_TRUE(started.ok()) << started;
    return started.ok() ? std::move(world) : nullptr;
}

AnswerWorld* AnswerWorld::Get() {
    static std::unique_ptr<AnswerWorld> world = Create();
    return world.get();
}

Status AnswerWorld::Start() {
    if (unshare(CLONE_NEWNET) != 0) return ErrnoStatus(errno, "make a network namespace");
    Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
        any6(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq up{};
    strcpy(up.ifr_name, "lo");
    up.ifr_flags = IFF_UP;
    if (ioctl(any.get(), SIOCSIFFLAGS, &up) != 0) return ErrnoStatus(errno, "bring loopback up");
    SK_RETURN_IF_ERROR(Own(any.get(), "lo:1", "203.0.0.1", "255.0.0.0"));
    SK_RETURN_IF_ERROR(Own(any.get(), "lo:2", "10.1.0.1", "255.0.0.0"));
    SK_RETURN_IF_ERROR(Own(any.get(), "lo:3", "169.254.0.1", "255.255.0.0"));
    SK_RETURN_IF_ERROR(Own6(any6.get(), kResolver6));
    SK_RETURN_IF_ERROR(Own6(any6.get(), "2a00:53::1"));
    SK_ASSIGN_OR_RETURN(resolver, Server::At(kResolver, 53));
    SK_ASSIGN_OR_RETURN(resolver6, Server::At(kResolver6, 53));
    SK_ASSIGN_OR_RETURN(other, Server::At(kOther, 53));
    SK_ASSIGN_OR_RETURN(elsewhere, Server::At(kResolver, 5300));
    SK_ASSIGN_OR_RETURN(backend, Server::At(kBackend, kBackendPort));
    SK_ASSIGN_OR_RETURN(four_, Bound(SOCK_STREAM, Four("0.0.0.0", 443)));
    SK_ASSIGN_OR_RETURN(six_, Bound(SOCK_STREAM, Six("::", 443)));
    return absl::OkStatus();
}

std::vector<uint64_t> AnswersSince() {
    static std::vector<uint64_t> before(SK_DNS_ANSWER_COUNT);
    const auto now = TheSensor()->ReadDnsAnswers();
    EXPECT_TRUE(now.ok()) << now.status();
    std::vector<uint64_t> since(SK_DNS_ANSWER_COUNT);
    if (!now.ok()) return since;
    for (size_t i = 0; i < since.size(); i++) since[i] = (*now)[i] - before[i];
    before = *now;
    return since;
}

}  // namespace stockade::live
