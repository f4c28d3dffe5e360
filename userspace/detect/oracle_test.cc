// Random rules over random events: the compiled set against an evaluator that shares nothing with it but
// the meaning of Sigma. The rules go through YAML and the parser, too.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "userspace/detect/parse.h"
#include "userspace/detect/ruleset.h"

namespace stockade::detect {
namespace {

constexpr uint32_t kSeed = 20260105;
constexpr int kRounds = 150, kRulesARound = 20, kEventsARound = 40;

const char* const kTextFields[] = {"Image", "CommandLine", "ParentImage", "CurrentDirectory", "SessionId"};
using Sample = std::map<std::string, std::string>;  // field -> text; "User" -> a number

// An answer: 0 no, 1 undecidable, 2 yes.
using Ask = std::function<int(const Sample&)>;
struct Part {
    std::string yaml;  // of an item: one line; of an identifier: indented lines
    Ask ask;
};

class Generator {
  public:
    explicit Generator(uint32_t seed) : random_(seed) {}

    size_t Below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
    bool Chance(int percent) { return Below(100) < static_cast<size_t>(percent); }
    std::string Text(size_t most, const char* letters) {
        std::string out;
        for (size_t n = Below(most + 1); n > 0; --n) out += letters[Below(std::string(letters).size())];
        return out;
    }

    Sample Event() {
        Sample sample;
        for (const char* field : kTextFields) {
            if (Chance(80)) sample[field] = Text(7, "abAB/*");
            if (sample[field].empty()) sample.erase(field);
        }
        sample["User"] = absl::StrCat(Below(4));
        return sample;
    }

    Part Item() {
        if (Chance(15)) return Number();
        if (Chance(8)) return Null();
        if (Chance(8)) return Reference();
        const std::string field = kTextFields[Below(std::size(kTextFields))];
        const size_t shape = Below(4);
        const bool cased = Chance(20), all = Chance(25), negated = Chance(10);
        std::vector<std::string> values;
        for (size_t n = 1 + Below(3) + (all ? 1 : 0); n > 0; --n) values.push_back(Text(4, "abA/*?\\"));
        std::string key = field;
        static constexpr const char* kShapes[] = {"", "|contains", "|startswith", "|endswith"};
        key += kShapes[shape];
        if (cased) key += "|cased";
        if (all) key += "|all";
        if (negated) key += "|neq";
        std::vector<std::string> quoted;
        for (const std::string& value : values) quoted.push_back(absl::StrCat("'", value, "'"));
        return {absl::StrCat(key, ": [", absl::StrJoin(quoted, ", "), "]"), [=](const Sample& sample) {
                    const auto it = sample.find(field);
                    int result = all ? 2 : 0;
                    for (const std::string& value : values) {
                        const bool hit = it != sample.end() && Matches(value, shape, cased, it->second);
                        result = all ? std::min(result, hit ? 2 : 0) : std::max(result, hit ? 2 : 0);
                    }
                    return negated ? 2 - result : result;
                }};
    }

    // A rule's detection, and what it means.
    Part Detection() {
        std::vector<Part> parts;
        std::string yaml;
        const size_t identifiers = 1 + Below(4);
        for (size_t i = 0; i < identifiers; ++i) {
            parts.push_back(Identifier());
            absl::StrAppend(&yaml, "  sel_", i, ":\n", parts.back().yaml);
        }
        Part condition = Condition(parts, 3);
        // All have to be used.
        for (size_t i = 0; i < identifiers; ++i) {
            if (absl::StrContains(condition.yaml, absl::StrCat("sel_", i)) ||
                absl::StrContains(condition.yaml, "of"))
                continue;
            condition.yaml = absl::StrCat("(", condition.yaml, ") or sel_", i);
            condition.ask = [a = condition.ask, b = parts[i].ask](const Sample& s) {
                return std::max(a(s), b(s));
            };
        }
        return {absl::StrCat(yaml, "  condition: ", condition.yaml, "\n"), condition.ask};
    }

