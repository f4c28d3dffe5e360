#include "userspace/pipeline/sequencer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stockade::pipeline {
namespace {

using testing::ElementsAre;

constexpr uint64_t kMs = 1'000'000;

class SequencerTest : public testing::Test {
  protected:
    void Add(uint64_t seq, uint32_t slot = 1) {
        auto event = std::make_unique<v1::Event>();
        event->set_kernel_seq(seq);
        event->mutable_sandbox()->set_id("sbx");
        sequencer_.Add(slot, 1, std::move(event));
    }
    void Repeat(uint64_t seq, uint64_t count) {
        auto event = std::make_unique<v1::Event>();
        event->set_kernel_seq(seq);
        event->mutable_repeat()->set_count(count);
        sequencer_.Add(1, 1, std::move(event));
    }
    // Passes over the rings, 30 ms apart, for `ms`.
    void Drain(uint64_t ms) {
        for (uint64_t end = now_ + ms * kMs; now_ < end;) sequencer_.OnDrained(now_ += 30 * kMs);
    }

    uint64_t now_ = 1000 * kMs;
    std::vector<uint64_t> seen_;
    std::vector<v1::Event> lost_;
    Sequencer::Sink sequencer_sink_ = [this](v1::Event& event) {
        if (event.has_lost())
            lost_.push_back(event);
        else
            seen_.push_back(event.kernel_seq());
    };
    Sequencer sequencer_{{.max_waiting = 8, .max_waiting_all = 12}, sequencer_sink_};
};

TEST_F(SequencerTest, InOrderGoesThroughAtOnce) {
    sequencer_.Track(1, 1, 1);
    for (uint64_t seq : {1, 2, 3}) Add(seq);
    EXPECT_THAT(seen_, ElementsAre(1, 2, 3));
    sequencer_.Finish(1, 1, 3);
    EXPECT_TRUE(lost_.empty());
}

TEST_F(SequencerTest, OvertakenRecordsAreNoLoss) {
    sequencer_.Track(1, 1, 1);
    for (uint64_t seq : {2, 4, 1, 3}) Add(seq);
    EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 4));
    Add(6);
    Drain(30);  // the number was taken, the record comes a pass later
    Add(5);
    Drain(3000);
    EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_TRUE(lost_.empty());
}

TEST_F(SequencerTest, AGapIsLostOnlyAfterItsTime) {
    sequencer_.Track(1, 1, 1);
    Add(1);
    Add(5);
    Drain(30);
    EXPECT_THAT(seen_, ElementsAre(1));
    Drain(120);
    EXPECT_THAT(seen_, ElementsAre(1, 5));
    EXPECT_TRUE(lost_.empty());
    Drain(2100);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].lost().count(), 3u);
    EXPECT_EQ(lost_[0].lost().first_seq(), 2u);
    EXPECT_EQ(lost_[0].lost().last_seq(), 4u);
    EXPECT_EQ(lost_[0].sandbox().id(), "sbx");
    Drain(3000);
    EXPECT_EQ(lost_.size(), 1u);
}

TEST_F(SequencerTest, TheFirstRecordMayBeTheLostOne) {
    sequencer_.Track(1, 1, 1);
    Add(2);
    Drain(2500);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].lost().count(), 1u);
}

TEST_F(SequencerTest, AnAdoptedSandboxStartsWhereItIs) {
    sequencer_.Track(1, 1, 0);
    Add(701);
    Add(700);
    Drain(150);
    EXPECT_THAT(seen_, ElementsAre(700, 701));
    Drain(2500);
    EXPECT_TRUE(lost_.empty());
}

// What comes after the end of its sandbox is handed on, and nothing is kept of it.
TEST_F(SequencerTest, WhatNobodyTracksLeavesNothing) {
    sequencer_.Track(1, 1, 1);
    Add(1);
    sequencer_.Finish(1, 1, 1);
    Add(7);
    Add(0, 2);
    Drain(3000);
    EXPECT_THAT(seen_, ElementsAre(1, 0, 7));
    EXPECT_TRUE(lost_.empty());
    EXPECT_EQ(sequencer_.streams(), 0u);
}

// An earlier agent may have died before a record of a lower number was in the ring.
TEST_F(SequencerTest, AnAdoptedSandboxTakesWhatComesLateFromBefore) {
    sequencer_.Track(1, 1, 0);
    Add(12);
    Drain(120);
    Add(11);
    EXPECT_THAT(seen_, ElementsAre(12, 11));
    Add(12);
    EXPECT_EQ(sequencer_.counters().duplicate, 1u);
    sequencer_.Finish(1, 1, 12);
    EXPECT_TRUE(lost_.empty());
}

