#include "userspace/detect/pattern.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/detect/text.h"

namespace stockade::detect {
namespace {

const std::string kCut(1, kHole);

// Written once more, as simply as it can be: all ways.
bool Matches(const std::vector<Pattern::Part>& parts, size_t part, const std::string& value, size_t at) {
    if (part == parts.size()) return at == value.size();
    switch (parts[part].piece) {
        case Pattern::Piece::kText:
            return value.compare(at, parts[part].text.size(), parts[part].text) == 0 &&
                   Matches(parts, part + 1, value, at + parts[part].text.size());
        case Pattern::Piece::kOne:
            return at < value.size() && Matches(parts, part + 1, value, at + 1);
        case Pattern::Piece::kAny:
            for (size_t to = at; to <= value.size(); ++to) {
                if (Matches(parts, part + 1, value, to)) return true;
            }
            return false;
    }
    return false;
}

// How many of the values that `value` may stand for match, and how many do not.
void Count(const Pattern& pattern, const std::string& value, int counts[2]) {
    static const auto* const fillings = [] {
        auto* all = new std::vector<std::string>{""};
        for (size_t i = 0; i < all->size() && (*all)[i].size() < 4; ++i) {
            for (const char c : {'a', 'b', 'c'}) all->push_back((*all)[i] + c);
        }
        return all;
    }();
    const size_t hole = value.find(kHole);
    if (hole == value.npos) {
        ++counts[Matches(pattern.parts(), 0, value, 0)];
        return;
    }
    for (const std::string& filling : *fillings)
        Count(pattern, absl::StrCat(value.substr(0, hole), filling, value.substr(hole + 1)), counts);
}

// Patterns of at most four characters beside stars: whatever a hole may stand for, four of its characters show it.
TEST(Pattern, AValueWithHolesIsAnsweredForAllThatItMayStandFor) {
    std::mt19937 random(7);
    const auto pick = [&](const char* from, size_t most) {
        std::string out;
        for (size_t n = random() % (most + 1); out.size() < n;) out += from[random() % std::char_traits<char>::length(from)];
        return out;
    };
    size_t answers[3] = {};
    for (int i = 0; i < 3000; ++i) {
        const Pattern pattern = ParsePattern(pick("aab*?", 4));
        std::string value = absl::StrCat(pick("ab", 3), kCut, pick("ab", 3));
        if (i % 8 == 0) absl::StrAppend(&value, kCut, pick("ab", 2));
        int counts[2] = {};
        Count(pattern, value, counts);
        const Truth truth = pattern.Match(value);
        const Truth expected = counts[1] == 0 ? Truth::kNo : counts[0] == 0 ? Truth::kYes : Truth::kUndecidable;
        // Where a `?` takes what the hole leaves over, "yes" would be true, and nobody is misled by "not known".
        const bool careful = expected == Truth::kYes && truth == Truth::kUndecidable && absl::StrContains(pattern.ToString(), '?');
        ASSERT_TRUE(truth == expected || careful) << pattern.ToString() << " of " << absl::CHexEscape(value);
        ++answers[static_cast<int>(truth)];
    }
    for (const size_t answer : answers) EXPECT_GT(answer, 100u);
}

TEST(Pattern, HolesInEveryShape) {
    const auto match = [](const char* pattern, const std::string& value) { return ParsePattern(pattern).Match(value); };
    EXPECT_EQ(match("/etc/*", "/etc/" + kCut + "x"), Truth::kYes);
    EXPECT_EQ(match("/etc/*", "/e" + kCut), Truth::kUndecidable);
    EXPECT_EQ(match("/etc/*", "/usr" + kCut), Truth::kNo);
    EXPECT_EQ(match("*.key", kCut + "/a.key"), Truth::kYes);
    EXPECT_EQ(match("*.key", "a" + kCut + "ey"), Truth::kUndecidable);
    EXPECT_EQ(match("*.key", "a.key" + kCut + "x"), Truth::kNo);
    EXPECT_EQ(match("*tok*", "a" + kCut + "token"), Truth::kYes);
    EXPECT_EQ(match("*tok*", "to" + kCut + "k"), Truth::kUndecidable);
    EXPECT_EQ(match("/bin/sh", "/bin" + kCut + "sh"), Truth::kUndecidable);
    EXPECT_EQ(match("/bin/sh", "/bin/s" + kCut + "/sh"), Truth::kNo);
    EXPECT_EQ(match("/bin/sh", kCut), Truth::kUndecidable);
}

}  // namespace
}  // namespace stockade::detect
