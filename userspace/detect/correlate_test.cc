// Correlations over made-up times: what fires, what does not, and that state stays bounded.
#include "userspace/detect/correlate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/detect/detector.h"
#include "userspace/detect/parse.h"

namespace stockade::detect {
namespace {

using testing::ElementsAre;

const char* const kBases =
    "title: A\nname: a\nlogsource: {product: linux, category: network_connection}\ndetection: {s: "
    "{DestinationPort: 1}, condition: s}\n---\n"
    "title: B\nname: b\nlogsource: {product: linux, category: network_connection}\ndetection: {s: "
    "{DestinationPort: 2}, condition: s}\n---\n"
    "title: Any\nname: any\nlogsource: {product: linux, category: network_connection}\ndetection: {s: "
    "{net.op: connect}, condition: s}\n---\n";

class CorrelateTest : public testing::Test {
  protected:
    void Load(const std::string& correlations) {
        ParsedRules parsed = ParseRules({{"r.yaml", kBases + correlations}});
        for (const Diagnostic& diagnostic : parsed.diagnostics)
            ASSERT_EQ(diagnostic.severity, policy::Severity::kWarning) << ToString(diagnostic);
        auto next = std::make_unique<Detector>(std::move(parsed.rules));
        if (detector_ != nullptr) next->Adopt(*detector_);
        detector_ = std::move(next);
    }
    void LoadOne(const std::string& body) { Load("title: C\nname: c\ncorrelation:\n" + body); }

    // Findings as "title group".
    std::vector<std::string> Send(int64_t second, uint32_t port, const std::string& address = "10.0.0.1",
                                  const std::string& sandbox = "x") {
        v1::Event event;
        event.set_id(absl::StrCat("e", ++sent_));
        event.mutable_time()->set_seconds(second);
        event.mutable_sandbox()->set_id(sandbox);
        event.mutable_net()->set_op("connect");
        event.mutable_net()->set_address(address);
        event.mutable_net()->set_port(port);
        std::vector<std::string> out;
        for (const DetectedFinding& finding : detector_->OnEvent(event)) {
            // Rules that no correlation names are findings of their own, and not the matter here.
            if (!finding.rule->correlation && finding.rule->name != singles_) continue;
            out.push_back(absl::StrCat(finding.rule->title, " ", finding.group));
            last_ = finding.ToProto();
        }
        return out;
    }
    // How many findings a run of events gives.
    size_t Count(int events, int64_t from, int64_t step, uint32_t port) {
        size_t count = 0;
        for (int i = 0; i < events; ++i) count += Send(from + i * step, port).size();
        return count;
    }

