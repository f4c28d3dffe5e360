#include "userspace/dns/stub_cache.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace stockade::dns {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

StubAnswer Positive(uint32_t ttl_s, size_t bytes = 4) {
    return {.rcode = kStubNoError,
            .chain = {},
            .records = {{.bytes = std::string(bytes, 'x'), .ttl_s = ttl_s}},
            .soa = {}};
}

StubAnswer Negative(uint32_t ttl_s) {
    return {.rcode = kStubNoSuchName,
            .chain = {},
            .records = {},
            .soa = StubAnswer::Soa{.owner = "", .data = {.bytes = "soa", .ttl_s = ttl_s}}};
}

TEST(StubCache, AnswersAgeAndEnd) {
    StubCache cache;
    cache.Insert({"a", 1}, Positive(60), 10 * kSecond);
    EXPECT_EQ(cache.Find({"a", 1}, 10 * kSecond).age_s, 0u);
    EXPECT_EQ(cache.Find({"a", 1}, 52 * kSecond + 5).age_s, 42u);
    EXPECT_EQ(cache.Find({"a", 28}, 52 * kSecond).answer, nullptr);
    EXPECT_NE(cache.Find({"a", 1}, 70 * kSecond - 1).answer, nullptr);
    EXPECT_EQ(cache.Find({"a", 1}, 70 * kSecond).answer, nullptr);
    EXPECT_EQ(cache.size(), 0u);
}

TEST(StubCache, NegativeAnswersLiveByTheirSoa) {
    StubCache cache;
    cache.Insert({"a", 1}, Negative(60), 0);
    cache.Insert({"b", 1}, {.rcode = kStubNoSuchName, .chain = {}, .records = {}, .soa = {}}, 0);
    cache.Insert({"c", 1}, StubAnswer(), 0);  // SERVFAIL
    EXPECT_NE(cache.Find({"a", 1}, 59 * kSecond).answer, nullptr);
    EXPECT_EQ(cache.Find({"a", 1}, 60 * kSecond).answer, nullptr);
    EXPECT_EQ(cache.Find({"b", 1}, 0).answer, nullptr);
    EXPECT_EQ(cache.Find({"c", 1}, 0).answer, nullptr);
}

TEST(StubCache, TheLeastRecentlyUsedMakesRoom) {
    StubCache cache;
    for (size_t i = 0; i < kStubCacheEntries; ++i)
        EXPECT_FALSE(cache.Insert({absl::StrCat("n", i), 1}, Positive(60), 0));
    EXPECT_NE(cache.Find({"n0", 1}, 0).answer, nullptr);
    EXPECT_FALSE(cache.Insert({"n7", 1}, Positive(90), 0));  // in its own place
    EXPECT_TRUE(cache.Insert({"new", 1}, Positive(60), 0));
    EXPECT_EQ(cache.size(), kStubCacheEntries);
    EXPECT_NE(cache.Find({"n0", 1}, 0).answer, nullptr);
    EXPECT_EQ(cache.Find({"n1", 1}, 0).answer, nullptr);
}

TEST(StubCache, LargeAnswersAreNotKept) {
    StubCache cache;
    cache.Insert({"a", 1}, Positive(60, kStubCacheEntryBytes), 0);
    EXPECT_EQ(cache.size(), 0u);
}

}  // namespace
}  // namespace stockade::dns
