#include "userspace/detect/rule_tests.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/detect/detector.h"

namespace stockade::detect {
namespace {

// The rule and all that it refers to, in the order of the list.
std::vector<Rule> WithBases(const std::vector<Rule>& rules, size_t rule, size_t* place) {
    std::map<std::string, size_t> by_ref;
    for (size_t i = 0; i < rules.size(); ++i) {
        for (const std::string& key : {rules[i].id, rules[i].name}) {
            if (!key.empty()) by_ref.emplace(key, i);
        }
    }
    std::set<size_t> wanted;
    std::vector<size_t> open = {rule};
    while (!open.empty()) {
        const size_t at = open.back();
        open.pop_back();
        if (!wanted.insert(at).second || !rules[at].correlation) continue;
        for (const policy::Entry& ref : rules[at].correlation->rules) open.push_back(by_ref.at(ref.text));
    }
    std::vector<Rule> out;
    for (size_t i : wanted) {
        if (i == rule) *place = out.size();
        out.push_back(rules[i]);
    }
    return out;
}

struct Outcome {
    size_t findings = 0;
    size_t undecided = 0;
    std::vector<std::string> groups;
};

Outcome Play(const std::vector<Rule>& rules, size_t place, const RuleTest& test) {
    Detector detector(rules, {.prefilter = false});
    Outcome outcome;
    int64_t offset = 0, number = 0;
    for (const TestEvent& sample : test.events) {
        offset += sample.after_ns;
        v1::Event event = sample.event;
        const int64_t nanos = event.time().nanos() + offset % 1'000'000'000;
        event.mutable_time()->set_seconds(event.time().seconds() + offset / 1'000'000'000 +
                                          nanos / 1'000'000'000);
        event.mutable_time()->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
        if (event.id().empty()) event.set_id(absl::StrCat("sample.", ++number));
        for (const DetectedFinding& finding : detector.OnEvent(event)) {
            if (finding.rule != &detector.rules()[place]) continue;
            ++outcome.findings;
            outcome.groups.push_back(finding.group);
        }
        const std::vector<size_t>& undecided = detector.undecided();
        outcome.undecided += std::find(undecided.begin(), undecided.end(), place) != undecided.end() ? 1 : 0;
    }
    return outcome;
}

std::string JudgeFires(const Rule& rule, const RuleTest& test, Outcome outcome) {
    if (outcome.findings == 0)
        return outcome.undecided > 0 ? "undecidable, should fire" : "silent, should fire";
    if (test.count && outcome.findings != *test.count)
        return absl::StrCat("fired ", outcome.findings, " times, should be ", *test.count);
    if (!test.severity.empty() && test.severity != LevelName(rule.level))
        return absl::StrCat("severity ", LevelName(rule.level), ", should be ", test.severity);
    if (test.groups.empty()) return "";
    std::vector<std::string> wanted = test.groups;
    std::sort(wanted.begin(), wanted.end());
    std::sort(outcome.groups.begin(), outcome.groups.end());
    if (wanted == outcome.groups) return "";
    return absl::StrCat("groups ", absl::StrJoin(outcome.groups, " "), ", should be ",
                        absl::StrJoin(wanted, " "));
}

std::string Judge(const Rule& rule, const RuleTest& test, const Outcome& outcome) {
    switch (test.kind) {
        case RuleTest::Kind::kFires:
            return JudgeFires(rule, test, outcome);
        case RuleTest::Kind::kSilent:
            if (outcome.findings > 0) return "fired, should be silent";
            return outcome.undecided > 0 ? "undecidable, should be silent" : "";
        case RuleTest::Kind::kUndecidable:
            break;
    }
    if (outcome.findings > 0) return "fired, should be undecidable";
    return outcome.undecided == 0 ? "silent, should be undecidable" : "";
}

std::string NameOf(const RuleTest& test, size_t number) {
    static constexpr const char* kKinds[] = {"fires", "silent", "undecidable"};
    const std::string name = absl::StrCat(kKinds[static_cast<int>(test.kind)], " ", number);
    return test.name.empty() ? name : absl::StrCat(name, ": ", test.name);
}

}  // namespace

std::vector<TestResult> RunTestsOf(const std::vector<Rule>& rules, size_t rule) {
    std::vector<TestResult> results;
    if (rules[rule].tests.empty()) return results;
    size_t place = 0;
    const std::vector<Rule> bases = WithBases(rules, rule, &place);
    std::map<RuleTest::Kind, size_t> numbers;
    for (const RuleTest& test : rules[rule].tests) {
        TestResult result{
            .rule = rule, .name = NameOf(test, ++numbers[test.kind]), .ok = false, .why = "", .at = test.at};
        result.why = Judge(rules[rule], test, Play(bases, place, test));
        result.ok = result.why.empty();
        results.push_back(std::move(result));
    }
    return results;
}

std::vector<TestResult> RunTests(const std::vector<Rule>& rules) {
    std::vector<TestResult> all;
    for (size_t i = 0; i < rules.size(); ++i) {
        std::vector<TestResult> results = RunTestsOf(rules, i);
        all.insert(all.end(), std::make_move_iterator(results.begin()),
                   std::make_move_iterator(results.end()));
    }
    return all;
}

}  // namespace stockade::detect