  private:
    Part Number() {
        static constexpr const char* kOps[] = {"", "|lt", "|lte", "|gt", "|gte"};
        const size_t op = Below(5);
        const int number = static_cast<int>(Below(4));
        return {absl::StrCat("User", kOps[op], ": ", number), [=](const Sample& sample) {
                    const int value = sample.at("User")[0] - '0';
                    const bool holds[] = {value == number, value<number, value <= number, value> number,
                                          value >= number};
                    return holds[op] ? 2 : 0;
                }};
    }
    Part Null() {
        const std::string field = kTextFields[Below(std::size(kTextFields))];
        if (Chance(50))
            return {absl::StrCat(field, ": null"),
                    [=](const Sample& s) { return s.contains(field) ? 0 : 2; }};
        return {absl::StrCat(field, "|exists: true"),
                [=](const Sample& s) { return s.contains(field) ? 2 : 0; }};
    }
    Part Reference() {
        const std::string field = kTextFields[Below(5)], other = kTextFields[Below(5)];
        return {absl::StrCat(field, "|fieldref: ", other), [=](const Sample& s) {
                    if (!s.contains(field) || !s.contains(other)) return 0;
                    return absl::AsciiStrToLower(s.at(field)) == absl::AsciiStrToLower(s.at(other)) ? 2 : 0;
                }};
    }

    Part Map(const char* first, const char* next) {
        std::map<std::string, Part> items;  // keys must differ
        for (size_t n = 1 + Below(3); n > 0; --n) {
            Part item = Item();
            items.emplace(item.yaml.substr(0, item.yaml.find(':')), std::move(item));
        }
        Part out;
        std::vector<Ask> asks;
        for (auto& [key, item] : items) {
            absl::StrAppend(&out.yaml, out.yaml.empty() ? first : next, item.yaml, "\n");
            asks.push_back(item.ask);
        }
        out.ask = [asks](const Sample& s) {
            int result = 2;
            for (const Ask& ask : asks) result = std::min(result, ask(s));
            return result;
        };
        return out;
    }

    Part Identifier() {
        if (Chance(70)) return Map("    ", "    ");
        Part out;
        std::vector<Ask> asks;
        for (size_t n = 1 + Below(3); n > 0; --n) {
            Part map = Map("    - ", "      ");
            out.yaml += map.yaml;
            asks.push_back(map.ask);
        }
        out.ask = [asks](const Sample& s) {
            int result = 0;
            for (const Ask& ask : asks) result = std::max(result, ask(s));
            return result;
        };
        return out;
    }

    Part Condition(const std::vector<Part>& parts, int depth) {
        const size_t kind = depth == 0 ? 0 : Below(6);
        if (kind == 1) {
            Part inner = Condition(parts, depth - 1);
            return {absl::StrCat("not (", inner.yaml, ")"),
                    [ask = inner.ask](const Sample& s) { return 2 - ask(s); }};
        }
        if (kind == 2 || kind == 3) {
            Part a = Condition(parts, depth - 1), b = Condition(parts, depth - 1);
            const bool all = kind == 2;
            // Without parentheses where precedence says the same.
            return {absl::StrCat("(", a.yaml, ")", all ? " and " : " or ", "(", b.yaml, ")"),
                    [=](const Sample& s) {
                        return all ? std::min(a.ask(s), b.ask(s)) : std::max(a.ask(s), b.ask(s));
                    }};
        }
        if (kind == 4) {
            const bool all = Chance(50);
            return {all ? "all of them" : "1 of sel_*", [=](const Sample& s) {
                        int result = all ? 2 : 0;
                        for (const Part& part : parts)
                            result = all ? std::min(result, part.ask(s)) : std::max(result, part.ask(s));
                        return result;
                    }};
        }
        const size_t which = Below(parts.size());
        return {absl::StrCat("sel_", which), parts[which].ask};
    }

    // A value as Sigma writes it, taken apart anew at each step.
    static bool Glob(absl::string_view pattern, absl::string_view text) {
        if (pattern.empty()) return text.empty();
        if (pattern[0] == '*') {
            for (size_t i = 0; i <= text.size(); ++i) {
                if (Glob(pattern.substr(1), text.substr(i))) return true;
            }
            return false;
        }
        size_t taken = 1;
        char wanted = pattern[0];
        if (wanted == '\\' && pattern.size() > 1 && absl::StrContains("*?\\", pattern[1])) {
            wanted = pattern[1];
            taken = 2;
        } else if (wanted == '?') {
            return !text.empty() && Glob(pattern.substr(1), text.substr(1));
        }
        return !text.empty() && text[0] == wanted && Glob(pattern.substr(taken), text.substr(1));
    }
    static bool Matches(std::string pattern, size_t shape, bool cased, std::string text) {
        if (!cased) {
            absl::AsciiStrToLower(&pattern);
            absl::AsciiStrToLower(&text);
        }
        // A star behind a backslash would be no star: what is anchored at one end is tried at every place instead.
        const bool front = shape == 1 || shape == 3, back = shape == 1 || shape == 2;
        for (size_t from = 0; from <= (front ? text.size() : 0); ++from) {
            for (size_t to = back ? from : text.size(); to <= text.size(); ++to) {
                if (Glob(pattern, absl::string_view(text).substr(from, to - from))) return true;
            }
        }
        return false;
    }

