#include "tests/live/dns_world.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_split.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/dns/kernel_zones.h"
#include "userspace/dns/knowledge.h"
#include "userspace/dns/zone_hash.h"

namespace stockade::live {
namespace {

StatusOr<Fd> HearAt(const sockaddr* address, socklen_t size) {
    Fd fd(socket(address->sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.ok() || bind(fd.get(), address, size) != 0) return ErrnoStatus(errno, "hear port 53");
    const int room = 16 << 20;
    (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
    return fd;
}

}  // namespace

std::string NameAt(const sk_dns& record, size_t at) {
    std::string out;
    while (at < record.name_len) {
        const uint8_t len = record.name[at++];
        if (len == 0) return out;
        if (!out.empty()) out.push_back('.');
        out.append(reinterpret_cast<const char*>(record.name) + at, len);
        at += len;
    }
    return "?";
}

std::string DnsWorld::Query(const std::string& name, uint16_t type) {
    std::string out("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
    for (absl::string_view label : absl::StrSplit(name, '.')) {
        out.push_back(static_cast<char>(label.size()));
        out.append(label.data(), label.size());
    }
    out.push_back(0);
    out.push_back(static_cast<char>(type >> 8));
    out.push_back(static_cast<char>(type & 0xff));
    return out + std::string("\0\1", 2);
}

std::unique_ptr<DnsWorld> DnsWorld::Create() {
    auto knowledge = dns::MakeKnowledge({});
    EXPECT_TRUE(knowledge.ok()) << knowledge.status();
    if (!knowledge.ok() || !TheSensor()) return nullptr;
    std::unique_ptr<DnsWorld> world(new DnsWorld(*std::move(knowledge)));
    const Status started = world->Start();
    EXPECT_TRUE(started.ok()) << started;
    return started.ok() ? std::move(world) : nullptr;
}

Status DnsWorld::Start() {
    if (unshare(CLONE_NEWNET) != 0) return ErrnoStatus(errno, "make a network namespace");
    Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    if (ioctl(any.get(), SIOCSIFFLAGS, &request) != 0) return ErrnoStatus(errno, "bring loopback up");
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(53);
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    SK_ASSIGN_OR_RETURN(four_, HearAt(reinterpret_cast<const sockaddr*>(&four), sizeof(four)));
    sockaddr_in6 six{};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(53);
    six.sin6_addr = in6addr_loopback;
    SK_ASSIGN_OR_RETURN(six_, HearAt(reinterpret_cast<const sockaddr*>(&six), sizeof(six)));
    std::vector<kernel::DnsKnown> known;
    for (const auto& [zone, value] : dns::KernelZones(knowledge_, TheSensor()->keys())) known.push_back({zone, value});
    return TheSensor()->SetDnsKnown(known);
}

StatusOr<kernel::DnsBudgetRef> DnsWorld::OpenBudget(const struct Ask& how) {
    epoch_ns_ = BootNow();
    sk_dns_budget amounts{};
    amounts.epoch_ns = epoch_ns_;
    amounts.zone_budget = how.zone_budget;
    amounts.total_budget = how.total_budget;
    amounts.ranked_budget = 4096 * SK_DNS_BYTE;
    amounts.reverse_budget = 2048 * SK_DNS_BYTE;
    return TheSensor()->OpenDnsBudget(amounts, {});
}

Asked DnsWorld::Ask(const struct Ask& how, const std::vector<std::string>& messages) {
    Asked asked;
    kernel::DnsBinding binding;
    binding.mode = how.mode;
    binding.budget = how.budget;
    if (how.pinned) binding.servers = {{.hi = 0, .lo = INADDR_LOOPBACK}, {.hi = 0, .lo = 1}};
    const bool own = how.budget.number == 0;
    if (own) {
        auto budget = OpenBudget(how);
        EXPECT_TRUE(budget.ok()) << budget.status();
        if (budget.ok()) binding.budget = *budget;
    }
    asked.epoch_ns = epoch_ns_;
    const sk_hash_keys keys = TheSensor()->keys();
    for (const std::string& name : how.exact) {
        binding.rules.push_back({dns::ZoneHash(keys, name), {.flags = SK_DNS_RULE_EXACT, .tier = 0, .budget = 0, .pad = 0}});
    }
    for (const std::string& name : how.below) {
        binding.rules.push_back({dns::ZoneHash(keys, name), {.flags = SK_DNS_RULE_BELOW, .tier = 0, .budget = 0, .pad = 0}});
    }
    (void)Arrived();
    Sandbox sandbox(Policy{}, absl::StrSplit(how.trigger, ' '));
    EXPECT_TRUE(sandbox.ok());
    if (!sandbox.ok()) return asked;
    if (how.bound) {
        const Status bound = TheSensor()->BindDns(sandbox.ref(), binding);
        EXPECT_TRUE(bound.ok()) << bound;
    }
    sandbox.Go();
    for (const std::string& message : messages) {
        const std::string framed = {static_cast<char>(message.size() >> 8), static_cast<char>(message.size() & 0xff)};
        EXPECT_TRUE(sandbox.WriteInput(framed + message));
    }
    sandbox.CloseInput();
    asked.result = sandbox.Finish();
    for (const Record& record : asked.result.records) {
        if (record.head.kind != SK_KIND_DNS) continue;
        std::memcpy(&asked.records.emplace_back(), record.bytes.data(), sizeof(sk_dns));
    }
    std::sort(asked.records.begin(), asked.records.end(),
              [](const sk_dns& a, const sk_dns& b) { return a.head.kernel_seq < b.head.kernel_seq; });
    if (own) {
        const Status closed = TheSensor()->CloseDnsBudget(binding.budget);
        EXPECT_TRUE(closed.ok()) << closed;
    }
    return asked;
}

Asked DnsWorld::AskMany(const struct Ask& how, const std::vector<std::string>& messages) {
    Asked all;
    for (size_t at = 0; at < messages.size(); at += 90) {
        const size_t end = std::min(messages.size(), at + 90);
        const Asked asked = Ask(how, {messages.begin() + static_cast<long>(at), messages.begin() + static_cast<long>(end)});
        EXPECT_EQ(asked.records.size(), end - at) << asked.result.Describe().substr(0, 2000);
        all.records.insert(all.records.end(), asked.records.begin(), asked.records.end());
    }
    return all;
}

int DnsWorld::Arrived() {
    int count = 0;
    char bytes[2048];
    for (const Fd* fd : {&four_, &six_}) {
        while (recv(fd->get(), bytes, sizeof(bytes), 0) >= 0) count++;
    }
    return count;
}

}  // namespace stockade::live
