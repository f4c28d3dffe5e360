// Any bytes as rules, and as the values of an event: no crash, no exception; and what the compiled set answers with
// its filter is what it answers without, and what each rule answers by itself.
//
// An input is a YAML text, and behind a line of "%%%" the values: image, command line, name asked for.
#include <cstdint>
#include <cstdlib>
#include <map>

#include "absl/strings/str_split.h"
#include "userspace/detect/detector.h"
#include "userspace/detect/evaluate.h"
#include "userspace/detect/parse.h"
#include "userspace/detect/rule_tests.h"
#include "userspace/model/text.h"

namespace {

using namespace stockade;
using namespace stockade::detect;

// A fuzzer's rules with thousands of sample events would only be slow.
constexpr size_t kMaxEvents = 200;

std::string Safe(absl::string_view bytes) {
    std::string out;
    (void)model::AppendEscaped(bytes, &out);
    return out;
}

std::vector<v1::Event> Events(absl::string_view values) {
    std::vector<std::string> parts = absl::StrSplit(values, '\n');
    parts.resize(3);
    std::vector<v1::Event> events(3);
    events[0].mutable_exec()->set_role("program");
    events[0].mutable_exec()->set_path(Safe(parts[0]));
    events[0].mutable_exec()->mutable_path_detail()->set_escaped(true);
    events[0].mutable_exec()->add_argv(Safe(parts[1]));
    events[0].mutable_exec()->set_argv_escaped(true);
    events[0].mutable_exec()->set_argv_truncated(parts[1].size() % 3 == 0);
    if (parts[0].size() % 3 == 0) events[0].add_redactions();
    events[1].mutable_file()->set_op("create");
    events[1].mutable_file()->set_path(Safe(parts[0]));
    events[2].mutable_dns()->set_name(Safe(parts[2]));
    return events;
}

void MustAgree(const std::vector<Rule>& rules, const v1::Event& event, RuleSet& fast, RuleSet& plain) {
    std::vector<Hit> a, b;
    EventView one(event), two(event), three(event);
    fast.Match(one, &a);
    plain.Match(two, &b);
    if (a != b) std::abort();
    std::map<size_t, Truth> found;
    for (const Hit& hit : a) found[hit.rule] = hit.truth;
    for (size_t i = 0; i < rules.size(); ++i) {
        if (rules[i].correlation) continue;
        const Truth alone =
            Belongs(rules[i].source, event) ? Evaluate(rules[i].expr, rules[i].atoms, three) : Truth::kNo;
        if (alone != (found.contains(i) ? found[i] : Truth::kNo)) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string input(reinterpret_cast<const char*>(data), size);
    const std::pair<std::string, std::string> halves = absl::StrSplit(input, absl::MaxSplits("%%%\n", 1));
    ParsedRules parsed = ParseRules({{"fuzz.yaml", halves.first}});
    for (const Diagnostic& diagnostic : parsed.diagnostics) (void)ToString(diagnostic);
    if (policy::HasErrors(parsed.diagnostics)) return 0;
    const auto fast = RuleSet::Create(parsed.rules);
    const auto plain = RuleSet::Create(parsed.rules, {.prefilter = false});
    std::vector<v1::Event> events = Events(halves.second);
    for (const Rule& rule : parsed.rules) {
        for (const RuleTest& test : rule.tests) {
            for (const TestEvent& sample : test.events) {
                if (events.size() < kMaxEvents) events.push_back(sample.event);
            }
        }
    }
    Detector detector(parsed.rules);
    for (const v1::Event& event : events) {
        MustAgree(parsed.rules, event, *fast, *plain);
        for (const DetectedFinding& finding : detector.OnEvent(event)) (void)finding.ToProto();
    }
    return 0;
}
