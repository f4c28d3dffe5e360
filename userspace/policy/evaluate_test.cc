#include "userspace/policy/evaluate.h"

#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "userspace/policy/compile.h"
#include "userspace/policy/testing_matcher.h"
#include "userspace/policy/testing_pairs.h"

namespace stockade::policy {
namespace {

std::string Describe(const std::vector<PathRule>& rules) {
    return absl::StrJoin(rules, "\n", [](std::string* out, const PathRule& r) {
        absl::StrAppend(out, r.pattern, " allow ", r.allow, " deny ", r.deny, " layer ", r.layer);
    });
}

struct Tally {
    int sets = 0;
    int pairs = 0;
    int refused = 0;
    int nonzero = 0;
};

// Random rules, random paths, every verdict against the slow matcher.
void RunPairs(uint64_t seed, int want_pairs, size_t rules_per_set, uint32_t layers, Tally& tally) {
    PairGenerator random(seed);
    const int paths = 250;
    while (tally.pairs < want_pairs) {
        const uint32_t layers_now = 1 + random.Below(layers);
        const std::vector<PathRule> rules =
            random.Rules(1 + random.Below(static_cast<uint32_t>(rules_per_set)), layers_now);
        const sk_hash_keys keys = TestKeys(seed + tally.sets);
        const ResolvedPolicy policy = PolicyOf(rules, layers_now);
        StatusOr<CompiledPolicy> compiled = Compile(policy, keys);
        ++tally.sets;
        if (!compiled.ok()) {
            ASSERT_TRUE(absl::IsResourceExhausted(compiled.status())) << compiled.status();
            ++tally.refused;
            ASSERT_LT(tally.refused, 200) << "the generator makes too many policies that are refused";
            continue;
        }
        const PolicyView view{compiled->cells, &keys};
        for (int i = 0; i < paths; ++i, ++tally.pairs) {
            const std::string path = random.Path(rules);
            const uint32_t want = SlowVerdict(rules, layers_now, path);
            ASSERT_EQ(EvaluatePath(view, path).bits, want) << path << "\n" << Describe(rules);
            tally.nonzero += want != 0;
        }
    }
}

TEST(Evaluate, AgreesWithTheSlowMatcherOnRandomPairs) {
    Tally tally;
    RunPairs(20240101, 120000, 24, 1, tally);
    // The generator must not go blind: most paths come near a rule, and most sets compile.
    EXPECT_GT(tally.nonzero, tally.pairs / 4);
    EXPECT_LT(tally.nonzero, tally.pairs);
    EXPECT_LT(tally.refused * 4, tally.sets);
    RecordProperty("refused", tally.refused);
}

TEST(Evaluate, AgreesWithTheSlowMatcherOnLayers) {
    Tally tally;
    RunPairs(7, 30000, 12, 3, tally);
    EXPECT_GT(tally.nonzero, 100);
}

TEST(Evaluate, AgreesOnLargeSetsOfLiteralStarts) {
    PairGenerator random(99);
    std::vector<PathRule> rules;
    for (int i = 0; i < 1000; ++i) {
        PathRule rule;
        rule.pattern = absl::StrCat("/d", i % 37, "/e", i % 11, "/f", i,
                                    i % 3 == 0   ? "/**"
                                    : i % 3 == 1 ? "/*.so"
                                                 : "");
        rule.allow = 1 + random.Below(7);
        rules.push_back(rule);
    }
    const sk_hash_keys keys = TestKeys(5);
    StatusOr<CompiledPolicy> compiled = Compile(PolicyOf(rules), keys);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    for (int i = 0; i < 2000; ++i) {
        const std::string path =
            absl::StrCat("/d", i % 37, "/e", i % 11, "/f", i, i % 2 ? "/x.so" : "", i % 5 ? "" : "/y");
        ASSERT_EQ(EvaluatePath({compiled->cells, &keys}, path).bits, SlowVerdict(rules, 1, path)) << path;
    }
}

TEST(Evaluate, DeeperThanTheKernelLooksIsDenied) {
    PathRule all;
    all.pattern = "/**";
    all.allow = SK_OP_READ;
    const sk_hash_keys keys = TestKeys();
    StatusOr<CompiledPolicy> compiled = Compile(PolicyOf({all}), keys);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    std::string path;
    for (int i = 0; i + 1 < SK_PATH_SLOTS; ++i) path += "/d";
    EXPECT_TRUE(EvaluatePath({compiled->cells, &keys}, path).Allows(SK_OP_READ));
    EXPECT_FALSE(EvaluatePath({compiled->cells, &keys}, path + "/d").Allows(SK_OP_READ));
}

}  // namespace
}  // namespace stockade::policy
