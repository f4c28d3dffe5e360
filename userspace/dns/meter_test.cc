#include "userspace/dns/meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "userspace/dns/knowledge.h"

namespace stockade::dns {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr sk_hash_keys kKeys = {0x1234567890abcdef, 0xfedcba0987654321, 42};

Knowledge WithLists(KnowledgeTexts texts = {}) {
    texts.internal.push_back("corp.example");
    texts.granted.emplace_back("granted.example", 1024);
    return *MakeKnowledge(texts);
}

class MeterTest : public testing::Test {
  protected:
    Decision Ask(const std::string& name, uint32_t type = SK_DNS_TYPE_A) {
        const std::string lower = absl::AsciiStrToLower(name);
        names_.push_back(lower);
        Decision decision = meter_.Ask(
            {.name = names_.back(), .sent = name, .type = static_cast<uint16_t>(type), .time_ns = now_});
        return decision;
    }
    Decision Hear(const std::string& name, uint32_t ttl_s, uint32_t downlink = 0) {
        return meter_.Hear({.name = name,
                            .sent = name,
                            .type = SK_DNS_TYPE_A,
                            .time_ns = now_,
                            .ttl_s = ttl_s,
                            .downlink_bytes = downlink});
    }
    // Names of 20 random characters: 106 bits in the worst case, and by the model.
    std::string Random(int i, const std::string& zone) {
        std::string label;
        uint64_t x = 0x9e3779b97f4a7c15 * static_cast<uint64_t>(i + 1);
        for (int k = 0; k < 20; ++k, x = x * 6364136223846793005 + 1442695040888963407)
            label += "abcdefghijklmnopqrstuvwxyz234567"[x >> 59];
        return label + "." + zone;
    }
    // How many of `count` names pass.
    int Pass(const std::string& zone, int count) {
        int passed = 0;
        for (int i = 0; i < count; ++i, now_ += kSecond)
            passed += Ask(Random(i, zone)).verdict != Verdict::kDrop;
        return passed;
    }

