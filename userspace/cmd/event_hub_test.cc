// Two threads, as in the agent: one reads the rings, the other takes what came and closes books. Run it under tsan.
#include "userspace/cmd/event_hub.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <filesystem>

#include "exporters/jsonl/jsonl_file.h"
#include "userspace/base/clock.h"
#include "userspace/decode/test_records.h"

namespace stockade::cmd {
namespace {

constexpr uint64_t kPatience = 30'000'000'000;

// Rings that the test fills.
class FakeSensor : public kernel::Sensor {
  public:
    template <typename Record>
    void Add(const Record& record) {
        const auto bytes = decode::Bytes(record);
        std::lock_guard lock(mutex_);
        records_.emplace_back(bytes.begin(), bytes.end());
    }
    StatusOr<int> PollRings(int timeout_ms, const RecordFn& fn) override {
        std::deque<std::vector<uint8_t>> records;
        {
            std::lock_guard lock(mutex_);
            records.swap(records_);
        }
        for (const auto& record : records) fn(kernel::Ring::kTelemetry, record);
        handed_ += records.size();
        if (records.empty() && timeout_ms > 0) poll(nullptr, 0, 1);
        return static_cast<int>(records.size());
    }

    void WakeRings() override {}

    // Positions are counts of records.
    kernel::RingPosition Handed() const override { return {0, 0, handed_}; }
    void ReleaseRings(const kernel::RingPosition& upto) override { released_ = upto[2]; }
    bool RingsHalfHeld() const override { return handed_ - released_ >= half_; }
    uint64_t released() const { return released_; }
    void SetHalf(uint64_t records) { half_ = records; }

    kernel::Backend backend() const override { return kernel::Backend::kSignal; }
    model::FeatureSet missing() const override { return {}; }
    bool adopted() const override { return false; }
    sk_hash_keys keys() const override { return {}; }
    StatusOr<uint32_t> PublishPolicy(std::span<const union sk_cell>) override { return 0; }
    Status RetirePolicy(uint32_t) override { return {}; }
    StatusOr<kernel::SlotRef> BindSlot(const Binding&) override { return kernel::SlotRef{}; }
    Status AttachNetwork(int) override { return {}; }
    Status DetachNetwork(uint64_t) override { return {}; }
    Status RemoveEarlierSets() override { return {}; }
    Status Label(const kernel::SlotRef&, int) override { return {}; }
    StatusOr<int> LabelPresent(const kernel::SlotRef&) override { return 0; }
    Status SwapPolicy(const kernel::SlotRef&, uint32_t) override { return {}; }
    Status Condemn(const kernel::SlotRef&, uint32_t) override { return {}; }
    StatusOr<sk_state> ReadState(const kernel::SlotRef&) override { return sk_state{}; }
    Status FreeSlot(const kernel::SlotRef&) override { return {}; }
    Status Rest() override { return {}; }
    Status SetDnsKnown(std::span<const kernel::DnsKnown>) override { return {}; }
    StatusOr<kernel::DnsBudgetRef> OpenDnsBudget(const sk_dns_budget&, std::span<const kernel::DnsZoneSpent>) override { return kernel::DnsBudgetRef{}; }
    StatusOr<std::vector<kernel::DnsZoneSpent>> ReadDnsZones() const override { return std::vector<kernel::DnsZoneSpent>{}; }
    StatusOr<sk_dns_budget> ReadDnsBudget(const kernel::DnsBudgetRef&) const override { return absl::NotFoundError(""); }
    Status CloseDnsBudget(const kernel::DnsBudgetRef&) override { return {}; }
    Status BindDns(const kernel::SlotRef&, const kernel::DnsBinding&) override { return {}; }
    Status PinAddress(const kernel::SlotRef&, const sk_dns_server&, int, uint16_t, uint64_t, bool) override { return {}; }
    Status RefundDns(const sk_dns_refund&) override { return {}; }
    StatusOr<std::vector<LiveSlot>> LiveSlots() override { return std::vector<LiveSlot>(); }
    StatusOr<std::vector<uint64_t>> ReadErrors() override { return std::vector<uint64_t>(); }
    StatusOr<std::vector<uint64_t>> ReadDnsAnswers() override { return std::vector<uint64_t>(); }
    StatusOr<std::vector<ProgramInfo>> Programs() override { return std::vector<ProgramInfo>(); }
    StatusOr<uint64_t> LeftOut() override { return uint64_t{0}; }

