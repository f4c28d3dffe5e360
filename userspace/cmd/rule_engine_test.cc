#include "userspace/cmd/rule_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"

namespace stockade::cmd {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kSecond = 1'000'000'000;

std::string Rule(const std::string& name, const std::string& more = "") {
    return absl::StrCat("title: Rule ", name, "\nname: ", name,
                        "\nlevel: low\nlogsource: {product: linux, category: file_access}\n"
                        "detection:\n  selection: {TargetFilename|endswith: /",
                        name, "}\n  condition: selection\n", more);
}

std::string Often(const std::string& name, int count) {
    return absl::StrCat(
        Rule(name), "---\ntitle: Often\nname: often\nlevel: high\ncorrelation: {type: event_count, rules: [",
        name, "], group-by: [SandboxId], timespan: 1h, condition: {gte: ", count, "}}\n");
}

class RuleEngineTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_engine_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
    }
    void TearDown() override {
        engine_.reset();
        std::filesystem::remove_all(dir_);
    }
    void Put(const std::string& text) { std::ofstream(dir_ + "/a.yaml") << text; }
    void Make(uint64_t look_ns = 3600 * kSecond) {
        RulesConfig config;
        config.dirs = {dir_};
        engine_ = std::make_unique<RuleEngine>(RuleEngine::Options{.config = config, .look_ns = look_ns});
    }
    v1::Event FileEvent(const std::string& path, bool refused = false, const std::string& sandbox = "sbx_1") {
        v1::Event event;
        event.set_id(absl::StrCat(sandbox, ".", ++number_));
        event.set_boot_ns(BootNow());
        event.mutable_sandbox()->set_id(sandbox);
        event.set_kind("file");
        event.mutable_file()->set_op("open-read");
        event.mutable_file()->set_path(path);
        event.set_verdict(refused ? "deny" : "allow");
        event.set_code(refused ? "files.read" : "ok");
        event.set_outcome(refused ? "prevented" : "done");
        return event;
    }
    void Push(const std::string& path, bool refused = false, const std::string& sandbox = "sbx_1") {
        engine_->Push(std::make_shared<v1::Event>(FileEvent(path, refused, sandbox)));
    }
    // All that was pushed has been handled, or 30 s are over.
    RuleEngine::Taken Drain(bool with_notice = true) {
        RuleEngine::Taken all;
        const uint64_t end = BootNow() + 30 * kSecond;
        while (BootNow() < end) {
            const uint64_t target = engine_->pushed();
            RuleEngine::Taken taken = engine_->Take();
            std::move(taken.findings.begin(), taken.findings.end(), std::back_inserter(all.findings));
            std::move(taken.notices.begin(), taken.notices.end(), std::back_inserter(all.notices));
            for (const auto& [id, missed] : taken.missed) {
                all.missed[id].events += missed.events;
                all.missed[id].refused += missed.refused;
                all.missed[id].findings += missed.findings;
            }
            all.handled = taken.handled;
            if (taken.handled >= target && (!with_notice || !all.notices.empty())) return all;
            engine_->Await(target);
            pollfd fd{.fd = engine_->event_fd(), .events = POLLIN, .revents = 0};
            (void)poll(&fd, 1, 1000);  // looked at again whatever it says
        }
        ADD_FAILURE() << "the engine does not come to its end";
        return all;
    }
    RuleEngine::Notice AwaitNotice() {
        const uint64_t end = BootNow() + 30 * kSecond;
        while (BootNow() < end) {
            RuleEngine::Taken taken = engine_->Take();
            if (!taken.notices.empty()) return taken.notices.back();
            pollfd fd{.fd = engine_->event_fd(), .events = POLLIN, .revents = 0};
            (void)poll(&fd, 1, 1000);  // as above
        }
        ADD_FAILURE() << "no notice comes";
        return {};
    }
    std::string dir_;
    std::unique_ptr<RuleEngine> engine_;
    int number_ = 0;
};

TEST_F(RuleEngineTest, FindingsComeWithTheirEventAndResponse) {
    Put(Rule("bad",
             "response: {action: deny, deny: {read: TargetFilename}, throttle: 5s, once_per: session}\n"));
    Make();
    ASSERT_TRUE(engine_->Start().ok());
    Push("/x/good");
    Push("/x/bad");
    const RuleEngine::Taken taken = Drain();
    ASSERT_EQ(taken.findings.size(), 1u);
    const RuleFinding& finding = taken.findings[0];
    EXPECT_EQ(finding.event.finding().rule(), "bad");
    EXPECT_EQ(finding.event.sandbox().id(), "sbx_1");
    EXPECT_EQ(finding.event.finding().evidence(0), "sbx_1.2");
    EXPECT_EQ(finding.action, detect::ResponseAction::kDeny);
    EXPECT_EQ(finding.deny.at("read"), "/x/bad");
    EXPECT_EQ(finding.throttle_ns, 5 * kSecond);
    EXPECT_EQ(finding.once_per, "session");
    EXPECT_NE(finding.event_boot_ns, 0u);
    EXPECT_THAT(taken.missed, IsEmpty());
    EXPECT_FALSE(taken.notices.at(0).broken);
}

