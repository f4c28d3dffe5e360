#include "userspace/pipeline/spool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <random>

#include "userspace/base/fd.h"
#include "userspace/pipeline/spool_testing.h"

namespace stockade::pipeline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(SpoolTest, KeepsTheOrderOverAllLanesAndNumbersWithoutGaps) {
    auto spool = Open();
    for (v1::Event event :
         {Telemetry("a", 1), Finding("a", 1), Violation("b", 1), Telemetry("a", 2), Violation("a", 3)}) {
        ASSERT_TRUE(spool->Append(&event).ok());
    }
    EXPECT_FALSE(spool->Next("r").has_value()) << "not flushed, and so not yet safe";
    ASSERT_TRUE(spool->Flush().ok());
    const auto events = Drain(*spool);
    EXPECT_THAT(Ids(events), ElementsAre("a.1", "finding.1", "b.1", "a.2", "a.3"));
    std::vector<uint64_t> numbers;
    for (const auto& event : events) numbers.push_back(event.export_seq());
    EXPECT_THAT(numbers, ElementsAre(1, 2, 1, 3, 4));
}

TEST_F(SpoolTest, ASealedSandboxIsCompleteAndTakesNothingMore) {
    auto spool = Open();
    v1::Sandbox sandbox;
    sandbox.set_id("a");
    for (v1::Event event : {Telemetry("a", 1), Violation("a", 2)}) ASSERT_TRUE(spool->Append(&event).ok());
    ASSERT_TRUE(spool->Seal(sandbox).ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(spool->Seal(sandbox)));
    v1::Event late = Telemetry("a", 3);
    EXPECT_TRUE(absl::IsFailedPrecondition(spool->Append(&late)));
    EXPECT_EQ(spool->after_seal(), 1u);
    ASSERT_TRUE(spool->Flush().ok());
    auto reports = Verify(Drain(*spool));
    EXPECT_TRUE(reports["a"].complete()) << reports["a"].first_fault;
    EXPECT_EQ(reports["a"].key, key_->public_hex());
    spool.reset();
    EXPECT_TRUE(absl::IsFailedPrecondition(Open()->Append(&late))) << "also after a start";
}

TEST_F(SpoolTest, AcknowledgementsComeInAnyOrderAndOutliveAStart) {
    auto spool = Open();
    for (uint64_t i = 1; i <= 6; ++i) {
        v1::Event event = Telemetry("a", i);
        ASSERT_TRUE(spool->Append(&event).ok());
    }
    ASSERT_TRUE(spool->Flush().ok());
    std::vector<uint64_t> positions;
    while (auto record = spool->Next("r")) {
        EXPECT_FALSE(record->again);
        positions.push_back(record->position);
    }
    ASSERT_EQ(positions.size(), 6u);
    for (const size_t i : {4, 1, 0}) spool->Ack("r", positions[i]);
    spool->Ack("r", positions[0]);  // twice
    spool->Ack("r", 12345);         // never handed out
    spool->Ack("nobody", 1);
    // A failed delivery: what is not acknowledged comes again, in order, and no more.
    spool->Rewind("r");
    EXPECT_THAT(Ids(Drain(*spool, false)), ElementsAre("a.3", "a.4", "a.6"));
    ASSERT_TRUE(spool->Sync().ok());
    spool.reset();
    // Out of order is forgotten by a start: twice is better than never.
    spool = Open();
    const auto record = spool->Next("r");
    ASSERT_TRUE(record.has_value());
    EXPECT_TRUE(record->again);
    EXPECT_THAT(Ids(Drain(*spool)), ElementsAre("a.4", "a.5", "a.6"));
}

TEST_F(SpoolTest, TooManyInFlightWait) {
    options_.max_in_flight = 2;
    auto spool = Open();
    for (uint64_t i = 1; i <= 3; ++i) {
        v1::Event event = Telemetry("a", i);
        ASSERT_TRUE(spool->Append(&event).ok());
    }
    ASSERT_TRUE(spool->Flush().ok());
    const auto first = spool->Next("r");
    ASSERT_TRUE(first && spool->Next("r"));
    EXPECT_FALSE(spool->Next("r"));
    spool->Ack("r", first->position);
    EXPECT_TRUE(spool->Next("r"));
}