TEST_F(SequencerTest, PassesAreHandedOnOnceNothingOfThemWaits) {
    sequencer_.Track(1, 1, 1);
    Add(1);
    Drain(30);
    EXPECT_EQ(sequencer_.passes_handed_on(), 1u);
    Add(3);
    Drain(30);
    EXPECT_EQ(sequencer_.passes(), 2u);
    EXPECT_EQ(sequencer_.passes_handed_on(), 1u) << "3 came in the second and waits";
    Add(2);
    EXPECT_EQ(sequencer_.passes_handed_on(), 2u);
}

TEST_F(SequencerTest, RepeatsExplainSuppressedNumbers) {
    sequencer_.Track(1, 1, 1);
    Add(1);
    Repeat(12, 10);  // 2..11 were suppressed
    Drain(3000);
    EXPECT_TRUE(lost_.empty());
    EXPECT_EQ(sequencer_.counters().suppressed, 10u);
    Repeat(25, 10);  // 13..24 are missing: two more than it says
    Drain(3000);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].lost().count(), 2u);
}

TEST_F(SequencerTest, TheKernelsCounterExplainsToo) {
    sequencer_.Track(1, 1, 1);
    Add(11);
    Drain(150);
    sequencer_.Reconcile(1, 1, 10);
    Drain(3000);
    EXPECT_TRUE(lost_.empty());
}

TEST_F(SequencerTest, TheKernelIsAskedBeforeALossIsTold) {
    uint64_t suppressed = 9;
    Sequencer sequencer({}, sequencer_sink_, [&](uint32_t, uint32_t) { return suppressed; });
    const auto add = [&](uint64_t seq) {
        auto event = std::make_unique<v1::Event>();
        event->set_kernel_seq(seq);
        sequencer.Add(1, 1, std::move(event));
    };
    const auto drain = [&] {
        for (int i = 0; i < 100; ++i) sequencer.OnDrained(now_ += 30 * kMs);
    };
    sequencer.Track(1, 1, 1);
    add(10);  // 1..9: no repeat record tells of them
    drain();
    EXPECT_TRUE(lost_.empty());
    EXPECT_EQ(sequencer.counters().suppressed, 9u);
    suppressed = 12;
    add(16);  // 11..15: three of them were suppressed, two are lost
    drain();
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].lost().count(), 2u);
}

TEST_F(SequencerTest, LateOnesAreTakenOnceAndNotCountedLost) {
    sequencer_.Track(1, 1, 1);
    Add(3);
    Drain(150);
    EXPECT_THAT(seen_, ElementsAre(3));
    Add(2);
    Add(2);
    Add(3);
    EXPECT_THAT(seen_, ElementsAre(3, 2));
    EXPECT_EQ(sequencer_.counters().late, 1u);
    EXPECT_EQ(sequencer_.counters().duplicate, 2u);
    Drain(2500);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].lost().count(), 1u);
}

TEST_F(SequencerTest, WaitingIsBounded) {
    sequencer_.Track(1, 1, 1);
    for (uint64_t seq = 3; seq < 1003; seq += 2) Add(seq);
    EXPECT_LE(sequencer_.waiting(), 8u);
    EXPECT_GT(sequencer_.counters().early, 0u);
    for (uint32_t slot = 2; slot < 50; ++slot) {
        sequencer_.Track(slot, 1, 1);
        Add(2, slot);
    }
    EXPECT_LE(sequencer_.waiting(), 12u);
}

TEST_F(SequencerTest, FinishTellsOfTheTail) {
    sequencer_.Track(1, 1, 1);
    Add(1);
    Add(3);
    sequencer_.Finish(1, 1, 5);
    EXPECT_THAT(seen_, ElementsAre(1, 3));
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].lost().count(), 3u);  // 2, 4, 5
    EXPECT_EQ(sequencer_.waiting(), 0u);
}

// --- what an earlier process has had ---

EarlierNumbers Earlier(absl::string_view seen, uint64_t repeats = 0, uint64_t told = 0) {
    return {.seen = *KernelNumbers::FromText(seen), .repeats = repeats, .told = told};
}