    std::unique_ptr<Detector> detector_;
    v1::Finding last_;
    std::string singles_;
    int sent_ = 0;
};

TEST_F(CorrelateTest, EventCountInATime) {
    LoadOne("  type: event_count\n  rules: [a]\n  timespan: 10s\n  condition: {gte: 3}\n");
    EXPECT_EQ(Count(2, 0, 1, 1), 0u);
    EXPECT_THAT(Send(10, 1), ElementsAre("C x"));
    EXPECT_THAT(last_.evidence(), ElementsAre("e1", "e2", "e3"));
    EXPECT_EQ(last_.detail(), "3 in 10 s, group x");
    EXPECT_EQ(last_.hash().size(), 64u);
    // It starts anew, and what is too old does not count.
    EXPECT_EQ(Count(2, 11, 1, 1), 0u);
    EXPECT_EQ(Count(2, 30, 1, 1), 0u);
    EXPECT_EQ(Count(1, 41, 1, 1), 0u);
    EXPECT_EQ(Count(10, 100, 6, 1), 0u);
}

TEST_F(CorrelateTest, GroupsAreApart) {
    LoadOne("  type: event_count\n  rules: [a]\n  timespan: 10s\n  condition: {gte: 2}\n");
    EXPECT_TRUE(Send(0, 1, "10.0.0.1", "x").empty());
    EXPECT_TRUE(Send(0, 1, "10.0.0.1", "y").empty());
    EXPECT_THAT(Send(1, 1, "10.0.0.1", "y"), ElementsAre("C y"));
    LoadOne(
        "  type: event_count\n  rules: [a]\n  group-by: [SandboxId, DestinationIp]\n  timespan: 10s\n  "
        "condition: {gte: 2}\n");
    EXPECT_TRUE(Send(0, 1, "10.0.0.1").empty());
    EXPECT_TRUE(Send(0, 1, "10.0.0.2").empty());
    EXPECT_THAT(Send(0, 1, "10.0.0.2"), ElementsAre("C x,10.0.0.2"));
}

TEST_F(CorrelateTest, ValueCountIsOfDistinctValues) {
    LoadOne(
        "  type: value_count\n  rules: [any]\n  timespan: 10s\n  condition: {field: DestinationIp, gte: "
        "3}\n");
    EXPECT_EQ(Count(10, 0, 1, 7), 0u);
    EXPECT_TRUE(Send(10, 7, "10.0.0.2").empty());
    EXPECT_THAT(Send(11, 7, "10.0.0.3"), ElementsAre("C x"));
    // The distinct ones must be within the time.
    EXPECT_TRUE(Send(20, 7, "10.0.0.1").empty());
    EXPECT_TRUE(Send(29, 7, "10.0.0.2").empty());
    EXPECT_TRUE(Send(31, 7, "10.0.0.3").empty());
    EXPECT_THAT(Send(32, 7, "10.0.0.4"), ElementsAre("C x"));
}

TEST_F(CorrelateTest, TemporalInAnyOrderAndOrdered) {
    LoadOne("  type: temporal\n  rules: [a, b]\n  timespan: 10s\n");
    EXPECT_TRUE(Send(0, 2).empty());
    EXPECT_TRUE(Send(1, 2).empty());
    EXPECT_THAT(Send(2, 1), ElementsAre("C x"));
    LoadOne("  type: temporal_ordered\n  rules: [a, b]\n  timespan: 10s\n");
    EXPECT_TRUE(Send(0, 2).empty());
    EXPECT_TRUE(Send(1, 1).empty());
    EXPECT_THAT(Send(2, 2), ElementsAre("C x"));
    EXPECT_TRUE(Send(20, 1).empty());
    EXPECT_TRUE(Send(31, 2).empty());
    // By the time of the events, also where they come late.
    EXPECT_THAT(Send(30, 1), ElementsAre("C x"));
}

TEST_F(CorrelateTest, SumsAveragesAndPercentiles) {
    LoadOne(
        "  type: value_sum\n  rules: [any]\n  timespan: 10s\n  condition: {field: DestinationPort, gte: "
        "100}\n");
    EXPECT_TRUE(Send(0, 60).empty());
    EXPECT_TRUE(Send(20, 60).empty());
    EXPECT_FALSE(Send(21, 40).empty());
    LoadOne(
        "  type: value_avg\n  rules: [any]\n  timespan: 10s\n  condition: {field: DestinationPort, gt: "
        "50}\n");
    EXPECT_TRUE(Send(0, 10).empty());
    EXPECT_TRUE(Send(1, 60).empty());
    EXPECT_FALSE(Send(2, 90).empty());
    LoadOne(
        "  type: value_percentile\n  rules: [any]\n  timespan: 10s\n  condition: {field: DestinationPort, "
        "percentile: 50, gte: 20}\n");
    EXPECT_TRUE(Send(0, 10).empty());
    EXPECT_TRUE(Send(1, 90).empty());
    EXPECT_FALSE(Send(2, 20).empty());
}

TEST_F(CorrelateTest, ChainsAndAliasesAndGenerate) {
    Load(
        "title: Many\nname: many\ncorrelation: {type: event_count, rules: [a], timespan: 10s, condition: "
        "{gte: 3}}\n---\n"
        "title: Then\ncorrelation:\n  type: temporal_ordered\n  rules: [many, b]\n  group-by: [who]\n  "
        "timespan: 1m\n"
        "  aliases: {who: {many: DestinationIp, b: DestinationIp}}\n");
    EXPECT_EQ(Count(3, 0, 1, 1), 0u);
    EXPECT_TRUE(Send(4, 2, "10.0.0.9").empty());
    EXPECT_THAT(Send(5, 2), ElementsAre("Then 10.0.0.1"));
    LoadOne("  type: event_count\n  rules: [a]\n  timespan: 10s\n  generate: true\n  condition: {gte: 2}\n");
    singles_ = "a";
    EXPECT_THAT(Send(0, 1), ElementsAre("A "));
    EXPECT_THAT(Send(1, 1), ElementsAre("A ", "C x"));
}

TEST_F(CorrelateTest, LateAndUngroupedEventsAreCounted) {
    LoadOne(
        "  type: event_count\n  rules: [any]\n  group-by: [DestinationIp]\n  timespan: 10s\n  condition: "
        "{gte: 2}\n");
    EXPECT_TRUE(Send(100, 1).empty());
    EXPECT_TRUE(Send(50, 1).empty());
    EXPECT_EQ(detector_->correlation_counters().late, 1u);
    EXPECT_TRUE(Send(100, 1, "").empty());
    EXPECT_EQ(detector_->correlation_counters().ungrouped, 1u);
}

TEST_F(CorrelateTest, AFloodStaysBounded) {
    LoadOne(
        "  type: event_count\n  rules: [any]\n  group-by: [DestinationIp]\n  timespan: 1d\n  condition: "
        "{gte: 10000}\n");
    for (size_t i = 0; i < kMaxGroups + 10; ++i) Send(0, 1, absl::StrCat("a", i));
    EXPECT_EQ(detector_->correlation_counters().evicted_groups, 10u);
    // The ones that are left are the newest: the flood has not silenced the one it floods.
    size_t fired = 0;
    for (size_t i = 0; i < 20'000; ++i) fired += Send(1, 1, "flood").size();
    EXPECT_EQ(fired, 2u);
    LoadOne(
        "  type: value_count\n  rules: [any]\n  timespan: 1d\n  condition: {field: DestinationIp, gte: "
        "10000}\n");
    for (size_t i = 0; i < kMaxGroupEvents + 5; ++i) Send(1, 1, "same");
    EXPECT_EQ(detector_->correlation_counters().evicted_events, 5u);
}

// Several correlations share what there is: whoever floods makes room in his own.
TEST(CorrelateBoundsTest, AllTogetherStayBoundedAndEvictionIsCounted) {
    std::string yaml = "title: A\nname: a\nlogsource: {product: linux, category: network_connection}\n"
                       "detection: {s: {Protocol: tcp}, condition: s}\n";
    for (const char* name : {"x", "y", "z"})
        absl::StrAppend(&yaml, "---\ntitle: C\nname: ", name,
                        "\ncorrelation: {type: event_count, rules: [a], group-by: [DestinationIp], timespan: 1d, "
                        "condition: {gte: 9000}}\n");
    ParsedRules parsed = ParseRules({{"r.yaml", yaml}});
    ASSERT_FALSE(policy::HasErrors(parsed.diagnostics)) << ToString(parsed.diagnostics[0]);
    Detector detector(std::move(parsed.rules), {}, {.max_groups = 50, .max_events = 1000});
    v1::Event event;
    event.mutable_net()->set_op("connect");
    event.mutable_net()->set_protocol("tcp");
    size_t findings = 0;
    for (int i = 0; i < 40'000; ++i) {
        event.mutable_time()->set_seconds(i / 1000);
        // Half of it into one group, half into ever new ones.
        event.mutable_net()->set_address(i % 2 ? absl::StrCat("10.0.", i / 250, ".", i % 250) : "10.9.9.9");
        findings += detector.OnEvent(event).size();
        ASSERT_LE(detector.correlation_events(), 1000u);
        ASSERT_LE(detector.correlation_groups(), 150u);
    }
    const Correlator::Counters& counters = detector.correlation_counters();
    // Each of the three has to give up nearly all of the 20,000 that came once.
    EXPECT_GT(counters.evicted_groups, 3 * 19'900u);
    EXPECT_EQ(findings, 0u);
}

TEST_F(CorrelateTest, StateOfWhatDidNotChangeGoesOn) {
    const std::string body = "  type: event_count\n  rules: [a]\n  timespan: 10s\n  condition: {gte: 3}\n";
    LoadOne(body);
    Count(2, 0, 1, 1);
    LoadOne(body);
    EXPECT_EQ(Send(3, 1).size(), 1u);
    Count(2, 4, 1, 1);
    LoadOne("  type: event_count\n  rules: [a]\n  timespan: 11s\n  condition: {gte: 3}\n");
    EXPECT_EQ(Send(6, 1).size(), 0u);
}

}  // namespace
}  // namespace stockade::detect
