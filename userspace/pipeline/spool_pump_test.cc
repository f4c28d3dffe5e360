#include "userspace/pipeline/spool_pump.h"

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <set>

#include "userspace/pipeline/spool_testing.h"

namespace stockade::pipeline {
namespace {

// A peer whose moods a test decides. It outlives its exporters.
struct Peer {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<v1::Event> got;
    std::function<Status(const v1::Event&)> answer = [](const v1::Event&) { return absl::OkStatus(); };
    bool broken = false;
    bool away = false;  // takes, and says nothing
    int made = 0;
};

class FakeExporter : public exporters::SpooledExporter {
  public:
    explicit FakeExporter(Peer& peer) : peer_(peer) {}
    std::string name() const override { return "fake"; }
    void OnDelivered(Delivered delivered) override { delivered_ = std::move(delivered); }
    Status Send(uint64_t tag, const model::EventBytes& event, bool) override {
        std::lock_guard lock(peer_.mutex);
        if (peer_.broken) return absl::FailedPreconditionError("broken");
        if (waiting_.size() >= 10) return absl::UnavailableError("full");
        v1::Event parsed;
        SK_RETURN_IF_ERROR(event.Parse(&parsed));
        waiting_.emplace_back(tag, std::move(parsed));
        return absl::OkStatus();
    }
    void Poll(int timeout_ms) override {
        std::deque<std::pair<uint64_t, Status>> reports;
        {
            std::unique_lock lock(peer_.mutex);
            if (peer_.away || waiting_.empty())
                peer_.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms));
            if (peer_.away) return;
            for (auto& [tag, event] : waiting_) {
                reports.emplace_back(tag, peer_.answer(event));
                if (reports.back().second.ok()) peer_.got.push_back(event);
            }
            waiting_.clear();
        }
        for (const auto& [tag, status] : reports) delivered_(tag, status);
        peer_.changed.notify_all();
    }
    Status Health() const override { return absl::OkStatus(); }
    void Close(int) override {
        auto waiting = std::move(waiting_);
        waiting_.clear();
        for (const auto& [tag, event] : waiting) delivered_(tag, absl::AbortedError("closed"));
    }
    exporters::ExporterCounters counters() const override { return {}; }

  private:
    Peer& peer_;
    Delivered delivered_;
    std::deque<std::pair<uint64_t, v1::Event>> waiting_;
};

class SpoolPumpTest : public SpoolTest {
  protected:
    SpoolPumpTest() : spool_(Open()), pump_(*spool_, "r", [this] { return Make(); }) {}

    StatusOr<std::unique_ptr<exporters::SpooledExporter>> Make() {
        std::lock_guard lock(peer_.mutex);
        if (++peer_.made > 1) peer_.broken = false;
        return std::make_unique<FakeExporter>(peer_);
    }
    void Fill(uint64_t from, uint64_t to) {
        for (uint64_t i = from; i <= to; ++i) {
            v1::Event event = Telemetry("a", i);
            ASSERT_TRUE(spool_->Append(&event).ok());
        }
        ASSERT_TRUE(spool_->Flush().ok());
    }
    void Await(size_t count) {
        std::unique_lock lock(peer_.mutex);
        EXPECT_TRUE(peer_.changed.wait_for(lock, std::chrono::seconds(30), [&] {
            return peer_.got.size() >= count;
        })) << peer_.got.size();
    }

    Peer peer_;
    std::unique_ptr<Spool> spool_;
    SpoolPump pump_;
};

TEST_F(SpoolPumpTest, DeliversAllInOrderAndOnce) {
    ASSERT_TRUE(pump_.Start().ok());
    Fill(1, 300);
    Await(300);
    pump_.Stop(0);
    EXPECT_EQ(pump_.counters().delivered, 300u);
    EXPECT_FALSE(Verify(peer_.got)["a"].faulty());
    EXPECT_FALSE(spool_->Next("r"));
}

TEST_F(SpoolPumpTest, WhatFailsComesAgainInOrder) {
    int failures = 3;
    peer_.answer = [&](const v1::Event& event) {
        return event.kernel_seq() == 15 && failures-- > 0 ? Status(absl::UnavailableError("away"))
                                                          : absl::OkStatus();
    };
    ASSERT_TRUE(pump_.Start().ok());
    Fill(1, 40);
    Await(40);
    pump_.Stop(0);
    EXPECT_EQ(pump_.counters().failed, 3u);
    EXPECT_EQ(peer_.got.size(), 40u) << "nothing twice";
    std::set<uint64_t> seen;
    for (const auto& event : peer_.got) seen.insert(event.export_seq());
    EXPECT_EQ(seen.size(), 40u);
}

TEST_F(SpoolPumpTest, WhatIsNeverTakenIsToldAndHoldsNothingUp) {
    peer_.answer = [](const v1::Event& event) {
        return event.kernel_seq() == 15 ? Status(absl::InvalidArgumentError("too large")) : absl::OkStatus();
    };
    ASSERT_TRUE(pump_.Start().ok());
    Fill(1, 40);
    Await(39);
    ASSERT_TRUE(spool_->Flush().ok());  // with what tells of it
    Await(40);
    pump_.Stop(0);
    EXPECT_EQ(pump_.counters().rejected, 1u);
    EXPECT_EQ(spool_->counters().rejected, 1u);
    EXPECT_EQ(peer_.got.back().lost().cause(), "refused by the peer");
    const ChainReport report = Verify(peer_.got)["a"];
    EXPECT_FALSE(report.faulty());
    EXPECT_EQ(report.lost, 1u);
}

TEST_F(SpoolPumpTest, AnExporterThatBreaksIsMadeAnew) {
    peer_.broken = true;
    ASSERT_TRUE(pump_.Start().ok());
    Fill(1, 20);
    Await(20);
    pump_.Stop(0);
    EXPECT_EQ(pump_.counters().remade, 1u);
    EXPECT_FALSE(Verify(peer_.got)["a"].faulty());
}

TEST_F(SpoolPumpTest, AnExporterThatCannotBeMadeYetIsTriedAgain) {
    std::atomic<int> tries{0};
    SpoolPump pump(*spool_, "r", [&]() -> StatusOr<std::unique_ptr<exporters::SpooledExporter>> {
        if (++tries < 3) return absl::NotFoundError("no such file: ca.pem");
        return Make();
    });
    const Status first = pump.Start();
    EXPECT_TRUE(absl::IsNotFound(first)) << first;
    EXPECT_FALSE(pump.Health().ok());
    Fill(1, 20);
    Await(20);
    EXPECT_TRUE(pump.Health().ok());
    EXPECT_EQ(tries, 3);
    pump.Stop(0);
    EXPECT_FALSE(Verify(peer_.got)["a"].faulty());
}

TEST_F(SpoolPumpTest, WhatIsUnderWayAtTheEndComesAgainAtTheNextStart) {
    peer_.away = true;
    ASSERT_TRUE(pump_.Start().ok());
    Fill(1, 20);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (pump_.counters().sent < 10 && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
    pump_.Stop(0);
    peer_.away = false;
    SpoolPump next(*spool_, "r", [this] { return Make(); });
    spool_->Rewind("r");
    ASSERT_TRUE(next.Start().ok());
    Await(20);
    next.Stop(0);
    EXPECT_FALSE(Verify(peer_.got)["a"].faulty());
}

}  // namespace
}  // namespace stockade::pipeline
