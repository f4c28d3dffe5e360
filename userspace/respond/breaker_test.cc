#include "userspace/respond/breaker.h"

#include <gtest/gtest.h>

namespace stockade::respond {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

TEST(Breaker, LetsSoManyKillsPassPerPolicyAndWindow) {
    Breaker breaker({.kills = 2, .window_ns = 60 * kSecond});
    EXPECT_TRUE(breaker.Allow("a", 100 * kSecond));
    EXPECT_TRUE(breaker.Allow("a", 101 * kSecond));
    EXPECT_FALSE(breaker.Allow("a", 102 * kSecond));
    EXPECT_TRUE(breaker.Allow("b", 102 * kSecond)) << "another policy has its own count";
    EXPECT_TRUE(breaker.Allow("a", 161 * kSecond)) << "the first kill is out of the window";
    EXPECT_FALSE(breaker.Allow("a", 161 * kSecond));
}

TEST(Breaker, ZeroMeansNoLimit) {
    Breaker breaker({.kills = 0, .window_ns = 60 * kSecond});
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(breaker.Allow("a", kSecond));
}

}  // namespace
}  // namespace stockade::respond
