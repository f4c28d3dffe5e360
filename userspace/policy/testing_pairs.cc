#include "userspace/policy/testing_pairs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace stockade::policy {
namespace {

// Few and similar, of lengths around the 8-byte words of the hash and the inline names of the
// kernel (32 and 40 bytes).
const char* const kNames[] = {"a",
                              "b",
                              "ab",
                              "aa",
                              "usr",
                              "lib",
                              "bin",
                              "libabc1",
                              "libabcd1",
                              "libabcde1",
                              "python3",
                              "python3.11",
                              "site-packages-0123456789",
                              "a-name-of-thirty-one-bytes-here",
                              "a-name-of-thirty-two-bytes-here1",
                              "a-name-of-forty-bytes-which-is-not-short",
                              "a-name-that-is-much-longer-than-any-inline-storage-of-a-dentry-could-hold",
                              ".ssh",
                              "x.pem",
                              "caf\xc3\xa9",
                              "sp ace"};
const char* const kGlobs[] = {"a*",    "*b",  "lib*1",   "python3*", "?",  "??",   "a?",
                              "*.pem", "*a*", "lib?bc*", "*-*-*",    ".*", "caf*", "a-name-*-here*"};

template <size_t N>
constexpr uint32_t Count(const char* const (&)[N]) {
    return N;
}

}  // namespace

std::string PairGenerator::Name() { return kNames[Below(Count(kNames))]; }

std::string PairGenerator::GlobName() { return kGlobs[Below(Count(kGlobs))]; }

std::string PairGenerator::Pattern() {
    if (Below(60) == 0) return "/";
    if (Below(6) == 0) {
        return absl::StrCat("**/", Below(3) ? Name() : GlobName(), Below(2) ? "/**" : "");
    }
    std::string pattern;
    const uint32_t depth = 1 + Below(5);
    // Two stars in the middle multiply states, so at most one of them; at the end it is common.
    const uint32_t stars_at = Below(5) ? depth : Below(depth);
    for (uint32_t i = 0; i < depth; ++i) {
        const uint32_t form = Below(10);
        if (i == stars_at) {
            absl::StrAppend(&pattern, "/**");
        } else if (form < 6) {
            absl::StrAppend(&pattern, "/", Name());
        } else if (form < 8) {
            absl::StrAppend(&pattern, "/", GlobName());
        } else {
            absl::StrAppend(&pattern, "/*");
        }
    }
    if (Below(3) == 0) absl::StrAppend(&pattern, "/**");
    return pattern;
}

std::vector<PathRule> PairGenerator::Rules(size_t count, uint32_t layers) {
    std::vector<PathRule> rules(count);
    for (PathRule& rule : rules) {
        rule.pattern = Pattern();
        rule.layer = Below(layers);
        const uint32_t ops = 1 + Below(0x1f);
        (Below(4) ? rule.allow : rule.deny) = ops;
    }
    return rules;
}

std::string PairGenerator::NameFor(const std::string& component) {
    std::string name;
    for (size_t i = 0; i < component.size(); ++i) {
        if (component[i] == '*') {
            if (Below(2)) name += Below(2) ? "a" : Name();
        } else if (component[i] == '?') {
            name.push_back("abz1"[Below(4)]);
        } else {
            name.push_back(component[i]);
        }
    }
    return name.empty() ? "a" : name;
}

std::string PairGenerator::Path(const std::vector<PathRule>& rules) {
    std::vector<std::string> names;
    if (!rules.empty() && Below(2)) {
        const std::string& pattern = rules[Below(static_cast<uint32_t>(rules.size()))].pattern;
        for (const std::string& component :
             std::vector<std::string>(absl::StrSplit(pattern, '/', absl::SkipEmpty()))) {
            if (component == "**") {
                for (uint32_t i = Below(4); i > 0; --i) names.push_back(Name());
            } else if (Below(10)) {
                names.push_back(NameFor(component));
            } else if (Below(2)) {
                names.push_back(Name());
            }
        }
    } else {
        for (uint32_t i = Below(7); i > 0; --i) names.push_back(Name());
    }
    if (names.size() > 12) names.resize(12);
    return "/" + absl::StrJoin(names, "/");
}

ResolvedPolicy PolicyOf(std::vector<PathRule> rules, uint32_t layers) {
    ResolvedPolicy policy;
    policy.name = "random";
    policy.layers = layers;
    policy.paths = std::move(rules);
    for (int s : {SK_SECTION_EXEC, SK_SECTION_FILES, SK_SECTION_NETWORK}) policy.present[s] = true;
    policy.violation.fill(SK_VERDICT_DENY);
    policy.record.fill(SK_RECORD_VIOLATIONS);
    return policy;
}

sk_hash_keys TestKeys(uint64_t seed) {
    std::mt19937_64 random(seed);
    sk_hash_keys keys{};
    keys.k1 = random() | 1;
    keys.k2 = random() | 1;
    keys.seed = random();
    return keys;
}

}  // namespace stockade::policy