    Knowledge knowledge_ = WithLists();
    Meter meter_{knowledge_, MeterState(kKeys, 1000 * kSecond)};
    uint64_t now_ = 1001 * kSecond;
    std::list<std::string> names_;
};

TEST_F(MeterTest, AnOrdinaryZoneIsNotTroubled) {
    for (const char* host : {"www", "api", "cdn", "static", "img1", "login", "docs", "mail"}) {
        EXPECT_EQ(Ask(absl::StrCat(host, ".shop.org")).verdict, Verdict::kAllow) << host;
        EXPECT_EQ(Ask(absl::StrCat(host, ".shop.org"), SK_DNS_TYPE_AAAA).verdict, Verdict::kAllow) << host;
        now_ += kSecond;
    }
    EXPECT_LT(Ask("www.shop.org").spent, 64 * SK_DNS_BYTE);
}

TEST_F(MeterTest, TheQueryThatWouldPassTheBudgetIsDroppedAndTheZoneStaysBlocked) {
    const int passed = Pass("evil.org", 100);
    EXPECT_GT(passed, 8);
    EXPECT_LT(passed, 20);
    const Decision after = Ask("www.evil.org");
    EXPECT_EQ(after.verdict, Verdict::kDrop);
    EXPECT_EQ(after.cause, Cause::kZoneBlocked);
    EXPECT_LE(after.spent, after.budget);
    now_ += 400 * 24 * 3600 * kSecond;
    EXPECT_EQ(Ask("www.evil.org").verdict, Verdict::kDrop);
    EXPECT_EQ(Ask("www.other.org").verdict, Verdict::kAllow);
}

TEST_F(MeterTest, ItWarnsOnceBeforeItBlocks) {
    std::vector<Cause> warnings;
    for (int i = 0; i < 30; ++i, now_ += kSecond) {
        const Decision decision = Ask(Random(i, "evil.org"));
        if (decision.verdict == Verdict::kDrop) break;
        if (decision.verdict == Verdict::kWarn) warnings.push_back(decision.cause);
    }
    EXPECT_THAT(warnings, testing::ElementsAre(Cause::kWarnZone));
}

TEST_F(MeterTest, ALongNameIsDroppedAndALargeOneWarns) {
    EXPECT_EQ(Ask(std::string(48, 'a') + "." + std::string(47, 'b') + ".evil.org").cause, Cause::kWarnName);
    EXPECT_EQ(Ask(std::string(48, 'a') + "." + std::string(48, 'b') + ".evil.org").cause, Cause::kNameLong);
    // One long name is no reason to cut the zone off.
    EXPECT_EQ(Ask("www.evil.org").verdict, Verdict::kAllow);
}

TEST_F(MeterTest, TiersHaveTheirBudgets) {
    EXPECT_EQ(Ask("www.github.com").tier, Tier::kRanked);
    EXPECT_EQ(Ask("www.github.com").budget, 4096 * SK_DNS_BYTE);
    EXPECT_EQ(Ask("a.granted.example").budget, 1024 * SK_DNS_BYTE);
    EXPECT_EQ(Ask("a.corp.example").budget, 0u);
    EXPECT_EQ(Ask("d111.cloudfront.net").tier, Tier::kProvider);
    EXPECT_EQ(Ask("a.svc.cluster.local").tier, Tier::kInternal);
    EXPECT_EQ(Pass("host.corp.example", 300), 300);
    EXPECT_GT(Pass("granted.example", 300), Pass("evil.org", 300));
}

TEST_F(MeterTest, ARankedZoneStartsAfreshEachDay) {
    EXPECT_LT(Pass("github.com", 600), 600);
    EXPECT_EQ(Ask("www.github.com").verdict, Verdict::kDrop);
    now_ += 24 * 3600 * kSecond;
    EXPECT_NE(Ask("www.github.com").verdict, Verdict::kDrop);
}

TEST_F(MeterTest, ManyZonesShareTheTotal) {
    int passed = 0;
    for (int zone = 0; zone < 100; ++zone) passed += Pass(absl::StrCat("zone", zone, ".org"), 5);
    // 500 names of 100 bits asked for; 2 KiB is 16,384 bits.
    EXPECT_LT(passed, 16384 / 100);
    EXPECT_EQ(Ask(Random(1, "fresh.org")).cause, Cause::kTotalBudget);
    EXPECT_LE(meter_.state().total, 2048 * SK_DNS_BYTE);
    EXPECT_NE(Ask("www.github.com").verdict, Verdict::kDrop);
}

TEST_F(MeterTest, CustomersOfOneProviderAreOneZoneToTheProvider) {
    int passed = 0;
    for (int i = 0; i < 200; ++i)
        passed += Ask(absl::StrCat("a.", Random(i, "duckdns.org"))).verdict != Verdict::kDrop;
    // 22 characters each, below duckdns.org.
    EXPECT_LE(passed * 100, 2048);
    EXPECT_EQ(Ask("www.fresh.duckdns.org").cause, Cause::kZoneBlocked);
}

TEST_F(MeterTest, ACachedRepeatIsFreeUntilItsTtlIsOver) {
    Ask("www.shop.org");
    Hear("www.shop.org", 60);
    const uint32_t held = Ask("www.shop.org").spent;
    const uint32_t spent = Hear("www.shop.org", 60).spent;
    EXPECT_GE(held, spent + 8 * SK_DNS_BIT);
    for (int i = 0; i < 1000; ++i, now_ += kSecond / 20) {
        ASSERT_NE(Ask("www.shop.org").verdict, Verdict::kDrop);
        ASSERT_EQ(Hear("www.shop.org", 60 - static_cast<uint32_t>(i / 20)).spent, spent);
    }
    now_ += 20 * kSecond;
    EXPECT_GE(Ask("www.shop.org").settled, 8 * SK_DNS_BIT);
    // Another type was not in that answer.
    EXPECT_GT(Ask("www.shop.org", SK_DNS_TYPE_TXT).settled, 0u);
}

TEST_F(MeterTest, AnAnswerThatOutlivesTheCacheIsCharged) {
    Ask("www.shop.org");
    Hear("www.shop.org", 60);
    now_ += 30 * kSecond;
    const uint32_t held = Ask("www.shop.org").spent;
    EXPECT_LT(Hear("www.shop.org", 30).spent, held);
    // Nothing is held any more: a second answer to one query gives nothing back.
    const uint32_t spent = Hear("www.shop.org", 30).spent;
    EXPECT_EQ(Hear("www.shop.org", 30).spent, spent);
    const uint32_t again = Ask("www.shop.org").spent;
    now_ += 20 * kSecond;
    EXPECT_GE(Hear("www.shop.org", 60).spent, spent + 8 * SK_DNS_BIT);
    EXPECT_LE(Hear("www.shop.org", 60).spent, again);
}

// A resolver that does not cache what it says it does: many repeats on their way at once.
TEST_F(MeterTest, RepeatsOnTheirWayAreChargedUntilAnswered) {
    Ask("www.evil.org");
    Hear("www.evil.org", 3600);
    int passed = 0;
    for (int i = 0; i < 1000; ++i) passed += Ask("www.evil.org").verdict != Verdict::kDrop;
    EXPECT_LE(passed, 256);
    EXPECT_LE(meter_.state().zone(2).spent, 256 * SK_DNS_BYTE);
}

TEST_F(MeterTest, AnAnswerToNobodyMakesNothingFree) {
    Hear("www.shop.org", 3600);
    EXPECT_GT(Ask("www.shop.org").settled, 0u);
}

TEST_F(MeterTest, RepeatsWithoutCacheEndAtTheBudget) {
    int passed = 0;
    for (int i = 0; i < 1000; ++i, now_ += 600 * kSecond)
        passed += Ask("a.evil.org").verdict != Verdict::kDrop;
    EXPECT_LE(passed, 256);
}

TEST_F(MeterTest, CaseIsCharged) {
    Ask("first.case.org");
    const uint32_t lower = Ask("abcdefgh.case.org").settled;
    EXPECT_GT(Ask("abcdeFgh.case.org").settled, lower);
    EXPECT_GT(Ask("abcdEfgh.case.org").settled, 8 * 6 * SK_DNS_BIT);
}

TEST_F(MeterTest, AddressesHaveABudgetOfTheirOwn) {
    int passed = 0;
    for (int i = 0; i < 1000; ++i)
        passed +=
            Ask(absl::StrCat(i % 250, ".", i / 250, ".168.192.in-addr.arpa"), SK_DNS_TYPE_PTR).verdict !=
            Verdict::kDrop;
    EXPECT_GT(passed, 300);
    EXPECT_LT(passed, 512);
    EXPECT_EQ(Ask("www.shop.org").verdict, Verdict::kAllow);
}

// What a cache of ours answers is given back as what every remembered repeat costs: a name that finds no room is
// none, and to be asked over and over must not pay.
TEST_F(MeterTest, NamesThatFindNoRoomEarnNothing) {
    const std::string letters = "abcdefghijklmnopqrstuvwxyz0123456789";
    for (size_t i = 0; i < kMaxNames + 10; ++i)
        ASSERT_NE(Ask(absl::StrCat(letters.substr(i % 36, 1), letters.substr(i / 36, 1), ".google.com")).verdict, Verdict::kDrop) << i;
    ASSERT_EQ(meter_.state().names(), kMaxNames);
    uint32_t spent = Ask("evil.test").spent, total = meter_.state().total;
    for (int i = 0; i < 50; ++i) {
        (void)Ask("evil.test");
        meter_.Forgive({.name = "evil.test", .sent = "evil.test", .type = SK_DNS_TYPE_A});
        size_t zone = 0;
        ASSERT_TRUE(meter_.state().FindZone("evil.test", &zone));
        EXPECT_GE(meter_.state().zone(zone).spent, spent);
        EXPECT_GE(meter_.state().total, total);
        spent = meter_.state().zone(zone).spent;
        total = meter_.state().total;
    }
}

TEST_F(MeterTest, ARememberedRepeatOfACacheCostsItsMomentOnly) {
    (void)Ask("a.evil.test");
    const uint32_t before = Ask("a.evil.test").spent;
    (void)Ask("a.evil.test");
    meter_.Forgive({.name = "a.evil.test", .sent = "a.evil.test", .type = SK_DNS_TYPE_A});
    size_t zone = 0;
    ASSERT_TRUE(meter_.state().FindZone("evil.test", &zone));
    EXPECT_LT(meter_.state().zone(zone).spent, before + SK_DNS_CHARGE_REPEAT);
}

TEST_F(MeterTest, AGrantIsTheBudgetAndNotOfTheTotal) {
    const auto ask = [&](int i, std::optional<uint32_t> granted) {
        const std::string name = absl::StrCat("3f9a7c0de41b", i, "77aa02ffb3c8.evil.test");
        return meter_.Ask({.name = name, .sent = name, .type = SK_DNS_TYPE_A, .time_ns = now_ += 1'000'000'000, .granted_bytes = granted});
    };
    for (int i = 0; i < 100; ++i) ASSERT_NE(ask(i, 8192).verdict, Verdict::kDrop) << i;
    EXPECT_EQ(meter_.state().total, 0u);
    const std::string again = "3f9a7c0de41b077aa02ffb3c8.evil.test";
    meter_.Forgive({.name = again, .sent = again, .type = SK_DNS_TYPE_A, .granted_bytes = 8192});
    EXPECT_EQ(meter_.state().total, 0u);
    EXPECT_EQ(ask(100, std::nullopt).verdict, Verdict::kDrop) << "far above the budget of any other";
}

TEST_F(MeterTest, DownlinkWarnsOnce) {
    Ask("a.evil.org", SK_DNS_TYPE_TXT);
    EXPECT_EQ(Hear("a.evil.org", 0, 1000).verdict, Verdict::kAllow);
    EXPECT_EQ(Hear("a.evil.org", 0, 100).cause, Cause::kWarnDownlink);
    EXPECT_EQ(Hear("a.evil.org", 0, 100).verdict, Verdict::kAllow);
}

TEST_F(MeterTest, AFloodOfZonesEvictsNobodyAndStaysSmall) {
    KnowledgeTexts texts;
    texts.budgets.total = Budgets::kUnlimited;
    const Knowledge knowledge = *MakeKnowledge(texts);
    Meter meter(knowledge, MeterState(kKeys, now_));
    const auto ask = [&](const std::string& name) {
        return meter.Ask({.name = name, .sent = name, .type = 1, .time_ns = now_}).verdict;
    };
    for (int i = 0; i < 100; ++i) (void)ask(Random(i, "evil.org"));
    int passed = 0;
    for (int i = 0; i < 100'000; ++i)
        passed += ask(absl::StrCat("w", i, ".zone", i, ".org")) != Verdict::kDrop;
    EXPECT_LT(passed, 400);  // those with a record, and what one overflow budget holds
    EXPECT_LE(meter.state().memory_bytes(), kMaxStateBytes);
    EXPECT_LE(meter.state().Save().size(), kMaxStateBytes);
    EXPECT_EQ(ask("www.evil.org"), Verdict::kDrop);
    EXPECT_EQ(ask("www.another.org"), Verdict::kDrop);
}

TEST_F(MeterTest, StateSurvives) {
    for (int i = 0; i < 5; ++i, now_ += kSecond) Ask(Random(i, "evil.org"));
    Ask("www.shop.org");
    Hear("www.shop.org", 600);
    const std::string saved = meter_.state().Save();
    Meter second(knowledge_, *MeterState::Restore(saved));
    EXPECT_EQ(second.state().Save(), saved);
    for (int i = 0; i < 40; ++i, now_ += kSecond) {
        const std::string name = i % 5 == 0 ? "www.shop.org" : Random(i, "evil.org");
        const Query query = {.name = name, .sent = name, .type = 1, .time_ns = now_};
        const Decision a = meter_.Ask(query), b = second.Ask(query);
        EXPECT_EQ(a.verdict, b.verdict);
        EXPECT_EQ(a.spent, b.spent);
    }
}

TEST_F(MeterTest, BrokenStateIsRefused) {
    for (int i = 0; i < 5; ++i) Ask(Random(i, "evil.org"));
    const std::string saved = meter_.state().Save();
    EXPECT_THAT(MeterState::Restore("").status().message(), HasSubstr("shorter"));
    EXPECT_THAT(MeterState::Restore("x" + saved.substr(1)).status().message(), HasSubstr("not one"));
    EXPECT_THAT(MeterState::Restore(saved + "x").status().message(), HasSubstr("size"));
    for (size_t i = 8; i < saved.size(); ++i) {
        std::string broken = saved;
        broken[i] ^= 4;
        EXPECT_FALSE(MeterState::Restore(broken).ok()) << i;
    }
}

TEST(Knowledge, BudgetsAreReadAndWrongOnesNamed) {
    EXPECT_EQ(*ParseBudget("4KiB"), 4096u);
    EXPECT_EQ(*ParseBudget("256"), 256u);
    EXPECT_EQ(*ParseBudget("none"), Budgets::kUnlimited);
    for (const char* bad : {"", "KiB", "-1", "2GiB", "1e9", "99999999999", "4 KiB"})
        EXPECT_FALSE(ParseBudget(bad).ok()) << bad;
    Budgets budgets;
    EXPECT_TRUE(ParseBudgets("zone=128B,total=none", &budgets).ok());
    EXPECT_EQ(budgets.zone, 128u);
    EXPECT_EQ(budgets.warn_zone, 64u);
    EXPECT_THAT(ParseBudgets("zones=1", &budgets).message(), HasSubstr("zones=1"));
    KnowledgeTexts texts;
    texts.ranked = "a.org\nb c\n";
    EXPECT_THAT(MakeKnowledge(texts).status().message(), HasSubstr("line 2"));
}

}  // namespace
}  // namespace stockade::dns
