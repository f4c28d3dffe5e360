#include "userspace/pipeline/kernel_numbers.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace stockade::pipeline {
namespace {

TEST(KernelNumbers, AgreesWithASetWhateverTheOrder) {
    std::mt19937 random(7);
    for (int round = 0; round < 50; ++round) {
        KernelNumbers numbers;
        std::set<uint64_t> plain;
        for (int i = 0; i < 300; ++i) {
            const uint64_t seq = 1 + random() % 200;
            EXPECT_EQ(numbers.Add(seq), plain.insert(seq).second) << seq;
        }
        uint64_t missing = 0;
        for (const auto& [first, last] : numbers.Holes()) missing += last - first + 1;
        EXPECT_EQ(missing, *plain.rbegin() - plain.size());
        for (uint64_t seq = 0; seq < 205; ++seq) EXPECT_EQ(numbers.Contains(seq), plain.count(seq) > 0) << seq;
        const auto read = KernelNumbers::FromText(numbers.ToText());
        ASSERT_TRUE(read.has_value()) << numbers.ToText();
        EXPECT_EQ(read->ToText(), numbers.ToText());
    }
}

TEST(KernelNumbers, TheLowestHoleIsClosedAtTheBound) {
    KernelNumbers numbers;
    for (uint64_t i = 0; i <= KernelNumbers::kMaxRanges; ++i) EXPECT_TRUE(numbers.Add(1 + 2 * i));
    EXPECT_FALSE(numbers.Add(2)) << "closed";
    EXPECT_TRUE(numbers.Add(4)) << "open still";
    EXPECT_TRUE(numbers.Add(0));
    EXPECT_TRUE(numbers.Add(0)) << "no number";
}

// Who adds up what explains the missing ones must not take a closed hole for records that came.
TEST(KernelNumbers, WhatIsInClosedHolesIsCountedAndOutlivesAStart) {
    KernelNumbers numbers;
    uint64_t seq = 1, missing = 0;
    for (uint64_t i = 0; i < 3 * KernelNumbers::kMaxRanges; ++i) {
        numbers.Add(seq);
        const uint64_t hole = 1 + i % 5;
        seq += 1 + hole;
        missing += hole;
    }
    numbers.Add(seq);
    const auto sum = [](const KernelNumbers& all) {
        uint64_t sum = all.closed();
        for (const auto& [first, last] : all.Holes()) sum += last - first + 1;
        return sum;
    };
    EXPECT_GT(numbers.closed(), KernelNumbers::kMaxRanges);
    EXPECT_EQ(sum(numbers), missing);
    const auto read = KernelNumbers::FromText(numbers.ToText());
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(sum(*read), missing);
}

TEST(KernelNumbers, TextOfAnotherFormIsNone) {
    for (const char* text : {"", "1", "1-", "0-3", "3-2", "1-3,3-4", "1-3,4-5", "a-b", "1-2,", "1-2-3", "+1-2", "x+1-2", "-1+1-2"})
        EXPECT_FALSE(KernelNumbers::FromText(text).has_value()) << text;
    EXPECT_EQ(KernelNumbers::FromText("-")->last(), 0u);
    EXPECT_EQ(KernelNumbers::FromText("1-3,5-9")->last(), 9u);
}

}  // namespace
}  // namespace stockade::pipeline
