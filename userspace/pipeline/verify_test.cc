#include "userspace/pipeline/verify.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "userspace/model/json.h"
#include "userspace/pipeline/export_chain.h"
#include "userspace/pipeline/spool_testing.h"

namespace stockade::pipeline {
namespace {

// A sealed chain of six events, and what becomes of it.
class VerifyTest : public testing::Test {
  protected:
    VerifyTest() : folder_(testing::TempDir() + absl::StrCat("verify_", getpid(), ".key")) {
        std::filesystem::remove(folder_);
        key_ = std::make_unique<NodeKey>(NodeKey::LoadOrCreate(folder_).value());
        ExportChain chain("n1", key_.get());
        for (uint64_t i = 1; i <= 5; ++i) {
            v1::Event event = Telemetry("a", i);
            (*event.mutable_sandbox()->mutable_labels())["z"] = "1";
            (*event.mutable_sandbox()->mutable_labels())["b"] = "2";
            EXPECT_TRUE(chain.Add(&event).ok());
            events_.push_back(event);
        }
        v1::Event seal = chain.Seal(events_[0].sandbox());
        EXPECT_TRUE(chain.Add(&seal).ok());
        events_.push_back(seal);
    }
    ~VerifyTest() override { std::filesystem::remove(folder_); }

    ChainReport Report(const std::vector<v1::Event>& events, const std::string& key = "") {
        Verifier verifier({.key = key});
        // By way of JSON, as it arrives.
        for (const v1::Event& event : events) EXPECT_TRUE(verifier.AddLine(model::ToJsonLine(event)).ok());
        const auto reports = verifier.Finish();
        EXPECT_EQ(reports.size(), 1u);
        return reports.empty() ? ChainReport() : reports[0];
    }

