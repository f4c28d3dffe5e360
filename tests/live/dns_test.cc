// The DNS meter in the kernel beside the one in user space: form, zone, charge, and what leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/dns/captures.h"
#include "tests/live/dns_world.h"
#include "tests/live/sandbox.h"
#include "userspace/dns/charge.h"
#include "userspace/dns/knowledge.h"
#include "userspace/dns/message.h"

namespace stockade::live {
namespace {

using dns::Tier;

std::string RandomLabel(std::mt19937& random, size_t len) {
    constexpr absl::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string out;
    while (out.size() < len) out.push_back(kLetters[random() % kLetters.size()]);
    return out;
}

class Dns : public ::testing::Test {
  protected:
    static void SetUpTestSuite() { world_ = DnsWorld::Create().release(); }
    static void TearDownTestSuite() { delete world_; }
    void SetUp() override { ASSERT_NE(world_, nullptr); }
    static DnsWorld* world_;
};
DnsWorld* Dns::world_ = nullptr;

// What the captures hold and what becomes of it when bytes change: the kernel's answer is the parser's.
TEST_F(Dns, OnlyTheCanonicalFormLeavesAndEachFaultIsNamed) {
    std::vector<std::string> messages;
    for (const char* folder : {"corner-cases", "tunnel-captures"}) {
        for (const std::string& file : CapturesIn(folder)) {
            const Status read = ForEachMessage(file, [&](const CapturedMessage& message) {
                if (message.bytes.size() < 1400 && messages.size() < 1500) messages.push_back(message.bytes);
            });
            ASSERT_TRUE(read.ok()) << file << ": " << read;
        }
    }
    ASSERT_GT(messages.size(), 300u);
    std::mt19937 random(1);
    const size_t captured = messages.size();
    for (size_t i = 0; i < captured; i++) {
        std::string changed = messages[i].substr(0, random() % (messages[i].size() + 1));
        for (int k = 0; k < 2 && !changed.empty(); k++) changed[random() % changed.size()] = static_cast<char>(random());
        messages.push_back(changed);
    }
    const Asked asked = world_->AskMany({.mode = SK_DNS_OBSERVE}, messages);
    ASSERT_EQ(asked.records.size(), messages.size());
    int canonical = 0;
    for (size_t i = 0; i < messages.size(); i++) {
        sk_dns_query query;
        const int fault = sk_dns_check_query(dns::MessageBytes(messages[i]), static_cast<uint32_t>(messages[i].size()),
                                             SK_DNS_ALLOW_UPPER, &query);
        ASSERT_EQ(asked.records[i].fault, fault) << i << ": " << dns::FaultName(fault);
        canonical += fault == SK_DNS_OK;
        if (fault != SK_DNS_OK) {
            EXPECT_EQ(asked.records[i].head.code, uint32_t{SK_CODE_DNS_FORM});
        }
    }
    EXPECT_GT(canonical, 100);
    EXPECT_GT(static_cast<int>(messages.size()) - canonical, 300);
}

TEST_F(Dns, WhatIsNotCanonicalIsRefused) {
    std::string query = DnsWorld::Query("www.example.com", SK_DNS_TYPE_A);
    std::string trailing = query + "x", chaos = query;
    chaos.back() = 3;
    const Asked asked = world_->Ask({}, {query, trailing, chaos, std::string(600, 'a'), "", query});
    EXPECT_EQ(asked.result.output, ".xxxx.");
    EXPECT_EQ(world_->Arrived(), 2);
}

// Zone and tier of names over the whole suffix list: the kernel's walk against SuffixList and Tiers.
TEST_F(Dns, TheZoneIsTheOneOfTheSuffixList) {
    std::mt19937 random(2);
    std::vector<std::string> suffixes;
    world_->knowledge().suffixes.ForEach([&](absl::string_view suffix, uint8_t) { suffixes.emplace_back(suffix); });
    std::sort(suffixes.begin(), suffixes.end());
    std::vector<std::string> names = {"localhost", "com", "a.com", "1.0.0.127.in-addr.arpa", "www.google.com", "x.notatld"};
    while (names.size() < 3000) {
        std::vector<std::string> labels;
        for (size_t n = random() % 4; n > 0; n--) labels.push_back(RandomLabel(random, 1 + random() % 12));
        std::string name = suffixes[random() % suffixes.size()];
        if (!labels.empty()) name = absl::StrCat(absl::StrJoin(labels, "."), ".", name);
        if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.") == name.npos) names.push_back(name);
    }
    std::vector<std::string> messages;
    for (const std::string& name : names) messages.push_back(DnsWorld::Query(name, SK_DNS_TYPE_A));
    const Asked asked = world_->AskMany({.mode = SK_DNS_OBSERVE}, messages);
    ASSERT_EQ(asked.records.size(), names.size());
    for (size_t i = 0; i < names.size(); i++) {
        const sk_dns& record = asked.records[i];
        const Tier tier = world_->knowledge().tiers.Find(names[i]).tier;
        EXPECT_EQ(static_cast<Tier>(record.tier), dns::IsReverseName(names[i]) && dns::IsCharged(tier) ? Tier::kReverse : tier) << names[i];
        if (record.limit == 0) continue;
        const dns::Zone zone = world_->knowledge().suffixes.Find(names[i]);
        const absl::string_view expected = dns::IsReverseName(names[i]) ? dns::ReverseRoot(names[i])
                                           : !zone.registered.empty()   ? zone.registered
                                                                        : zone.icann;
        EXPECT_EQ(NameAt(record, record.zone_at), expected) << names[i];
        EXPECT_EQ(record.zone_key[1] != 0, zone.icann.size() < expected.size() && !dns::IsReverseName(names[i])) << names[i];
    }
}

TEST_F(Dns, TheChargeIsTheWorstCase) {
    std::mt19937 random(3);
    std::vector<std::string> messages;
    std::vector<std::pair<std::string, uint16_t>> asked_for;
    constexpr uint16_t kTypes[] = {SK_DNS_TYPE_A, SK_DNS_TYPE_AAAA, SK_DNS_TYPE_TXT, 4711};
    for (int i = 0; i < 400; i++) {
        const std::string name = i % 3 == 2 ? asked_for[random() % asked_for.size()].first
                                            : absl::StrCat(RandomLabel(random, random() % 40 + 1), ".w", i % 7, ".charge.test");
        asked_for.emplace_back(name, kTypes[random() % 4]);
        messages.push_back(DnsWorld::Query(asked_for.back().first, asked_for.back().second));
    }
    // No budget that could end: what is looked at is the charge.
    const Asked asked = world_->Ask({.zone_budget = SK_DNS_UNLIMITED, .total_budget = SK_DNS_UNLIMITED}, messages);
    ASSERT_EQ(asked.records.size(), messages.size()) << asked.result.Describe().substr(0, 2000);
    std::set<std::pair<std::string, uint16_t>> seen;
    uint64_t last_ns = asked.epoch_ns;
    for (size_t i = 0; i < messages.size(); i++) {
        const sk_dns& record = asked.records[i];
        const auto& [name, type] = asked_for[i];
        const size_t sub = name.size() - absl::string_view("charge.test").size() - 1;
        const bool repeat = seen.count(asked_for[i]) > 0;
        const uint32_t fixed = repeat ? sk_dns_charge_repeat(static_cast<uint32_t>(seen.size()))
                                      : sk_dns_charge_new(static_cast<uint32_t>(sub), 0, type);
        seen.insert(asked_for[i]);
        // The moment is that of the verdict, a little before the record's.
        const uint32_t most = sk_dns_charge_gap(record.head.boot_ns - last_ns + 1'000'000);
        ASSERT_GE(record.charged[0], fixed + SK_DNS_CHARGE_GAP_BURST) << i << " " << name;
        ASSERT_LE(record.charged[0], fixed + most) << i << " " << name;
        last_ns = record.head.boot_ns - 1'000'000;
    }
}

TEST_F(Dns, AZoneLearnsNoMoreThanItsBudget) {
    std::mt19937 random(4);
    std::vector<std::string> messages;
    for (int i = 0; i < 60; i++) messages.push_back(DnsWorld::Query(RandomLabel(random, 30) + ".evil.test", SK_DNS_TYPE_TXT));
    messages.push_back(DnsWorld::Query("www.other.test", SK_DNS_TYPE_A));
    const Asked asked = world_->Ask({}, messages);
    const size_t passed = asked.result.output.find('x');
    ASSERT_NE(passed, asked.result.output.npos) << asked.result.output;
    EXPECT_GT(passed, 3u);
    EXPECT_EQ(asked.result.output, std::string(passed, '.') + std::string(60 - passed, 'x') + ".");
    EXPECT_EQ(world_->Arrived(), static_cast<int>(passed) + 1);
    uint64_t bits = 0;
    for (size_t i = 0; i < passed; i++) bits += asked.records[i].charged[0];
    EXPECT_LE(bits, 256u * SK_DNS_BYTE);
    EXPECT_LE(passed * 30 * 5.25, 256 * 8) << "characters that carry 5.25 bits each";
    EXPECT_EQ(asked.records[passed].head.code, uint32_t{SK_CODE_DNS_ZONE_BUDGET});
    EXPECT_EQ(asked.records[passed + 1].head.code, uint32_t{SK_CODE_DNS_ZONE_BLOCKED});
}

// Two sandboxes of one session, and a session of its own.
TEST_F(Dns, TheBudgetIsTheSessions) {
    std::vector<std::string> one, two;
    std::mt19937 random(5);
    for (int i = 0; i < 6; i++) one.push_back(DnsWorld::Query(RandomLabel(random, 30) + ".shared.test", SK_DNS_TYPE_A));
    for (int i = 0; i < 20; i++) two.push_back(DnsWorld::Query(RandomLabel(random, 30) + ".shared.test", SK_DNS_TYPE_A));
    auto budget = world_->OpenBudget({});
    ASSERT_TRUE(budget.ok()) << budget.status();
    EXPECT_EQ(world_->Ask({.budget = *budget}, one).result.output, "......");
    const std::string rest = world_->Ask({.budget = *budget}, two).result.output;
    const std::string apart = world_->Ask({}, two).result.output;
    EXPECT_EQ(std::count(apart.begin(), apart.end(), '.'), std::count(rest.begin(), rest.end(), '.') + 6) << rest << " " << apart;
}

TEST_F(Dns, AllUnrankedZonesTogetherHaveABudget) {
    std::vector<std::string> messages;
    std::mt19937 random(6);
    for (int i = 0; i < 300; i++) messages.push_back(DnsWorld::Query(absl::StrCat("a.", RandomLabel(random, 12), "x.test"), SK_DNS_TYPE_A));
    messages.push_back(DnsWorld::Query("www.google.com", SK_DNS_TYPE_A));
    const Asked asked = world_->Ask({}, messages);
    const size_t passed = asked.result.output.find('x');
    ASSERT_NE(passed, asked.result.output.npos);
    EXPECT_LE(passed * 12 * 5.2, 2048 * 8);
    EXPECT_GT(passed, 40u);
    EXPECT_EQ(asked.records[passed].head.code, uint32_t{SK_CODE_DNS_TOTAL_BUDGET});
    EXPECT_EQ(asked.result.output.back(), '.') << "a ranked zone has a budget of its own";
}

TEST_F(Dns, ARefundLetsMorePass) {
    std::mt19937 random(7);
    std::vector<std::string> messages;
    for (int i = 0; i < 20; i++) messages.push_back(DnsWorld::Query(RandomLabel(random, 30) + ".refund.test", SK_DNS_TYPE_A));
    auto budget = world_->OpenBudget({});
    ASSERT_TRUE(budget.ok()) << budget.status();
    const Asked first = world_->Ask({.budget = *budget}, {messages[0]});
    ASSERT_EQ(first.result.output, ".");
    const sk_dns& record = first.records[0];
    const Asked second = world_->Ask({.budget = *budget}, {messages[1]});
    sk_dns_refund refund{};
    refund.zone_key[0] = record.zone_key[0];
    refund.amount[0] = 100;
    refund.total = 60;
    refund.budget = record.budget;
    refund.generation = record.generation;
    EXPECT_EQ(second.records[0].spent, record.spent + second.records[0].charged[0]);
    ASSERT_TRUE(TheSensor()->RefundDns(refund).ok());
    const Asked third = world_->Ask({.budget = *budget}, {messages[2]});
    EXPECT_EQ(third.records[0].spent, second.records[0].spent - 100 + third.records[0].charged[0]);
    refund.generation++;
    EXPECT_TRUE(absl::IsNotFound(TheSensor()->RefundDns(refund)));
}

TEST_F(Dns, AnAllowlistIsOfNamesAndOfAllBelow) {
    const std::vector<std::string> names = {"pypi.org", "files.pypi.org", "a.b.wild.test", "wild.test", "exact.test", "x.exact.test"};
    std::vector<std::string> messages;
    for (const std::string& name : names) messages.push_back(DnsWorld::Query(name, SK_DNS_TYPE_A));
    const Asked asked = world_->Ask({.mode = SK_DNS_ALLOWLIST, .exact = {"pypi.org", "exact.test"}, .below = {"wild.test"}}, messages);
    EXPECT_EQ(asked.result.output, ".x.x.x");
    ASSERT_EQ(asked.records.size(), names.size());
    EXPECT_EQ(asked.records[1].head.code, uint32_t{SK_CODE_DNS_NOT_ALLOWED});
    EXPECT_EQ(NameAt(asked.records[1], 0), "files.pypi.org");
    EXPECT_EQ(world_->Ask({.mode = SK_DNS_CLOSED}, {messages[0]}).result.output, "x");
    EXPECT_EQ(world_->Ask({.bound = false}, {messages[0]}).result.output, "x");
}

TEST_F(Dns, OverIpv6TheSame) {
    std::string query = DnsWorld::Query("www.example.com", SK_DNS_TYPE_AAAA);
    EXPECT_EQ(world_->Ask({.trigger = "dns6"}, {query, query + "x"}).result.output, ".x");
}

// What the program is shown before the kernel cuts it would be judged as one message and leave as many.
TEST_F(Dns, ABatchOfDatagramsIsRefused) {
    const std::string query = DnsWorld::Query("www.example.com", SK_DNS_TYPE_A);
    const Asked asked = world_->Ask({.trigger = absl::StrCat("dns4_segments ", query.size())}, {query + query});
    EXPECT_EQ(asked.result.output, "x");
    ASSERT_EQ(asked.records.size(), 1u);
    EXPECT_EQ(asked.records[0].fault, SK_DNS_FAULT_SEGMENTS);
    EXPECT_EQ(world_->Arrived(), 0);
    EXPECT_EQ(world_->Ask({}, {query, query}).result.output, "..") << "the control: one by one";
}

// Its sender could change it between the verdict and the wire.
TEST_F(Dns, AQueryInPagesOfItsSenderIsRefused) {
    const std::string query = DnsWorld::Query("www.example.com", SK_DNS_TYPE_A);
    const Asked shared = world_->Ask({.trigger = "dns4_zerocopy"}, {query});
    EXPECT_EQ(shared.result.output, "x");
    EXPECT_EQ(world_->Arrived(), 0);
    ASSERT_EQ(shared.records.size(), 1u);
    EXPECT_EQ(shared.records[0].fault, SK_DNS_FAULT_PAGES);
    // Before 6.5 the kernel copies what comes from a pipe to such a socket.
    const Asked spliced = world_->Ask({.trigger = "dns4_spliced"}, {query});
    ASSERT_EQ(spliced.records.size(), 1u);
    EXPECT_EQ(spliced.result.output, spliced.records[0].fault == SK_DNS_FAULT_PAGES ? "x" : ".");
    EXPECT_EQ(world_->Ask({}, {query}).result.output, ".") << "the control: a copy of the kernel's own";
}

TEST_F(Dns, OptionsHideNothing) {
    const std::string query = DnsWorld::Query("www.example.com", SK_DNS_TYPE_A);
    EXPECT_EQ(world_->Ask({.trigger = "dns4_options"}, {query, query + "x"}).result.output, ".x");
    const Asked six = world_->Ask({.trigger = "dns6_options"}, {query});
    EXPECT_EQ(six.result.output, "x");
    ASSERT_EQ(six.records.size(), 1u);
    EXPECT_EQ(six.records[0].fault, SK_DNS_FAULT_EXTENSION);
}

// Only what is pinned is a resolver, and only for itself.
TEST_F(Dns, AnotherResolverIsRefused) {
    const std::string query = DnsWorld::Query("www.example.com", SK_DNS_TYPE_A);
    const Asked asked = world_->Ask({.pinned = false}, {query});
    EXPECT_EQ(asked.result.output, "x");
    EXPECT_NE(asked.result.Find(SK_CODE_SEND_NOT_ALLOWED), nullptr) << asked.result.Describe();
}

}  // namespace
}  // namespace stockade::live