TEST_F(SpoolTest, EachReaderGetsAllAndTheSlowestHoldsTheFiles) {
    options_.readers = {"r", "slow"};
    auto spool = Open();
    for (uint64_t i = 1; i <= 300; ++i) {
        v1::Event event = Telemetry("a", i, 100);
        ASSERT_TRUE(spool->Append(&event).ok());
        ASSERT_TRUE(!(i % 10 == 0) || spool->Flush().ok());
    }
    EXPECT_EQ(Drain(*spool).size(), 300u);
    ASSERT_TRUE(spool->Sync().ok());
    const size_t before = Segments(kTelemetry).size();
    EXPECT_GT(before, 5u);
    EXPECT_EQ(Drain(*spool, true, "slow").size(), 300u);
    ASSERT_TRUE(spool->Sync().ok());
    EXPECT_LT(Segments(kTelemetry).size(), 3u);
    // Numbers go on though the files that held them are gone.
    spool.reset();
    spool = Open();
    v1::Event event = Telemetry("a", 301);
    ASSERT_TRUE(spool->Append(&event).ok());
    EXPECT_EQ(event.export_seq(), 301u);
}

TEST_F(SpoolTest, AtTheBoundTelemetryGoesFirstAndEachLossIsTold) {
    options_.max_bytes = 160 << 10;
    auto spool = Open();
    std::map<std::string, uint64_t> seq;
    for (int i = 0; i < 3000; ++i) {
        const char* id = i % 2 ? "a" : "b";
        v1::Event event = i % 50 == 0   ? Finding("a", i)
                          : i % 10 == 0 ? Violation("a", ++seq["a"])
                                        : Telemetry(id, ++seq[id], 100);
        ASSERT_TRUE(spool->Append(&event).ok());
        ASSERT_TRUE(!(i % 7 == 0) || spool->Flush().ok());
    }
    for (const char* id : {"a", "b"}) {
        v1::Sandbox sandbox;
        sandbox.set_id(id);
        ASSERT_TRUE(spool->Seal(sandbox).ok());
    }
    ASSERT_TRUE(spool->Flush().ok());
    EXPECT_LE(spool->counters().bytes, options_.max_bytes + options_.segment_bytes);
    uint64_t on_disk = 0;
    for (const Lane lane : {kTelemetry, kViolations, kFindings}) {
        for (const std::string& path : Segments(lane)) on_disk += std::filesystem::file_size(path);
    }
    EXPECT_EQ(spool->counters().bytes, on_disk);
    const auto events = Drain(*spool);
    uint64_t findings = 0, violations = 0, told = 0;
    for (const auto& event : events) {
        findings += event.has_finding();
        violations += event.verdict() == "deny";
        told += event.lost().count();
    }
    EXPECT_EQ(findings, 60u);
    EXPECT_EQ(violations, 240u);
    EXPECT_GT(told, 500u);
    EXPECT_EQ(told, spool->counters().lost_full);
    auto reports = Verify(events);
    for (const char* id : {"a", "b"}) {
        const ChainReport& report = reports[id];
        EXPECT_FALSE(report.faulty()) << id << " at " << report.first_fault << ": " << report.missing
                                      << " missing, " << report.broken << " broken";
        EXPECT_TRUE(report.sealed);
        EXPECT_GT(report.lost, 100u);
    }
    EXPECT_EQ(reports["a"].lost + reports["b"].lost, told);
}

// So small that the events which tell of losses are lost as well: then others tell of them.
TEST_F(SpoolTest, FindingsGoLastAndNothingGoesUntold) {
    options_.max_bytes = 24 << 10;
    auto spool = Open();
    for (int i = 0; i < 2000; ++i) {
        v1::Event event = i % 3 == 0   ? Finding("a", i)
                          : i % 3 == 1 ? Violation("a", i)
                                       : Telemetry("a", i, 100);
        ASSERT_TRUE(spool->Append(&event).ok());
        ASSERT_TRUE(spool->Flush().ok());
    }
    const auto events = Drain(*spool);
    uint64_t findings = 0, others = 0;
    for (const auto& event : events) (event.has_finding() ? findings : others) += event.has_lost() ? 0 : 1;
    EXPECT_GE(findings, 5u);
    EXPECT_LT(others, findings);
    const ChainReport report = Verify(events)["a"];
    EXPECT_FALSE(report.faulty()) << report.missing << " missing, " << report.broken << " broken at "
                                  << report.first_fault;
    EXPECT_EQ(report.lost, spool->counters().lost_full);
}

TEST_F(SpoolTest, WhatIsDeliveredIsNotLost) {
    options_.max_bytes = 32 << 10;
    auto spool = Open();
    for (uint64_t i = 1; i <= 2000; ++i) {
        v1::Event event = Telemetry("a", i, 100);
        ASSERT_TRUE(spool->Append(&event).ok());
        ASSERT_TRUE(spool->Flush().ok());
        ASSERT_EQ(Drain(*spool).size(), 1u);
    }
    EXPECT_EQ(spool->counters().lost_full, 0u);
    EXPECT_LE(spool->counters().bytes, options_.max_bytes);
}

