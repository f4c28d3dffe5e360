// What the filter passes by is what no pattern matches.
#include "userspace/decode/redact_prefilter.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/ascii.h"
#include "userspace/decode/redact.h"
#include "userspace/decode/redact_secrets.h"

namespace stockade::decode {
namespace {

RedactPrefilter FilterOf(const std::vector<std::string>& patterns) {
    RE2::Options options(RE2::Latin1);
    options.set_case_sensitive(false);
    RedactPrefilter filter;
    for (const std::string& pattern : patterns) filter.Add(pattern, options);
    filter.Compile();
    return filter;
}

TEST(RedactPrefilter, LooksForTheWordsThatAPatternNeeds) {
    const RedactPrefilter filter = FilterOf({"ticket-[0-9]+", "SK[0-9a-f]{32}", "(?:alpha|beta)=.+"});
    EXPECT_FALSE(filter.open());
    for (const char* may : {"a TICKET-7", "ticket-", "disk", "xAlpha=1", "beta="})
        EXPECT_TRUE(filter.MayMatch(may)) << may;
    for (const char* not_at_all :
         {"", "s", "k", "ticke", "/usr/lib/python3.11/adapters.py", "alpha", "4LPH4="})
        EXPECT_FALSE(filter.MayMatch(not_at_all)) << not_at_all;
}

TEST(RedactPrefilter, APatternWithoutWordsOpensIt) {
    const RedactPrefilter filter = FilterOf({"ticket-[0-9]+", "[0-9]{16}"});
    EXPECT_TRUE(filter.open());
    EXPECT_TRUE(filter.MayMatch("x"));
    EXPECT_FALSE(FilterOf({}).MayMatch("x")) << "nothing is looked for";
}

TEST(RedactPrefilter, TheDefaultPatternsAllHaveWords) {
    std::vector<std::string> patterns;
    for (const RedactPattern& pattern : DefaultPatterns()) {
        patterns.push_back(pattern.find);
        EXPECT_FALSE(FilterOf({pattern.find}).open()) << pattern.name << " " << pattern.find;
    }
    const RedactPrefilter filter = FilterOf(patterns);
    EXPECT_FALSE(filter.open());
    for (const char* usual : {"/usr/bin/python3.11", "/usr/lib/x86_64-linux-gnu/libc.so.6",
                              "/proc/self/status", "bash", "cc1plus"})
        EXPECT_FALSE(filter.MayMatch(usual)) << usual;
    for (const PlantedSecret& planted : PlantedSecrets())
        EXPECT_TRUE(filter.MayMatch(planted.text)) << planted.text;
}

// Beside one to whose patterns belongs one without words, which looks at every text whole.
TEST(RedactPrefilter, RedactsWhatIsRedactedWithoutIt) {
    const auto whole = Redactor::Create({.more = {{"open", "[0-9]\\xfe"}}});
    ASSERT_TRUE(whole.ok()) << whole.status();
    std::mt19937 random(11);
    const std::vector<PlantedSecret> planted = PlantedSecrets();
    size_t redacted = 0, left = 0;
    for (int i = 0; i < 20'000; ++i) {
        std::string text;
        for (uint32_t parts = 1 + random() % 3; parts > 0; --parts) {
            std::string part = planted[random() % planted.size()].text;
            const size_t from = random() % part.size();
            if (random() % 2) part = part.substr(from, random() % part.size());
            if (random() % 4 == 0) part = absl::AsciiStrToLower(part);
            if (random() % 4 == 0) part = absl::AsciiStrToUpper(part);
            if (random() % 4 == 0 && !part.empty())
                part[random() % part.size()] = static_cast<char>(' ' + random() % 95);
            text += part;
            text += "=/ \\:-"[random() % 6];
        }
        std::string by_filter = text, by_whole = text;
        ASSERT_EQ(Redactor::Default().RedactText(&by_filter), (*whole)->RedactText(&by_whole)) << text;
        ASSERT_EQ(by_filter, by_whole) << text;
        ++(by_filter == text ? left : redacted);
    }
    EXPECT_GT(redacted, 1000u);
    EXPECT_GT(left, 1000u);
}

}  // namespace
}  // namespace stockade::decode
