// The rules compiled together, with all that finds candidates, against each looked at for each event: many rules
// over few words, so that they share texts, ends and numbers, and events with holes, of every class.
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "userspace/detect/parse.h"
#include "userspace/detect/ruleset.h"

namespace stockade::detect {
namespace {

class Generator {
  public:
    explicit Generator(uint32_t seed) : random_(seed) {}

    size_t Below(size_t n) { return random_() % n; }
    std::string Word() {
        static constexpr const char* kWords[] = {"ab", "abc", "/ab", "b/ab", "cab", "ABC", "a", "/", "\xc3\x84" "b", "k", "\xe2\x84\xaa"};
        return kWords[Below(std::size(kWords))];
    }
    std::string Text() {
        std::string text;
        for (size_t n = 1 + Below(4); n > 0; --n) text += Word();
        return text;
    }
    std::string Item() {
        static constexpr const char* kFields[] = {"Image", "CommandLine", "ParentImage", "ParentCommandLine", "sandbox.labels.team"};
        static constexpr const char* kWays[] = {"", "|endswith", "|startswith", "|contains", "|cased", "|contains|cased", "|endswith|cased"};
        const std::string field = kFields[Below(std::size(kFields))];
        switch (Below(10)) {
            case 0:
                return absl::StrCat("ProcessId", Below(3) ? "" : "|gte", ": ", Below(4));
            case 1:
                return absl::StrCat(field, "|re: '", Below(2) ? "abc?a" : "b", Below(2) ? "+" : "/?ab", "'");
            case 2:
                return absl::StrCat(field, "|exists: ", Below(2) ? "true" : "false");
            case 3:
                return absl::StrCat(field, ": '", Below(2) ? "*" : "", Word(), "*", Word(), Below(2) ? "?" : "", Below(4) ? "" : "*", "'");
            default:
                return absl::StrCat(field, kWays[Below(std::size(kWays))], ": ['", Word(), "', '", Text(), "']");
        }
    }
    std::string Rule(int number) {
        static constexpr const char* kCategories[] = {"process_creation", "process_creation", "process_creation", "library_load"};
        static constexpr const char* kConditions[] = {"a and b", "a or b", "a and not b", "not a and not b", "not (a and not b)"};
        return absl::StrCat("---\ntitle: R", number, "\nlogsource: {product: stockade, category: ",
                            kCategories[Below(std::size(kCategories))], "}\ndetection:\n  a:\n    ", Item(), "\n  b:\n    ", Item(),
                            "\n  condition: ", kConditions[Below(std::size(kConditions))], "\n");
    }
    v1::Event Event() {
        static constexpr const char* kRoles[] = {"program", "interpreter", "mapped", "odd"};
        v1::Event event;
        event.set_verdict(Below(4) ? "allow" : "deny");
        v1::Exec& exec = *event.mutable_exec();
        exec.set_role(kRoles[Below(std::size(kRoles))]);
        exec.set_path(Text());
        exec.mutable_path_detail()->set_truncated(Below(8) == 0);
        for (size_t n = Below(4); n > 0; --n) exec.add_argv(Text());
        exec.set_argv_truncated(Below(8) == 0);
        event.mutable_process()->set_pid(static_cast<uint32_t>(Below(4)));
        if (Below(2)) {
            v1::Ancestor& parent = *event.mutable_process()->add_ancestry();
            parent.set_exe(Text());
            parent.add_argv(Below(6) ? Text() : "[redacted]");
            parent.set_argv_redacted(Below(2) == 0);
        }
        if (Below(2)) (*event.mutable_sandbox()->mutable_labels())["team"] = Text();
        return event;
    }

