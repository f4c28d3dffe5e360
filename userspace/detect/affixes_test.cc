// The table of ends against looking at each text, on texts and values of few letters, so that many agree for long.
#include "userspace/detect/affixes.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "absl/strings/match.h"

namespace stockade::detect {
namespace {

using Found = std::multiset<std::pair<int, bool>>;

Found FindAll(const AffixTable& table, const std::string& value) {
    Found found;
    table.Find(value, [&](int each, bool whole) { found.insert({each, whole}); });
    return found;
}

std::string Letters(std::mt19937& random, size_t least) {
    static constexpr char kLetters[] = {'a', 'b', '/', '\xff', '\0'};
    std::string text;
    for (size_t n = least + random() % 6; n > 0; --n) text += kLetters[random() % std::size(kLetters)];
    return text;
}

TEST(AffixTableTest, FindsWhatLookingAtEachFinds) {
    std::mt19937 random(5);
    size_t found = 0, asked = 0;
    for (int round = 0; round < 200; ++round) {
        const bool front = round % 2 == 0;
        AffixTable table(front ? AffixTable::End::kFront : AffixTable::End::kBack);
        std::vector<std::string> texts;
        for (size_t i = 0; i < 1 + random() % 60; ++i) {
            texts.push_back(Letters(random, 1));
            table.Add(texts.back(), static_cast<int>(i));
        }
        table.Build();
        for (int n = 0; n < 50; ++n) {
            const std::string value = Letters(random, 0);
            Found expected;
            for (size_t i = 0; i < texts.size(); ++i) {
                if (front ? absl::StartsWith(value, texts[i]) : absl::EndsWith(value, texts[i]))
                    expected.insert({static_cast<int>(i), value == texts[i]});
            }
            ASSERT_EQ(FindAll(table, value), expected) << value;
            found += expected.size();
            asked += texts.size();
        }
    }
    EXPECT_GT(found, asked / 50);
    EXPECT_LT(found, asked / 2);
}

TEST(AffixTableTest, NothingInItFindsNothing) {
    AffixTable table(AffixTable::End::kBack);
    table.Build();
    EXPECT_TRUE(table.empty());
    EXPECT_TRUE(FindAll(table, "/usr/bin/bash").empty());
}

}  // namespace
}  // namespace stockade::detect