    std::mt19937 random_;
};

v1::Event ToEvent(const Sample& sample) {
    v1::Event event;
    event.mutable_exec()->set_role("program");
    const auto get = [&](const char* field) { return sample.contains(field) ? sample.at(field) : ""; };
    event.mutable_exec()->set_path(get("Image"));
    if (sample.contains("CommandLine")) event.mutable_exec()->add_argv(get("CommandLine"));
    event.mutable_process()->add_ancestry()->set_exe(get("ParentImage"));
    event.mutable_process()->set_cwd(get("CurrentDirectory"));
    event.mutable_process()->set_uid(static_cast<uint32_t>(sample.at("User")[0] - '0'));
    event.mutable_sandbox()->set_session(get("SessionId"));
    return event;
}

std::set<size_t> Matched(RuleSet& set, const v1::Event& event) {
    EventView view(event);
    std::vector<Hit> hits;
    set.Match(view, &hits);
    std::set<size_t> rules;
    for (const Hit& hit : hits) {
        EXPECT_EQ(hit.truth, Truth::kYes);
        rules.insert(hit.rule);
    }
    return rules;
}

TEST(OracleTest, CompiledRulesMeanWhatTheYamlSays) {
    Generator generate(kSeed);
    uint64_t compared = 0, matched = 0, evaluated = 0, all = 0;
    for (int round = 0; round < kRounds; ++round) {
        std::string yaml;
        std::vector<Ask> asks;
        std::vector<std::string> texts;
        for (int i = 0; i < kRulesARound; ++i) {
            const Part detection = generate.Detection();
            const std::string text = absl::StrCat(
                "title: R", i, "\nlogsource: {product: linux, category: process_creation}\ndetection:\n",
                detection.yaml);
            // Conditions that are always or never so are refused: the oracle has nothing to say to those.
            if (HasErrors(ParseRules({{"r.yaml", text}}).diagnostics)) {
                const std::string why = ToString(ParseRules({{"r.yaml", text}}).diagnostics[0]);
                ASSERT_TRUE(absl::StrContains(why, "can never hold") ||
                            absl::StrContains(why, "holds for every event"))
                    << why << "\n"
                    << text;
                const int expected = absl::StrContains(why, "can never hold") ? 0 : 2;
                for (int n = 0; n < kEventsARound; ++n) {
                    const Sample sample = generate.Event();
                    ASSERT_EQ(detection.ask(sample), expected) << text << why;
                }
                continue;
            }
            absl::StrAppend(&yaml, "---\n", text);
            texts.push_back(text);
            asks.push_back(detection.ask);
        }
        ParsedRules parsed = ParseRules({{"r.yaml", yaml}});
        ASSERT_FALSE(HasErrors(parsed.diagnostics)) << ToString(parsed.diagnostics[0]);
        const auto fast = RuleSet::Create(parsed.rules);
        const auto plain = RuleSet::Create(parsed.rules, {.prefilter = false});
        for (int n = 0; n < kEventsARound; ++n) {
            const Sample sample = generate.Event();
            const v1::Event event = ToEvent(sample);
            const std::set<size_t> found = Matched(*fast, event);
            ASSERT_EQ(found, Matched(*plain, event));
            for (size_t i = 0; i < asks.size(); ++i) {
                ASSERT_EQ(found.contains(i) ? 2 : 0, asks[i](sample)) << texts[i] << event.ShortDebugString();
                ++compared;
            }
            matched += found.size();
        }
        evaluated += fast->counters().evaluated;
        all += plain->counters().evaluated;
    }
    std::cout << compared << " answers compared, " << matched << " of them yes; " << evaluated
              << " rules looked at with the filter, " << all << " without\n";
    // It must not compare nothing with nothing.
    EXPECT_GT(matched, compared / 20);
    EXPECT_LT(matched, compared * 19 / 20);
    EXPECT_LT(evaluated, all);
}

}  // namespace
}  // namespace stockade::detect