TEST_F(RuleEngineTest, TelemetryIsLeftOutAndRefusalsHaveTheirOwnPlaces) {
    Put(Rule("bad"));
    Make();
    // Nobody takes anything yet.
    for (size_t i = 0; i < RuleEngine::kMaxTelemetry; ++i) Push("/x/good", false, absl::StrCat("sbx_1", i % 8));
    for (int i = 0; i < 10; ++i) Push("/x/good");
    Push("/x/bad", true, "sbx_2");
    EXPECT_EQ(engine_->pushed(), RuleEngine::kMaxTelemetry + 1);
    ASSERT_TRUE(engine_->Start().ok());
    const RuleEngine::Taken taken = Drain();
    EXPECT_EQ(taken.missed.at("sbx_1").events, 10u);
    EXPECT_EQ(taken.missed.count("sbx_2"), 0u);
    ASSERT_EQ(taken.findings.size(), 1u);
    EXPECT_EQ(taken.findings[0].event.sandbox().id(), "sbx_2");
}

TEST_F(RuleEngineTest, TheFloodOfOneLeavesRoomForOthers) {
    Put(Rule("bad"));
    Make();
    for (size_t i = 0; i < RuleEngine::kMaxOfOne + 7; ++i) Push("/x/good");
    Push("/x/bad", false, "sbx_2");
    EXPECT_EQ(engine_->Waiting("sbx_1"), RuleEngine::kMaxOfOne);
    EXPECT_EQ(engine_->Waiting("sbx_2"), 1u);
    ASSERT_TRUE(engine_->Start().ok());
    const RuleEngine::Taken taken = Drain();
    EXPECT_EQ(taken.missed.at("sbx_1").events, 7u);
    ASSERT_EQ(taken.findings.size(), 1u);
    EXPECT_EQ(taken.findings[0].event.sandbox().id(), "sbx_2");
    EXPECT_EQ(engine_->Waiting("sbx_1"), 0u);
}

TEST_F(RuleEngineTest, WhoPushesWaitsOnceAndNotForEach) {
    Put(Rule("bad"));
    Make();
    for (size_t i = 0; i < RuleEngine::kMaxKept; ++i) Push("/x/good", true);
    const uint64_t before = BootNow();
    for (int i = 0; i < 1000; ++i) Push("/x/good", true);
    const uint64_t took = BootNow() - before;
    EXPECT_GE(took, RuleEngine::kMaxWaitNs);
    EXPECT_LT(took, 50 * RuleEngine::kMaxWaitNs) << "each of a thousand would be twenty seconds";
    ASSERT_TRUE(engine_->Start().ok());
    EXPECT_EQ(Drain().missed.at("sbx_1").refused, 1000u);
    Push("/x/bad", true);
    EXPECT_EQ(Drain(false).findings.size(), 1u) << "there is room again";
}

TEST_F(RuleEngineTest, AFloodIsToldByNumberAndEachSandboxForItself) {
    Put(Rule("bad"));
    Make();
    ASSERT_TRUE(engine_->Start().ok());
    for (int i = 0; i < 1000; ++i) Push("/x/bad");
    Push("/x/bad", false, "sbx_2");
    const RuleEngine::Taken taken = Drain();
    EXPECT_GE(taken.findings.size(), RuleEngine::kFindingBurst + 1);
    EXPECT_LT(taken.findings.size(), 100u);
    EXPECT_EQ(taken.findings.back().event.sandbox().id(), "sbx_2");
    EXPECT_EQ(taken.missed.at("sbx_1").findings, 1001 - taken.findings.size());
}

TEST_F(RuleEngineTest, AChangedFileIsReadAndABrokenOneIsNot) {
    Put(Rule("bad"));
    Make(20'000'000);
    ASSERT_TRUE(engine_->Start().ok());
    EXPECT_THAT(AwaitNotice().text, HasSubstr("1 rules from 1 files"));
    Put(Rule("bad") + "---\n" + Rule("worse"));
    EXPECT_THAT(AwaitNotice().text, HasSubstr("2 rules"));
    Put("title: [\n");
    const RuleEngine::Notice broken = AwaitNotice();
    EXPECT_TRUE(broken.broken);
    EXPECT_THAT(broken.text, HasSubstr("a.yaml:"));
    Push("/x/worse");
    const uint64_t end = BootNow() + 30 * kSecond;
    size_t found = 0;
    while (found == 0 && BootNow() < end) found = engine_->Take().findings.size();
    EXPECT_EQ(found, 1u) << "the rules from before go on";
}