TEST_F(SequencerTest, NumbersOfAnEarlierProcessAreNoGap) {
    sequencer_.Resume(1, 1, Earlier("1-50,52-60"));
    // Released were some of one ring and none of another; 51 was on its way.
    for (uint64_t seq : {61, 51, 48, 55}) Add(seq);
    Drain(3000);
    sequencer_.Finish(1, 1, 61);
    EXPECT_THAT(seen_, ElementsAre(48, 51, 55, 61)) << "all that came is handed on, in order";
    EXPECT_TRUE(lost_.empty());
}

TEST_F(SequencerTest, WhatCameBehindThemAndIsNowhereIsLost) {
    sequencer_.Resume(1, 1, Earlier("1-50"));
    for (uint64_t seq : {54, 55}) Add(seq);
    Drain(3000);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].lost().first_seq(), 51u);
    EXPECT_EQ(lost_[0].lost().count(), 3u);
    sequencer_.Finish(1, 1, 57);
    ASSERT_EQ(lost_.size(), 2u);
    EXPECT_EQ(lost_[1].lost().count(), 2u);
}

TEST_F(SequencerTest, HolesOfAnEarlierProcessAreLostOnceAndOnlyIfNotTold) {
    sequencer_.Resume(1, 1, Earlier("1-10,21-30,41-50", 10, 7));
    Drain(3000);
    ASSERT_EQ(lost_.size(), 1u) << "10 repeated, 7 told, 3 neither";
    EXPECT_EQ(lost_[0].lost().count(), 3u);
    Add(51);
    Drain(3000);
    sequencer_.Finish(1, 1, 51);
    EXPECT_EQ(lost_.size(), 1u);
}

// More holes than are kept: those that are closed are missing still, or explained.
TEST_F(SequencerTest, HolesThatAreClosedAreNoRecordsThatCame) {
    EarlierNumbers earlier;
    const uint64_t holes = 2 * KernelNumbers::kMaxRanges;
    for (uint64_t i = 0; i <= holes; ++i) (void)earlier.seen.Add(1 + 2 * i);
    earlier.repeats = holes - 5;
    sequencer_.Resume(1, 1, earlier);
    Drain(3000);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].lost().count(), 5u);
}

TEST_F(SequencerTest, WhatARepeatStandsForIsCountedOnceThoughItIsReadAgain) {
    for (const bool again : {true, false}) {
        lost_.clear();
        // 3 to 7 were left out, which 8 says and said before; 9 to 13 are lost.
        sequencer_.Resume(1, 1, Earlier("1-2,8-8,14-14", 5, 0));
        auto repeat = std::make_unique<v1::Event>();
        repeat->set_kernel_seq(again ? 8 : 15);  // the control is another one
        repeat->mutable_repeat()->set_count(5);
        sequencer_.Add(1, 1, std::move(repeat));
        Drain(3000);
        sequencer_.Finish(1, 1, 0);
        ASSERT_EQ(lost_.size(), again ? 1u : 0u);
        EXPECT_EQ(again ? lost_[0].lost().count() : 5u, 5u);
    }
}

TEST_F(SequencerTest, WhatWasLeftOutAndIsReadAgainExplainsNoLoss) {
    for (const uint64_t boot_ns : {100, 200}) {
        lost_.clear();
        EarlierNumbers earlier = Earlier("1-2,5-5,8-8", 0, 2);  // 3 and 4 were left out; 6 and 7 are lost
        earlier.left_out_boot_ns = 150;
        sequencer_.Resume(1, 1, earlier);
        for (const uint64_t seq : {3, 4}) {
            auto quiet = std::make_unique<v1::Event>();
            quiet->set_kernel_seq(seq);
            quiet->set_boot_ns(boot_ns);
            quiet->mutable_dns()->set_quiet(true);
            sequencer_.Add(1, 1, std::move(quiet));
        }
        Drain(3000);
        sequencer_.Finish(1, 1, 0);
        // Later ones nobody has counted: then they are the two.
        EXPECT_EQ(lost_.size(), boot_ns == 100 ? 1u : 0u);
    }
}

TEST_F(SequencerTest, NothingAfterAnEarlierProcessButALoss) {
    sequencer_.Resume(1, 1, Earlier("1-10"));
    sequencer_.Finish(1, 1, 12);
    ASSERT_EQ(lost_.size(), 1u);
    EXPECT_EQ(lost_[0].lost().count(), 2u);
}

}  // namespace
}  // namespace stockade::pipeline