TEST_F(SpoolTest, LossesOfASealedSandboxAreToldBehindANewSeal) {
    options_.max_bytes = 16 << 10;
    auto spool = Open();
    for (uint64_t i = 1; i <= 20; ++i) {
        v1::Event event = Telemetry("a", i, 100);
        ASSERT_TRUE(spool->Append(&event).ok());
    }
    v1::Sandbox sandbox;
    sandbox.set_id("a");
    ASSERT_TRUE(spool->Seal(sandbox).ok());
    for (uint64_t i = 1; i <= 200; ++i) {
        v1::Event event = Telemetry("b", i, 100);
        ASSERT_TRUE(spool->Append(&event).ok());
        ASSERT_TRUE(spool->Flush().ok());
    }
    const ChainReport report = Verify(Drain(*spool))["a"];
    EXPECT_FALSE(report.faulty());
    EXPECT_TRUE(report.sealed);
    EXPECT_EQ(report.lost, 20u);
}

TEST_F(SpoolTest, TwoCannotHaveItOpen) {
    auto spool = Open();
    EXPECT_THAT(std::string(Spool::Open(options_).status().message()),
                HasSubstr("another process has it open"));
}

TEST_F(SpoolTest, OptionsThatCannotWorkAreRefused) {
    options_.max_bytes = options_.segment_bytes;
    EXPECT_TRUE(absl::IsInvalidArgument(Spool::Open(options_).status()));
    options_.max_bytes = 1 << 20;
    options_.readers.clear();
    EXPECT_TRUE(absl::IsInvalidArgument(Spool::Open(options_).status()));
}

// As after kill -9: the rings hold records still that were spooled, delivered and collected.
TEST_F(SpoolTest, ARecordThatComesAgainAfterAStartIsRecognised) {
    constexpr uint64_t kEvents = 400;  // some segments
    auto spool = Open();
    for (uint64_t i = 1; i <= kEvents; ++i) {
        if (i % 100 == 0) continue;
        v1::Event event = Telemetry("a", i);
        event.mutable_sandbox()->set_session("s");
        ASSERT_TRUE(spool->Append(&event).ok());
        ASSERT_TRUE(spool->Flush().ok());
    }
    (void)Drain(*spool);
    ASSERT_TRUE(spool->Sync().ok());
    EXPECT_LE(Segments(kTelemetry).size(), 2u) << "the rest is in heads alone";
    spool.reset();
    spool = Open();
    const ChainBooks books = spool->Unsealed()["a"];
    EXPECT_EQ(books.seen.ToText(), "1-99,101-199,201-299,301-399");
    EXPECT_EQ(books.sandbox.session(), "s");
    EXPECT_EQ(books.kinds.at("file"), kEvents - 4);
    for (uint64_t i = 1; i <= kEvents; ++i) {
        v1::Event event = Telemetry("a", i);
        const Status status = spool->Append(&event);
        EXPECT_EQ(status.code(), i % 100 == 0 ? absl::StatusCode::kOk : absl::StatusCode::kAlreadyExists) << i;
    }
    EXPECT_EQ(spool->counters().again, kEvents - 4);
    v1::Event other = Telemetry("b", 1);
    EXPECT_TRUE(spool->Append(&other).ok()) << "another sandbox has numbers of its own";
    v1::Event none = Telemetry("a", 0);
    EXPECT_TRUE(spool->Append(&none).ok());
    EXPECT_TRUE(spool->Append(&none).ok()) << "0 is no number";
}

TEST_F(SpoolTest, BooksCountWhatExplainsMissingNumbersAndEndWithTheSeal) {
    auto spool = Open();
    v1::Event kernel = Telemetry("a", 5);
    kernel.mutable_repeat()->set_count(3);
    v1::Event left_out = Telemetry("a", 0);
    left_out.mutable_repeat()->set_count(2);
    v1::Event lost = Telemetry("a", 0);
    lost.mutable_lost()->set_count(7);
    for (v1::Event* event : {&kernel, &left_out, &lost}) ASSERT_TRUE(spool->Append(event).ok());
    EXPECT_EQ(spool->Unsealed()["a"].repeats, 3u);
    EXPECT_EQ(spool->Unsealed()["a"].told, 9u);
    ASSERT_TRUE(spool->Seal(kernel.sandbox()).ok());
    EXPECT_TRUE(spool->Unsealed().empty());
}

}  // namespace
}  // namespace stockade::pipeline