    std::string folder_;
    std::unique_ptr<NodeKey> key_;
    std::vector<v1::Event> events_;
};

TEST_F(VerifyTest, AWholeChainIsComplete) {
    const ChainReport report = Report(events_, key_->public_hex());
    EXPECT_TRUE(report.complete());
    EXPECT_EQ(report.events, 6u);
    EXPECT_EQ(report.last, 6u);
    EXPECT_EQ(report.key, key_->public_hex());
}

TEST_F(VerifyTest, EachThatIsRemovedShows) {
    for (size_t i = 0; i < events_.size(); ++i) {
        auto events = events_;
        events.erase(events.begin() + static_cast<std::ptrdiff_t>(i));
        const ChainReport report = Report(events);
        EXPECT_FALSE(report.complete()) << i;
        if (i == 5) {
            EXPECT_FALSE(report.faulty() || report.sealed) << "cut at the end";
            continue;
        }
        EXPECT_EQ(report.missing, 1u) << i;
        EXPECT_EQ(report.first_fault, i + 1);
    }
}

TEST_F(VerifyTest, EachThatIsChangedShows) {
    for (size_t i = 0; i < events_.size(); ++i) {
        auto events = events_;
        events[i].set_reason("nothing to see");
        EXPECT_EQ(Report(events).broken, 1u) << i;
        EXPECT_EQ(Report(events).first_fault, i + 1);
        // With its own chain mended, the next does not fit.
        events[i].set_chain(ChainAfter(i == 0 ? "" : events[i - 1].chain(), events[i]));
        const ChainReport report = Report(events);
        EXPECT_EQ(report.broken, i + 1 < events_.size() ? 1u : 0u) << i;
    }
}

TEST_F(VerifyTest, AChainThatIsRecomputedNeedsTheKey) {
    auto events = events_;
    events[1].set_reason("nothing to see");
    for (size_t i = 1; i < events.size(); ++i) {
        if (events[i].has_seal()) events[i].mutable_seal()->set_before(events[i - 1].chain());
        events[i].set_chain(ChainAfter(events[i - 1].chain(), events[i]));
    }
    const ChainReport forged = Report(events);
    EXPECT_EQ(forged.broken, 0u);
    EXPECT_TRUE(forged.bad_seal);
    // A key of the forger's own is as good as none once the node's is known.
    const std::string other = folder_ + ".other";
    const NodeKey their_key = NodeKey::LoadOrCreate(other).value();
    std::filesystem::remove(other);
    v1::Event& seal = events.back();
    seal.mutable_seal()->set_key(their_key.public_hex());
    seal.mutable_seal()->set_signature(their_key.Sign(SealText("n1", "a", 6, seal.seal().before())));
    seal.set_chain(ChainAfter(events[4].chain(), seal));
    EXPECT_FALSE(Report(events).faulty());
    EXPECT_TRUE(Report(events, key_->public_hex()).bad_seal);
}

TEST_F(VerifyTest, OrderAndRepetitionAreToldApart) {
    auto events = events_;
    std::swap(events[1], events[2]);
    EXPECT_EQ(Report(events).out_of_order, 1u);
    EXPECT_EQ(Report(events).broken, 0u);

    events = events_;
    events.insert(events.begin() + 3, events_[1]);
    EXPECT_EQ(Report(events).repeated, 1u);
    EXPECT_TRUE(Report(events).complete());

    events.insert(events.begin() + 3, events_[1]);
    events[3].set_chain(std::string(64, '0'));
    EXPECT_EQ(Report(events).conflicting, 1u);
}

TEST_F(VerifyTest, WhatIsToldIsNoGap) {
    auto events = events_;
    v1::Event told = Telemetry("a", 0);
    told.mutable_lost()->set_stage("spool");
    v1::LostRange* range = told.mutable_lost()->add_exports();
    range->set_first(2);
    range->set_last(3);
    range->set_chain(events_[2].chain());
    events.erase(events.begin() + 1, events.begin() + 3);
    events.back() = told;
    events.back().set_export_seq(6);
    events.back().set_chain(ChainAfter(events_[4].chain(), events.back()));
    ChainReport report = Report(events);
    EXPECT_FALSE(report.faulty());
    EXPECT_EQ(report.lost, 2u);
    // What comes behind the gap is checked by the chain that was told.
    events[1].set_reason("nothing to see");
    EXPECT_EQ(Report(events).broken, 1u);
}

TEST_F(VerifyTest, WhatIsNoEventIsCounted) {
    Verifier verifier({});
    EXPECT_TRUE(verifier.AddLine("").ok());
    for (const char* line : {"{", "null", "{\"no_such_field\":1}", "\xff", "[]"})
        EXPECT_FALSE(verifier.AddLine(line).ok()) << line;
    EXPECT_EQ(verifier.bad_lines(), 5u);
    v1::Event plain = Telemetry("a", 1);
    EXPECT_TRUE(verifier.Add(plain).ok());
    EXPECT_EQ(verifier.Finish().at(0).unnumbered, 1u);
}

TEST(NodeKey, IsKeptAndGuarded) {
    const std::string path = testing::TempDir() + absl::StrCat("node_", getpid(), ".key");
    std::filesystem::remove(path);
    const auto first = NodeKey::LoadOrCreate(path);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(NodeKey::LoadOrCreate(path)->public_hex(), first->public_hex());
    const std::string signature = first->Sign("text");
    EXPECT_TRUE(NodeKey::Verify(first->public_hex(), "text", signature));
    EXPECT_FALSE(NodeKey::Verify(first->public_hex(), "texs", signature));
    EXPECT_FALSE(NodeKey::Verify(first->public_hex(), "text", signature.substr(2)));
    EXPECT_FALSE(NodeKey::Verify("", "text", ""));
    chmod(path.c_str(), 0644);
    EXPECT_TRUE(absl::IsFailedPrecondition(NodeKey::LoadOrCreate(path).status()));
    chmod(path.c_str(), 0600);
    std::filesystem::resize_file(path, 10);
    EXPECT_TRUE(absl::IsInvalidArgument(NodeKey::LoadOrCreate(path).status()));
    std::filesystem::remove(path);
}

// --- what the kernel numbered and the summary counts: a whole chain may lack what never came to it ---

class VerifyRecordsTest : public VerifyTest {
  protected:
    // One telemetry event for each kernel_seq, then `more`, then the summary, then the seal.
    ChainReport Of(const std::vector<uint64_t>& numbers, std::vector<v1::Event> more = {},
                   const v1::Summary& summary = {}) {
        ExportChain chain("n1", key_.get());
        std::vector<v1::Event> events;
        for (uint64_t number : numbers) events.push_back(Telemetry("a", number));
        events.insert(events.end(), more.begin(), more.end());
        events.push_back(Telemetry("a", 0));
        events.back().set_kind("summary");
        *events.back().mutable_summary() = summary;
        events.push_back(chain.Seal(events[0].sandbox()));
        for (v1::Event& event : events) {
            if (event.has_seal()) event = chain.Seal(event.sandbox());
            EXPECT_TRUE(chain.Add(&event).ok());
        }
        return Report(events, key_->public_hex());
    }
    static v1::Event Repeat(uint64_t kernel_seq, uint64_t count) {
        v1::Event event = Telemetry("a", kernel_seq);
        event.set_kind("repeat");
        event.mutable_repeat()->set_count(count);
        return event;
    }
};

TEST_F(VerifyRecordsTest, ANumberThatNothingExplainsIsAFault) {
    EXPECT_TRUE(Of({1, 2, 3}).complete());
    ChainReport report = Of({1, 2, 5});
    EXPECT_TRUE(report.faulty());
    EXPECT_EQ(report.unexplained, 2u);
    EXPECT_EQ(Of({2, 3}).unexplained, 1u) << "the first is number 1";
    EXPECT_EQ(Of({3, 1, 2}).unexplained, 0u) << "late ones count";
}

TEST_F(VerifyRecordsTest, RepeatsLossesAndTheSummaryExplain) {
    EXPECT_TRUE(Of({1, 2, 5}, {Repeat(6, 2)}).complete()) << "suppressed by the kernel";
    EXPECT_EQ(Of({1, 2, 5}, {Repeat(6, 1)}).unexplained, 1u);
    EXPECT_TRUE(Of({1, 2, 5}, {Repeat(0, 2)}).complete()) << "left out by the policy";
    v1::Summary summary;
    summary.set_suppressed(2);
    EXPECT_TRUE(Of({1, 2, 5}, {}, summary).complete());
    EXPECT_EQ(Of({1, 2, 6}, {Repeat(7, 2)}, summary).unexplained, 1u) << "the same are not counted twice";
    v1::Event lost = Telemetry("a", 0);
    lost.set_kind("lost");
    lost.mutable_lost()->set_stage("ring");
    lost.mutable_lost()->set_count(2);
    const ChainReport report = Of({1, 2, 5}, {lost});
    EXPECT_FALSE(report.faulty() || report.complete()) << "told, and not there";
    EXPECT_EQ(report.lost_records, 2u);
}

TEST_F(VerifyRecordsTest, ANumberTwiceIsAFault) {
    EXPECT_EQ(Of({1, 2, 2, 3}).twice, 1u);
    EXPECT_TRUE(Of({1, 2, 2, 3}).faulty());
}

TEST_F(VerifyRecordsTest, TheSummarysCountsMustBeReached) {
    v1::Summary summary;
    v1::KindCount* files = summary.add_kinds();
    files->set_kind("file");
    files->set_events(3);
    EXPECT_TRUE(Of({1, 2, 3}, {}, summary).complete());
    files->set_events(4);
    EXPECT_EQ(Of({1, 2, 3}, {}, summary).short_of_summary, 1u);
    EXPECT_TRUE(Of({1, 2, 3}, {}, summary).faulty());
    v1::Event lost = Telemetry("a", 0);
    lost.set_kind("lost");
    lost.mutable_lost()->set_stage("spool");
    lost.mutable_lost()->set_count(1);
    EXPECT_FALSE(Of({1, 2, 3}, {lost}, summary).faulty()) << "told behind the counter";
}

TEST_F(VerifyTest, OrderIsJudgedWithinEachSource) {
    Verifier verifier({});
    for (size_t first : {1, 0}) {
        verifier.NextSource();
        for (size_t i = first; i < events_.size(); i += 2) EXPECT_TRUE(verifier.Add(events_[i]).ok());
    }
    EXPECT_TRUE(verifier.Finish()[0].complete()) << "two topics, one after the other";
    Verifier one({});
    for (size_t first : {1, 0}) {
        for (size_t i = first; i < events_.size(); i += 2) EXPECT_TRUE(one.Add(events_[i]).ok());
    }
    EXPECT_EQ(one.Finish()[0].out_of_order, 3u);
}

}  // namespace
}  // namespace stockade::pipeline
