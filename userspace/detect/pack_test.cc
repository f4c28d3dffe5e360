// The shipped rules: each complete, each tested, and tested so that a change of any part of it turns its tests red.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/detect/detector.h"
#include "userspace/detect/parse.h"
#include "userspace/detect/rule_tests.h"

namespace stockade::detect {
namespace {

// What the mutation run must reach, in percent.
constexpr size_t kKilled = 95;

std::vector<policy::SourceFile> PackFiles() {
    const char* source = std::getenv("STOCKADE_SOURCE_DIR");
    std::vector<policy::SourceFile> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             absl::StrCat(source == nullptr ? "." : source, "/rules/detections"))) {
        if (entry.path().extension() != ".yaml") continue;
        StatusOr<std::string> text = ReadFile(entry.path().string(), 1 << 20);
        EXPECT_TRUE(text.ok()) << text.status();
        if (text.ok()) files.push_back({entry.path().string(), *std::move(text)});
    }
    std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return files;
}

const std::vector<Rule>& Pack() {
    static const auto* const rules = [] {
        ParsedRules parsed = ParseRules(PackFiles());
        for (const Diagnostic& diagnostic : parsed.diagnostics) ADD_FAILURE() << ToString(diagnostic);
        return new std::vector<Rule>(std::move(parsed.rules));
    }();
    return *rules;
}

TEST(PackTest, EveryRuleIsComplete) {
    Correlator correlator(Pack());
    size_t findings = 0;
    for (size_t i = 0; i < Pack().size(); ++i) {
        const Rule& rule = Pack()[i];
        SCOPED_TRACE(rule.title);
        EXPECT_EQ(rule.id.size(), 36u);
        EXPECT_FALSE(rule.name.empty());
        EXPECT_FALSE(rule.description.empty());
        EXPECT_FALSE(rule.falsepositives.empty());
        EXPECT_TRUE(std::any_of(rule.tags.begin(), rule.tags.end(),
                                [](const std::string& tag) { return absl::StartsWith(tag, "attack.t"); }));
        std::set<RuleTest::Kind> kinds;
        for (const RuleTest& test : rule.tests) kinds.insert(test.kind);
        EXPECT_TRUE(kinds.contains(RuleTest::Kind::kFires) && kinds.contains(RuleTest::Kind::kSilent));
        if (correlator.IsSilent(i)) continue;
        ++findings;
        ASSERT_TRUE(rule.response.has_value());
        EXPECT_EQ(rule.response->action, ResponseAction::kAlert);
    }
    std::cout << Pack().size() << " rules, " << findings << " of them give findings\n";
    EXPECT_GE(findings, 60u);
    for (const policy::SourceFile& file : PackFiles())
        EXPECT_TRUE(
            absl::StartsWith(file.text, "# yaml-language-server: $schema=../../schema/rule.schema.json\n"))
            << file.name;
}

TEST(PackTest, EveryTestPasses) {
    const std::vector<TestResult> results = RunTests(Pack());
    EXPECT_GT(results.size(), 2 * Pack().size());
    for (const TestResult& result : results)
        EXPECT_TRUE(result.ok) << Pack()[result.rule].title << ": " << result.name << ": " << result.why;
}

// The compiled set with its filter against each rule by itself, over the samples of all.
TEST(PackTest, TogetherTheyFindWhatEachFindsAlone) {
    const auto fast = RuleSet::Create(Pack());
    const auto plain = RuleSet::Create(Pack(), {.prefilter = false});
    size_t events = 0, matches = 0;
    for (const Rule& rule : Pack()) {
        for (const RuleTest& test : rule.tests) {
            const v1::Event* before = nullptr;
            for (const TestEvent& sample : test.events) {
                if (before != nullptr && before->SerializeAsString() == sample.event.SerializeAsString())
                    continue;
                before = &sample.event;
                std::vector<Hit> a, b;
                EventView one(sample.event), two(sample.event);
                fast->Match(one, &a);
                plain->Match(two, &b);
                ASSERT_EQ(a, b) << rule.title << ": " << sample.event.ShortDebugString();
                ++events;
                matches += a.size();
            }
        }
    }
    std::cout << events << " events, " << matches << " matches, " << fast->predicates()
              << " predicates; looked at " << fast->counters().evaluated << " rules with the filter, "
              << plain->counters().evaluated << " without\n";
    EXPECT_LT(fast->counters().evaluated, plain->counters().evaluated / 2);
}

using Change = std::function<void(Rule&)>;
struct Mutant {
    std::string what;
    Change change;
};