  private:
    std::mutex mutex_;
    std::deque<std::vector<uint8_t>> records_;
    std::atomic<uint64_t> handed_{0}, released_{0}, half_{1000000};
};

sk_file File(uint64_t seq, bool refused) {
    auto record = decode::MakeRecord<sk_file>(SK_KIND_FILE, seq);
    if (refused) decode::Refuse(&record.head, SK_CODE_READ_NOT_ALLOWED, SK_SECTION_FILES);
    record.op = SK_FILE_OPEN_READ;
    decode::SetPath({"etc", "shadow"}, &record.path);
    return record;
}

class Hub : public ::testing::Test {
  protected:
    void SetUp() override {
        auto hub = EventHub::Create(sensor_, {.node = "n", .lookup = decode::TestLookup()});
        ASSERT_TRUE(hub.ok()) << hub.status();
        hub_ = *std::move(hub);
        hub_->path().Track(1, 2, 1);
        hub_->SetBusy(true);
        hub_->SetListening(true);
    }
    // False when nothing wakes us.
    bool AwaitWake() {
        pollfd woken{.fd = hub_->event_fd(), .events = POLLIN, .revents = 0};
        return poll(&woken, 1, static_cast<int>(kPatience / 1'000'000)) == 1;
    }
    bool AwaitDrain() {
        const uint64_t want = hub_->RequestDrain();
        const uint64_t end = BootNow() + kPatience;
        while (hub_->drained() < want && BootNow() < end) {
            pollfd woken{.fd = hub_->event_fd(), .events = POLLIN, .revents = 0};
            (void)poll(&woken, 1, 10);
            (void)hub_->TakeUrgent();
        }
        return hub_->drained() >= want;
    }
    FakeSensor sensor_;
    std::unique_ptr<EventHub> hub_;
};

TEST_F(Hub, HandsOnInOrderWhileTheAgentPublishes) {
    hub_->Start();
    constexpr int kRecords = 2000;
    size_t files = 0, findings = 0, urgent = 0;
    const uint64_t end = BootNow() + kPatience;
    for (int i = 1; (files < kRecords || findings < kRecords) && BootNow() < end; ++i) {
        if (i <= kRecords) {
            sensor_.Add(File(static_cast<uint64_t>(i), i % 100 == 0));
            v1::Event finding;
            finding.mutable_finding()->set_rule("r");
            hub_->path().Publish(finding);
        } else {
            (void)poll(nullptr, 0, 1);
        }
        for (const v1::Event& event : hub_->TakeUrgent()) urgent += event.verdict() == "kill-sandbox";
        for (const StreamedEvent& streamed : hub_->TakeEvents()) {
            v1::Event event;
            ASSERT_TRUE(event.ParseFromString(streamed.bytes));
            findings += event.has_finding();
            if (event.has_file()) {
                EXPECT_EQ(event.kernel_seq(), ++files);
            }
        }
    }
    EXPECT_EQ(files, size_t{kRecords});
    EXPECT_EQ(findings, size_t{kRecords});
    EXPECT_GE(urgent, 1u);
    EXPECT_EQ(hub_->TakeDropped(), 0u);
    ASSERT_TRUE(AwaitDrain());
    sk_state state{};
    state.seq = kRecords;
    EXPECT_EQ(hub_->path().Finish(1, 2, &state).lost(), 0u);
}

TEST_F(Hub, WhatCondemnsWakesOnceForEachSandbox) {
    sensor_.Add(File(1, true));
    sensor_.Add(File(2, true));
    const uint64_t want = hub_->RequestDrain();
    hub_->Start();
    ASSERT_TRUE(AwaitWake());
    const uint64_t end = BootNow() + kPatience;
    while (hub_->drained() < want && BootNow() < end) (void)poll(nullptr, 0, 1);
    EXPECT_EQ(hub_->TakeUrgent().size(), 1u);
    sensor_.Add(File(3, true));
    ASSERT_TRUE(AwaitWake());
}

TEST_F(Hub, HeldItReadsNothingAndEndsAllTheSame) {
    hub_->SetHold(true);
    hub_->Start();
    sensor_.Add(File(1, false));
    EXPECT_EQ(hub_->drained(), 0u);
    EXPECT_TRUE(hub_->TakeEvents().empty());
    hub_->SetHold(false);
    ASSERT_TRUE(AwaitWake());
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(hub_->TakeEvents().size(), 1u);
    hub_->SetHold(true);
    hub_.reset();  // must not wait for a release
}

TEST_F(Hub, WhatIsNotDeliveredStaysInTheRings) {
    hub_->Start();
    for (uint64_t i = 1; i <= 3; i++) sensor_.Add(File(i, false));
    ASSERT_TRUE(AwaitDrain());
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(sensor_.released(), 0u);
    EXPECT_EQ(hub_->TakeEvents().size(), 3u);
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(sensor_.released(), 0u);
    sensor_.Add(File(4, false));  // taken with the next
    ASSERT_TRUE(AwaitDrain());
    hub_->Delivered();
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(sensor_.released(), 3u);
    EXPECT_EQ(hub_->TakeEvents().size(), 1u);
    hub_->Delivered();
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(sensor_.released(), 4u);
    EXPECT_EQ(hub_->early_releases(), 0u);
}

// An event that waits for an earlier number has reached nobody.
TEST_F(Hub, WhatWaitsBehindAGapStaysInTheRings) {
    hub_->Start();
    sensor_.Add(File(1, false));
    sensor_.Add(File(3, false));
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(hub_->TakeEvents().size(), 1u);
    hub_->Delivered();
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(sensor_.released(), 0u);
    sensor_.Add(File(2, false));
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(hub_->TakeEvents().size(), 2u);
    hub_->Delivered();
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(sensor_.released(), 3u);
}

TEST_F(Hub, HalfARingIsReleasedAllTheSameAndCounted) {
    sensor_.SetHalf(3);
    hub_->Start();
    for (uint64_t i = 1; i <= 3; i++) sensor_.Add(File(i, false));
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(sensor_.released(), 3u);
    EXPECT_EQ(hub_->early_releases(), 1u);
    EXPECT_EQ(hub_->TakeEvents().size(), 3u);
}

TEST_F(Hub, WhereNobodyListensNothingIsHeld) {
    hub_->SetListening(false);
    hub_->Start();
    sensor_.Add(File(1, false));
    sensor_.Add(File(3, false));
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(sensor_.released(), 2u);
}

// With a store: a disk that can be made to take nothing, and a file that gets what is stored.
class StoringHub : public Hub {
  protected:
    void SetUp() override {
        char name[] = "/tmp/hub_store_XXXXXX";
        root_ = mkdtemp(name);
        pipeline::EventStore::Options options;
        options.key_path = root_ + "/node.key";
        options.spool.dir = root_ + "/spool";
        options.spool.node = "n";
        options.spool.write = [this](int fd, const void* data, size_t size) -> ssize_t {
            if (full_) return errno = EROFS, -1;
            return write(fd, data, size);
        };
        options.readers = {{"file", [this] { return exporters::MakeJsonlFile({{"path", root_ + "/events"}}); }}};
        store_ = pipeline::EventStore::Open(std::move(options));
        auto hub = EventHub::Create(sensor_, {.node = "n", .lookup = decode::TestLookup()}, {}, store_.get());
        ASSERT_TRUE(hub.ok()) << hub.status();
        hub_ = *std::move(hub);
        hub_->path().Track(1, 2, 1);
        hub_->SetBusy(true);
        store_->Start({});
        hub_->Start();
    }
    void TearDown() override {
        hub_.reset();
        store_.reset();
        std::filesystem::remove_all(root_);
    }
    bool AwaitReleased(uint64_t records) {
        const uint64_t end = BootNow() + kPatience;
        while (sensor_.released() < records && BootNow() < end) {
            if (!AwaitDrain()) return false;
        }
        return sensor_.released() >= records;
    }
    std::string root_;
    std::atomic<bool> full_{false};
    std::unique_ptr<pipeline::EventStore> store_;
};

TEST_F(StoringHub, WhatIsNotStoredStaysInTheRingsWhateverElse) {
    sensor_.Add(File(1, false));
    EXPECT_TRUE(AwaitReleased(1)) << "nobody listens, and it is stored";
    full_ = true;
    sensor_.SetHalf(1);  // half full, which makes clients be given up
    sensor_.Add(File(2, true));
    ASSERT_TRUE(AwaitDrain());
    const uint64_t end = BootNow() + kPatience;
    while (store_->Health().ok() && BootNow() < end) ASSERT_TRUE(AwaitDrain());
    EXPECT_FALSE(store_->Health().ok());
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(sensor_.released(), 1u);
    full_ = false;
    EXPECT_TRUE(AwaitReleased(2));
}

TEST_F(StoringHub, WhoListensIsWaitedForToo) {
    hub_->SetListening(true);
    sensor_.Add(File(1, false));
    ASSERT_TRUE(AwaitDrain());
    const uint64_t end = BootNow() + kPatience;
    while (store_->counters().stored < 1 && BootNow() < end) ASSERT_TRUE(AwaitDrain());
    ASSERT_TRUE(AwaitDrain());
    EXPECT_EQ(store_->counters().stored, 1u);
    EXPECT_EQ(sensor_.released(), 0u);
    EXPECT_EQ(hub_->TakeEvents().size(), 1u);
    hub_->Delivered();
    EXPECT_TRUE(AwaitReleased(1));
}

}  // namespace
}  // namespace stockade::cmd
