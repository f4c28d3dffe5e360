// What is stored when, by a disk that works and one that does not.
#include "userspace/pipeline/event_store.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "userspace/base/clock.h"
#include "userspace/pipeline/spool_testing.h"

namespace stockade::pipeline {
namespace {

constexpr uint64_t kPatience = 30'000'000'000;

bool Until(const std::function<bool()>& done) {
    const uint64_t end = BootNow() + kPatience;
    while (!done()) {
        if (BootNow() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // between two looks
    }
    return true;
}

// Takes all there is and keeps it.
struct Sink {
    std::mutex mutex;
    std::vector<v1::Event> events;
};
class SinkExporter : public exporters::SpooledExporter {
  public:
    explicit SinkExporter(Sink& sink) : sink_(sink) {}
    std::string name() const override { return "sink"; }
    void OnDelivered(Delivered delivered) override { delivered_ = std::move(delivered); }
    Status Send(uint64_t tag, const model::EventBytes& event, bool) override {
        v1::Event parsed;
        SK_RETURN_IF_ERROR(event.Parse(&parsed));
        std::lock_guard lock(sink_.mutex);
        sink_.events.push_back(std::move(parsed));
        tags_.push_back(tag);
        return absl::OkStatus();
    }
    void Poll(int timeout_ms) override {
        for (const uint64_t tag : std::exchange(tags_, {})) delivered_(tag, absl::OkStatus());
        std::this_thread::sleep_for(std::chrono::milliseconds(std::min(timeout_ms, 1)));  // as one that waits
    }
    Status Health() const override { return absl::OkStatus(); }
    void Close(int) override { Poll(0); }
    exporters::ExporterCounters counters() const override { return {}; }

  private:
    Sink& sink_;
    Delivered delivered_;
    std::vector<uint64_t> tags_;
};

class EventStoreTest : public SpoolTest {
  protected:
    std::unique_ptr<EventStore> OpenStore() {
        EventStore::Options options;
        options.key_path = root_ + "/node.key";
        options.spool = options_;
        options.spool.readers.clear();
        options.readers = {{"sink", [this]() -> StatusOr<std::unique_ptr<exporters::SpooledExporter>> {
                                return std::make_unique<SinkExporter>(sink_);
                            }}};
        return EventStore::Open(std::move(options));
    }
    // A pass whose events are these.
    static void Pass(EventStore& store, const std::vector<v1::Event>& events, uint64_t pass) {
        for (const v1::Event& event : events) store.Take(event);
        store.EndPass(pass);
    }
    static bool AwaitPass(EventStore& store, uint64_t pass) {
        return Until([&] {
            store.EndPass(pass);  // as the hub does, pass after pass
            return store.stored_pass() >= pass;
        });
    }
    std::map<std::string, ChainReport> Exported(const std::string& sealed) {
        EXPECT_TRUE(Until([&] {
            std::lock_guard lock(sink_.mutex);
            return std::any_of(sink_.events.begin(), sink_.events.end(), [&](const v1::Event& event) {
                return event.has_seal() && event.sandbox().id() == sealed;
            });
        }));
        std::lock_guard lock(sink_.mutex);
        return Verify(sink_.events);
    }
    static v1::Sandbox Box(const std::string& id) {
        v1::Sandbox sandbox;
        sandbox.set_id(id);
        return sandbox;
    }
    static v1::Event Quiet(uint64_t seq) {
        v1::Event event = Telemetry("a", seq);
        event.mutable_dns()->set_quiet(true);
        return event;
    }
    Sink sink_;
};

TEST_F(EventStoreTest, APassIsStoredOnceItsEventsAre) {
    auto store = OpenStore();
    Pass(*store, {Telemetry("a", 1), Telemetry("a", 2)}, 1);
    EXPECT_EQ(store->stored_pass(), 0u) << "nobody has written them";
    store->Start({});
    ASSERT_TRUE(AwaitPass(*store, 1));
    EXPECT_TRUE(AwaitPass(*store, 2)) << "an empty one";
    store->Destroyed(Box("a"));
    EXPECT_TRUE(Exported("a")["a"].complete());
}

TEST_F(EventStoreTest, WhatThePolicyLeavesOutIsCountedAndNotExported) {
    auto store = OpenStore();
    store->Start({});
    Pass(*store, {Telemetry("a", 1), Quiet(2), Quiet(3), Telemetry("a", 4)}, 1);
    ASSERT_TRUE(AwaitPass(*store, 1));
    Pass(*store, {Quiet(5), Telemetry("a", 6)}, 2);
    ASSERT_TRUE(AwaitPass(*store, 2));
    EXPECT_EQ(store->counters().left_out, 3u);
    store->Destroyed(Box("a"));
    const ChainReport report = Exported("a")["a"];
    EXPECT_TRUE(report.complete()) << report.unexplained;
    EXPECT_EQ(report.events, 6u) << "three records, twice what stands for those left out, the seal";
}

TEST_F(EventStoreTest, AfterAKillWhatComesAgainIsThereOnceAndWhatIsGoneIsSealed) {
    auto store = OpenStore();
    store->Start({});
    Pass(*store, {Telemetry("a", 1), Telemetry("a", 2), Telemetry("gone", 1)}, 1);
    ASSERT_TRUE(AwaitPass(*store, 1));
    store.reset();
    store = OpenStore();
    ASSERT_EQ(store->earlier().size(), 2u);
    EXPECT_EQ(store->earlier().at("a").seen.ToText(), "1-2");
    store->Start({"a"});
    Pass(*store, {Telemetry("a", 1), Telemetry("a", 2), Telemetry("a", 3)}, 1);
    v1::Event summary = Telemetry("a", 0);
    summary.set_kind("summary");
    summary.mutable_summary()->add_kinds()->set_kind("file");  // this agent has counted three as well, and an earlier one two
    summary.mutable_summary()->mutable_kinds(0)->set_events(3);
    Pass(*store, {summary}, 2);
    ASSERT_TRUE(AwaitPass(*store, 2));
    EXPECT_EQ(store->counters().spool.again, 2u);
    store->Destroyed(Box("a"));
    auto reports = Exported("a");
    EXPECT_TRUE(reports["a"].complete());
    EXPECT_EQ(reports["a"].events, 5u) << "three, summary, seal";
    EXPECT_TRUE(reports["gone"].complete());
    EXPECT_EQ(reports["gone"].events, 3u) << "one, that it is gone, seal";
    std::lock_guard lock(sink_.mutex);
    for (const v1::Event& event : sink_.events) {
        EXPECT_TRUE(!event.has_summary() || event.summary().kinds(0).events() == 3u);
    }
}

// A sandbox that is sealed has no name any more: its records come with its place in the kernel alone.
TEST_F(EventStoreTest, WhatIsReadAgainOfASealedSandboxIsThereAlready) {
    const std::string boot = root_ + "/boot_id";
    options_.boot_id_path = boot;
    const auto unknown = [](uint64_t seq, uint32_t generation) {
        v1::Event event = Telemetry("", seq);
        event.mutable_sandbox()->set_slot(7);
        event.mutable_sandbox()->set_generation(generation);
        return event;
    };
    std::ofstream(boot) << "one\n";
    auto store = OpenStore();
    store->Start({});
    Pass(*store, {Telemetry("a", 1), Telemetry("a", 2)}, 1);
    v1::Sandbox closed = Box("a");
    closed.set_slot(7);
    closed.set_generation(3);
    store->Destroyed(closed);
    ASSERT_TRUE(AwaitPass(*store, 2));
    store.reset();
    for (const bool rebooted : {false, true}) {
        if (rebooted) std::ofstream(boot) << "two\n";
        store = OpenStore();
        store->Start({});
        v1::Event quiet = unknown(3, 3);
        quiet.mutable_dns()->set_quiet(true);
        Pass(*store, {unknown(1, 3), unknown(2, 3), quiet, unknown(1, 4)}, 1);
        ASSERT_TRUE(AwaitPass(*store, 1));
        // The control is another sandbox of that slot, and after a start of the machine all are.
        EXPECT_EQ(store->counters().spool.again, rebooted ? 0u : 2u);
        EXPECT_EQ(store->counters().left_out, rebooted ? 1u : 0u);
        store.reset();
    }
    const auto reports = Exported("a");
    EXPECT_TRUE(reports.at("a").complete());
    EXPECT_EQ(reports.at("").events, 1u + 4u);
}

TEST_F(EventStoreTest, WhatThePolicyLeftOutBeforeAKillIsNotCountedAgain) {
    const auto quiet = [](uint64_t seq) {
        v1::Event event = Quiet(seq);
        event.set_boot_ns(100 * seq);
        return event;
    };
    auto store = OpenStore();
    store->Start({});
    Pass(*store, {Telemetry("a", 1), quiet(2), quiet(3)}, 1);
    ASSERT_TRUE(AwaitPass(*store, 1));
    store.reset();
    store = OpenStore();
    EXPECT_EQ(store->earlier().at("a").told, 2u);
    EXPECT_EQ(store->earlier().at("a").left_out_boot_ns, 300u);
    store->Start({"a"});
    Pass(*store, {Telemetry("a", 1), quiet(2), quiet(3), quiet(4), Telemetry("a", 6)}, 1);
    ASSERT_TRUE(AwaitPass(*store, 1));
    EXPECT_EQ(store->counters().left_out, 1u) << "4 alone";
    store->Destroyed(Box("a"));
    EXPECT_EQ(Exported("a")["a"].unexplained, 1u) << "5, which nothing stands for";
}

TEST_F(EventStoreTest, ADiskThatTakesNothingHoldsThePassAndLosesNothing) {
    std::atomic<bool> full{true};
    options_.buffer_bytes = 4096;
    options_.write = [&](int fd, const void* data, size_t size) -> ssize_t {
        if (full) return errno = EROFS, -1;
        return write(fd, data, size);
    };
    auto store = OpenStore();
    store->Start({});
    std::vector<v1::Event> events;
    for (uint64_t i = 1; i <= 500; ++i) events.push_back(Telemetry("a", i));
    Pass(*store, events, 1);
    ASSERT_TRUE(Until([&] { return !store->Health().ok(); }));
    EXPECT_THAT(std::string(store->Health().message()), testing::HasSubstr("EROFS"));
    store->EndPass(2);
    EXPECT_EQ(store->stored_pass(), 0u) << "the rings keep what they have";
    full = false;
    ASSERT_TRUE(AwaitPass(*store, 2));
    EXPECT_TRUE(Until([&] { return store->Health().ok(); }));
    store->Destroyed(Box("a"));
    EXPECT_TRUE(Exported("a")["a"].complete());
}

// As a node that starts ten of them at a time: books and heads do not grow with those that are gone.
TEST_F(EventStoreTest, TenThousandSandboxesThatLiveForAMomentAreAllComplete) {
    constexpr uint64_t kSandboxes = 10'000, kAtOnce = 10;
    options_.max_bytes = 256 << 20;
    options_.segment_bytes = 2 << 20;
    auto store = OpenStore();
    store->Start({});
    uint64_t pass = 0;
    for (uint64_t i = 0; i < kSandboxes; i += kAtOnce) {
        std::vector<v1::Event> events;
        for (uint64_t k = i; k < i + kAtOnce; ++k) {
            const std::string id = absl::StrCat("sbx_", k);
            events.push_back(Telemetry(id, 1));
            events.push_back(Violation(id, 2));
            v1::Event summary = Telemetry(id, 0);
            summary.set_kind("summary");
            summary.mutable_summary()->add_kinds()->set_kind("file");
            summary.mutable_summary()->mutable_kinds(0)->set_events(2);
            events.push_back(summary);
        }
        Pass(*store, events, ++pass);
        for (uint64_t k = i; k < i + kAtOnce; ++k) store->Destroyed(Box(absl::StrCat("sbx_", k)));
        // What the agent says itself is in no ring: more than the store waits with would be told as lost.
        if (pass % 200 == 0) {
            ASSERT_TRUE(AwaitPass(*store, pass));
        }
    }
    ASSERT_TRUE(AwaitPass(*store, pass));
    const auto reports = Exported(absl::StrCat("sbx_", kSandboxes - 1));
    EXPECT_EQ(reports.size(), kSandboxes);
    for (const auto& [id, report] : reports) ASSERT_TRUE(report.complete() && report.events == 4) << id << " " << report.first_fault;
    store.reset();
    EXPECT_LT(std::filesystem::file_size(options_.dir + "/heads"), ExportChain::kMaxSealed * 160) << "of the latest alone";
    EXPECT_TRUE(OpenStore()->earlier().empty());
}

TEST_F(EventStoreTest, TheAgentsOwnEventsAreBoundedAndTheirLossIsTold) {
    options_.max_bytes = 64 << 20;  // all of them, however late the reader is
    auto store = OpenStore();
    for (size_t i = 0; i < EventStore::kMaxOwnWaiting + 10; ++i) store->Take(Finding("a", i));
    EXPECT_EQ(store->counters().overflowed, 10u);
    store->Start({});
    ASSERT_TRUE(AwaitPass(*store, 1));
    store->Destroyed(Box("a"));
    EXPECT_EQ(Exported("a")[""].lost_records, 10u);
}

TEST_F(EventStoreTest, ASpoolThatCannotBeOpenedIsTriedAgain) {
    options_.dir = root_ + "/not/there";
    auto store = OpenStore();
    EXPECT_FALSE(store->Health().ok());
    store->Start({});
    Pass(*store, {Telemetry("a", 1)}, 1);
    EXPECT_EQ(store->stored_pass(), 0u);
    std::filesystem::create_directory(root_ + "/not");
    ASSERT_TRUE(AwaitPass(*store, 1));
    store->Destroyed(Box("a"));
    EXPECT_TRUE(Exported("a")["a"].complete());
}

}  // namespace
}  // namespace stockade::pipeline