  private:
    std::mt19937 random_;
};

TEST(FilterTest, FindsWhatLookingAtEachFinds) {
    Generator generate(23);
    uint64_t hits = 0, undecided = 0, compared = 0, fast_looked = 0, plain_looked = 0, unfiltered = 0;
    for (int round = 0; round < 40; ++round) {
        std::vector<Rule> rules;
        for (int i = 0; i < 60; ++i) {
            ParsedRules parsed = ParseRules({{"r.yaml", generate.Rule(i)}});
            if (!policy::HasErrors(parsed.diagnostics)) rules.push_back(std::move(parsed.rules.at(0)));
        }
        ASSERT_GT(rules.size(), 20u);
        const auto fast = RuleSet::Create(rules);
        const auto plain = RuleSet::Create(rules, {.prefilter = false});
        for (int n = 0; n < 200; ++n) {
            const v1::Event event = generate.Event();
            EventView one(event), two(event);
            std::vector<Hit> a, b;
            fast->Match(one, &a);
            plain->Match(two, &b);
            ASSERT_EQ(a, b) << event.ShortDebugString();
            compared += rules.size();
            hits += a.size();
            for (const Hit& hit : a) undecided += hit.truth == Truth::kUndecidable;
        }
        fast_looked += fast->counters().evaluated;
        plain_looked += plain->counters().evaluated;
        unfiltered += fast->counters().unfiltered;
    }
    std::cout << compared << " answers compared, " << hits << " of them not no, " << undecided << " undecidable; looked at "
              << fast_looked << " with the filter, " << plain_looked << " without; " << unfiltered << " events with a hole\n";
    EXPECT_GT(hits, compared / 50);
    EXPECT_GT(undecided, hits / 100);
    EXPECT_GT(unfiltered, 500u);
    EXPECT_LT(fast_looked, plain_looked * 3 / 4);
}

// Rules of another class of events are not even candidates.
TEST(FilterTest, ClassesAreApart) {
    const std::string head = "title: T\nlogsource: {product: stockade, category: ";
    const std::string tail = "}\ndetection: {s: {SandboxId: sbx_1}, condition: s}\n";
    std::vector<Rule> rules;
    std::vector<std::string> names;
    for (const std::string& name : Categories()) {
        ParsedRules parsed = ParseRules({{"r.yaml", head + name + tail}});
        ASSERT_FALSE(policy::HasErrors(parsed.diagnostics)) << ToString(parsed.diagnostics[0]);
        rules.push_back(std::move(parsed.rules.at(0)));
    }
    const auto set = RuleSet::Create(rules);
    size_t events = 0, fits = 0;
    for (const EventClass& each : EventClasses()) {
        v1::Event event;
        event.mutable_sandbox()->set_id("sbx_1");
        event.set_verdict(each.refused ? "deny" : "allow");
        const auto* field = v1::Event::descriptor()->FindFieldByNumber(each.payload);
        auto* payload = v1::Event::GetReflection()->MutableMessage(&event, field);
        const auto* word = payload->GetDescriptor()->FindFieldByName(each.payload == v1::Event::kExec ? "role" : "op");
        const bool has_word = word != nullptr && each.payload != v1::Event::kLifecycle;
        if (has_word) payload->GetReflection()->SetString(payload, word, each.word.empty() ? "another" : each.word);
        ASSERT_LT(ClassOf(event), EventClasses().size());
        EXPECT_EQ(EventClasses()[ClassOf(event)].payload, each.payload);
        EXPECT_EQ(EventClasses()[ClassOf(event)].word, each.word);
        EXPECT_EQ(EventClasses()[ClassOf(event)].refused, each.refused);
        EventView view(event);
        std::vector<Hit> hits;
        set->Match(view, &hits);
        for (size_t i = 0; i < rules.size(); ++i) {
            const bool hit = std::find(hits.begin(), hits.end(), Hit{i, Truth::kYes}) != hits.end();
            EXPECT_EQ(hit, Belongs(rules[i].source, event)) << rules[i].source.category << ": " << event.ShortDebugString();
            fits += hit;
        }
        ++events;
    }
    EXPECT_EQ(ClassOf(v1::Event()), EventClasses().size());
    EXPECT_EQ(set->counters().evaluated, fits);
    EXPECT_GT(fits, events);
}

}  // namespace
}  // namespace stockade::detect
