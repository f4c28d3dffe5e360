#include "userspace/pipeline/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "bpf/wire/policy.h"

namespace stockade::pipeline {
namespace {

v1::Event Refused(const std::string& path, const char* verdict = "deny", const char* outcome = "prevented") {
    v1::Event event;
    event.set_kind("file");
    event.mutable_sandbox()->set_id("sbx");
    event.set_code("files.read");
    event.set_verdict(verdict);
    event.set_outcome(outcome);
    event.set_lock("bpf");
    event.mutable_file()->set_path(path);
    return event;
}

std::vector<std::string> Killers(const v1::Summary& summary) {
    std::vector<std::string> objects;
    for (const v1::Refusal& refusal : summary.refusals()) {
        if (refusal.killed()) objects.push_back(refusal.object());
    }
    return objects;
}

TEST(Summary, AKillIsNeverDroppedForWhatKilledNobody) {
    SummaryTracker tracker({.max_refusals = 3});
    for (int i = 0; i < 5; ++i) tracker.Add(Refused(absl::StrCat("/harmless", i)));
    tracker.Add(Refused("/harmless2"));
    tracker.Add(Refused("/k1", "kill-process"));
    tracker.Add(Refused("/k2", "deny", "killed after effect"));
    tracker.Add(Refused("/harmless2"));  // its row is gone
    tracker.Add(Refused("/k3", "kill-sandbox", "killed after effect"));
    tracker.Add(Refused("/k4", "kill-process"));
    tracker.Add(Refused("/k1", "kill-process"));
    const v1::Summary summary = tracker.Take("sbx");
    EXPECT_THAT(Killers(summary), testing::UnorderedElementsAre("/k1", "/k2", "/k3"));
    uint64_t shown = 0;
    for (const v1::Refusal& refusal : summary.refusals()) shown += refusal.count();
    EXPECT_EQ(shown, 4u);
    EXPECT_EQ(summary.refusals_omitted(), 8u);
}

TEST(Summary, WhatIsOnlySeenOrObservedKillsNobody) {
    SummaryTracker tracker({});
    tracker.Add(Refused("/seen", "kill-process", "seen"));
    v1::Event dry = Refused("/dry", "kill-sandbox", "done");
    dry.set_dry_run(true);
    tracker.Add(dry);
    v1::Event exec = Refused("");
    exec.mutable_exec()->set_path("/bin/sh");
    exec.set_backend("lsm");
    tracker.Add(exec);
    EXPECT_TRUE(Killers(tracker.Take("sbx")).empty());
    // The same refusal where only a signal refuses an exec.
    exec.set_backend("signal");
    tracker.Add(exec);
    EXPECT_THAT(Killers(tracker.Take("sbx")), testing::ElementsAre("/bin/sh"));
}

TEST(Summary, RefusalsBeyondTheRateAreCounted) {
    SummaryTracker tracker({});
    for (int i = 0; i < 100; ++i) tracker.Add(Refused("/x"));
    v1::Event repeat = Refused("");
    repeat.clear_file();
    repeat.mutable_repeat()->set_count(30);
    tracker.Add(repeat);
    v1::Summary summary = tracker.Take("sbx");
    EXPECT_THAT(SummaryText(summary), testing::HasSubstr("and 30 more refusals of the same kind"));
    sk_state state{};
    state.violations[SK_SECTION_FILES] = 20000;
    state.suppressed = 19950;  // telemetry among them
    AddSections(state, &summary);
    EXPECT_EQ(summary.refusals_unrecorded(), 19900u);
    EXPECT_THAT(SummaryText(summary), testing::HasSubstr("and 19900 more refusals of the same kind"));
}

TEST(Summary, FindingsAreCountedByRuleWithWhatWasDone) {
    SummaryTracker tracker({.max_findings = 2});
    const auto add = [&](const char* rule, const char* severity) {
        v1::Event event;
        event.mutable_sandbox()->set_id("sbx");
        event.set_kind("finding");
        event.mutable_finding()->set_rule(rule);
        event.mutable_finding()->set_title(absl::StrCat("Title ", rule));
        event.mutable_finding()->set_severity(severity);
        tracker.Add(event);
    };
    for (const char* rule : {"a", "b", "a", "c", "a"}) add(rule, "high");
    v1::Event action;
    action.mutable_sandbox()->set_id("sbx");
    action.mutable_action()->set_action("freeze");
    action.mutable_action()->set_result("done");
    tracker.Add(action);  // by hand: of no finding
    action.mutable_action()->set_rule("b");
    tracker.Add(action);
    const v1::Summary summary = tracker.Take("sbx");
    EXPECT_EQ(SummaryText(summary),
              "finding: Title a (high, a, 3 times)\nfinding: Title b (high, b, freeze: done)\nand 1 more findings\n");
}

}  // namespace
}  // namespace stockade::pipeline
