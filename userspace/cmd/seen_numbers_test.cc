#include "userspace/cmd/seen_numbers.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace stockade::cmd {
namespace {

TEST(SeenNumbers, AgreesWithASet) {
    std::mt19937_64 random(7);
    SeenNumbers seen;
    std::set<uint64_t> slow;
    for (int i = 0; i < 20000; i++) {
        const uint64_t seq = 1 + random() % 2000;  // at most 1,000 ranges
        EXPECT_EQ(seen.Add(seq), slow.insert(seq).second) << seq;
    }
    EXPECT_EQ(slow.size(), 2000u);
}

TEST(SeenNumbers, WithoutANumberItIsNew) {
    SeenNumbers seen;
    EXPECT_TRUE(seen.Add(0));
    EXPECT_TRUE(seen.Add(0));
    EXPECT_TRUE(seen.Add(~uint64_t{0}));
    EXPECT_FALSE(seen.Add(~uint64_t{0}));
    EXPECT_TRUE(seen.Add(~uint64_t{0} - 1));
}

TEST(SeenNumbers, ForgetsTheLowestFirst) {
    SeenNumbers seen;
    for (uint64_t i = 0; i <= SeenNumbers::kMaxRanges; i++) EXPECT_TRUE(seen.Add(1 + 2 * i));
    EXPECT_TRUE(seen.Add(1));  // forgotten: taken again, and forgotten at once
    EXPECT_FALSE(seen.Add(3));
    EXPECT_FALSE(seen.Add(1 + 2 * SeenNumbers::kMaxRanges));
}

}  // namespace
}  // namespace stockade::cmd