// Changes of one node of the expression, which `at` finds in a copy.
void MutateExpr(const Expr& expr, const std::string& name, const std::function<Expr&(Rule&)>& at,
                std::vector<Mutant>* out) {
    const std::string here = expr.name.empty() ? name : absl::StrCat(name, "/", expr.name);
    const bool list = expr.kids.size() > 1;
    if (list) {
        out->push_back({absl::StrCat(here, ": and for or"), [at](Rule& rule) {
                            Expr& node = at(rule);
                            node.kind = node.kind == Expr::Kind::kAnd ? Expr::Kind::kOr : Expr::Kind::kAnd;
                        }});
    }
    if (expr.kind == Expr::Kind::kNot)
        out->push_back({absl::StrCat(here, ": no not"), [at](Rule& rule) {
                            Expr kid = at(rule).kids[0];
                            at(rule) = std::move(kid);
                        }});
    for (size_t i = 0; i < expr.kids.size(); ++i) {
        if (list) {
            out->push_back({absl::StrCat(here, ": without part ", i), [at, i](Rule& rule) {
                                at(rule).kids.erase(at(rule).kids.begin() + static_cast<std::ptrdiff_t>(i));
                            }});
        }
        MutateExpr(
            expr.kids[i], absl::StrCat(here, "/", i),
            [at, i](Rule& rule) -> Expr& { return at(rule).kids[i]; }, out);
    }
}

// All patterns of one field at once: startswith and endswith become contains.
void MutatePatterns(const Rule& rule, std::vector<Mutant>* out) {
    std::set<const Field*> fields;
    for (const Predicate& atom : rule.atoms) {
        if (atom.op != Predicate::Op::kPattern || atom.pattern == atom.pattern.WithStars(true, true))
            continue;
        if (!fields.insert(atom.field).second) continue;
        const Field* field = atom.field;
        out->push_back({absl::StrCat("anywhere in ", field->path), [field](Rule& mutant) {
                            for (Predicate& each : mutant.atoms) {
                                if (each.field == field && each.op == Predicate::Op::kPattern)
                                    each.pattern = each.pattern.WithStars(true, true);
                            }
                        }});
    }
    for (size_t i = 0; i < rule.atoms.size(); ++i) {
        if (rule.atoms[i].op != Predicate::Op::kNumber) continue;
        out->push_back({absl::StrCat("another number for ", rule.atoms[i].written),
                        [i](Rule& mutant) { mutant.atoms[i].number += 1; }});
    }
}

void MutateCorrelation(const Correlation& correlation, std::vector<Mutant>* out) {
    for (size_t i = 0; i < correlation.conditions.size(); ++i) {
        for (int step : {-1, 1}) {
            // By one event of what is summed up, where it is a sum.
            const long double by = correlation.type == Correlation::Type::kValueSum ? 256 : 1;
            out->push_back({absl::StrCat("threshold by ", step), [i, step, by](Rule& rule) {
                                rule.correlation->conditions[i].second += step * by;
                            }});
        }
    }
    out->push_back({"ten times the time", [](Rule& rule) { rule.correlation->timespan_ns *= 10; }});
    if (correlation.type == Correlation::Type::kValueCount)
        out->push_back({"events, not values", [](Rule& rule) {
                            rule.correlation->type = Correlation::Type::kEventCount;
                            rule.correlation->fields.clear();
                        }});
    if (correlation.type == Correlation::Type::kTemporalOrdered)
        out->push_back(
            {"in any order", [](Rule& rule) { rule.correlation->type = Correlation::Type::kTemporal; }});
    if (correlation.group_by.size() > 1)
        out->push_back({"fewer groups", [](Rule& rule) { rule.correlation->group_by.resize(1); }});
}

TEST(PackTest, MutantsDie) {
    size_t made = 0, killed = 0;
    std::vector<std::string> alive;
    for (size_t i = 0; i < Pack().size(); ++i) {
        const Rule& rule = Pack()[i];
        std::vector<Mutant> mutants;
        if (rule.correlation) {
            MutateCorrelation(*rule.correlation, &mutants);
        } else {
            mutants.push_back({"not", [](Rule& mutant) {
                                   Expr negated{.kind = Expr::Kind::kNot};
                                   negated.kids.push_back(std::move(mutant.expr));
                                   mutant.expr = std::move(negated);
                               }});
            MutateExpr(rule.expr, "", [](Rule& mutant) -> Expr& { return mutant.expr; }, &mutants);
            MutatePatterns(rule, &mutants);
        }
        for (const Mutant& mutant : mutants) {
            std::vector<Rule> rules = Pack();
            mutant.change(rules[i]);
            const std::vector<TestResult> results = RunTestsOf(rules, i);
            ++made;
            const bool dead = std::any_of(results.begin(), results.end(),
                                          [](const TestResult& result) { return !result.ok; });
            killed += dead ? 1 : 0;
            if (!dead) alive.push_back(absl::StrCat(rule.title, ": ", mutant.what));
        }
    }
    std::cout << killed << " of " << made << " mutants killed\n";
    for (const std::string& each : alive) std::cout << "alive: " << each << "\n";
    EXPECT_GT(made, 500u);
    EXPECT_GE(killed * 100, made * kKilled);
}

}  // namespace
}  // namespace stockade::detect