TEST_F(RuleEngineTest, ACorrelationThatDidNotChangeRemembers) {
    Put(Often("bad", 3));
    Make(20'000'000);
    ASSERT_TRUE(engine_->Start().ok());
    Push("/x/bad");
    Push("/x/bad");
    EXPECT_THAT(Drain().findings, IsEmpty());
    std::ofstream(dir_ + "/b.yaml") << Rule("other");
    EXPECT_THAT(AwaitNotice().text, HasSubstr("from 2 files"));
    Push("/x/bad");
    const uint64_t end = BootNow() + 30 * kSecond;
    std::vector<RuleFinding> found;
    while (found.empty() && BootNow() < end) found = engine_->Take().findings;
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].event.finding().rule(), "often");
}

// So that whoever has it from an earlier agent knows it.
TEST_F(RuleEngineTest, AFindingHasTheIdOfItsEventAndRuleAndSaysWhetherItMayHaveBeenTold) {
    Put(Rule("bad"));
    std::vector<std::string> ids;
    for (int i = 0; i < 2; ++i) {
        Make();
        number_ = 0;
        const auto early = std::make_shared<v1::Event>(FileEvent("/x/bad"));  // before it began
        number_ = 0;
        ASSERT_TRUE(engine_->Start().ok());
        engine_->Push(early);
        Push("/x/bad");
        const RuleEngine::Taken taken = Drain();
        ASSERT_EQ(taken.findings.size(), 2u);
        EXPECT_TRUE(taken.findings[0].event.finding().again());
        EXPECT_FALSE(taken.findings[1].event.finding().again());
        for (const RuleFinding& finding : taken.findings) {
            EXPECT_EQ(finding.event.id(), "sbx_1.1." + finding.event.finding().hash().substr(0, 12));
            ids.push_back(finding.event.id());
        }
    }
    EXPECT_EQ(ids[0], ids[2]);
}

TEST_F(RuleEngineTest, CountersGoOnOverReloads) {
    Put(Often("bad", 3));
    Make(20'000'000);
    ASSERT_TRUE(engine_->Start().ok());
    for (int i = 0; i < 4; ++i) Push("/x/bad");
    (void)Drain();
    RuleCounters counters = engine_->counters();
    EXPECT_EQ(counters.rules, 2u);
    EXPECT_EQ(counters.events, 4u);
    EXPECT_EQ(counters.findings, 1u);
    EXPECT_EQ(counters.groups, 1u);
    EXPECT_EQ(counters.group_events, 1u);
    EXPECT_EQ(counters.loads, 1u);
    EXPECT_EQ(counters.waiting, 0u);
    Put("title: [broken\n");
    EXPECT_TRUE(AwaitNotice().broken);
    EXPECT_EQ(engine_->counters().broken_loads, 1u);
    Put(Rule("bad"));
    EXPECT_FALSE(AwaitNotice().broken);
    Push("/x/bad");
    (void)Drain(false);
    counters = engine_->counters();
    EXPECT_EQ(counters.rules, 1u);
    EXPECT_EQ(counters.events, 5u);
    EXPECT_EQ(counters.findings, 2u);
    EXPECT_EQ(counters.groups, 0u);
    EXPECT_EQ(counters.loads, 2u);
}

TEST_F(RuleEngineTest, AfterStopNothingIsTakenAndNothingHangs) {
    Put(Rule("bad"));
    Make();
    ASSERT_TRUE(engine_->Start().ok());
    engine_->Stop();
    const uint64_t before = engine_->pushed();
    for (size_t i = 0; i < RuleEngine::kMaxKept + 5; ++i) Push("/x/bad", true);
    EXPECT_EQ(engine_->pushed(), before);
}

TEST_F(RuleEngineTest, WithoutRulesNothingIsQueued) {
    Make();
    ASSERT_TRUE(engine_->Start().ok());
    EXPECT_THAT(AwaitNotice().text, HasSubstr("0 rules"));
    // The matching thread takes the set just after the notice.
    const uint64_t end = BootNow() + 30 * kSecond;
    uint64_t before = 0;
    do {
        before = engine_->pushed();
        Push("/x/bad");
    } while (engine_->pushed() != before && BootNow() < end);
    EXPECT_EQ(engine_->pushed(), before);
}

}  // namespace
}  // namespace stockade::cmd
