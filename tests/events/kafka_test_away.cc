// Ten minutes without a broker at 5,000 events a second. Faked: the wait. The events that so long a time brings are appended as fast as they
// can be, a tenth of them, into a spool of a tenth of its usual bound; broker, spool, its bytes on the disk, pump and producer are real.
// STOCKADE_AWAY_EVENTS=3000000 makes all of them.
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "tests/events/kafka_fixture.h"
#include "userspace/base/clock.h"

namespace stockade::testing_events {
namespace {

constexpr uint64_t kTenMinutes = 600 * 5000;
constexpr uint64_t kUsualBound = uint64_t{4} << 30;
constexpr int kSandboxes = 50;

// As large as an agent's: 0.5 KB in the spool.
v1::Event Usual(const std::string& sandbox, uint64_t seq) {
    v1::Event event = seq % 50 == 0   ? pipeline::Finding(sandbox, seq)
                      : seq % 10 == 0 ? pipeline::Violation(sandbox, seq)
                                      : pipeline::Telemetry(sandbox, seq, 130);
    event.set_kernel_seq(seq);
    event.mutable_policy()->set_name("python-tool");
    event.mutable_policy()->set_hash(std::string(64, 'a'));
    event.mutable_process()->set_pid(4711);
    event.mutable_process()->set_exe("/usr/bin/python3.11");
    event.mutable_process()->set_cwd("/tmp/work");
    for (const char* argument : {"python3", "-m", "http.server", "--bind", "127.0.0.1"})
        event.mutable_process()->add_argv(argument);
    event.set_reason("the policy allows it, and what it is about is said here in a sentence");
    event.set_backend("signal");
    return event;
}

TEST_F(KafkaTest, TenMinutesWithoutABrokerLoseNothing) {
    uint64_t events = kTenMinutes / 10;
    if (const char* asked = getenv("STOCKADE_AWAY_EVENTS");
        asked != nullptr && !absl::SimpleAtoi(asked, &events))
        FAIL() << asked;
    MakeTopics("away", 3);
    options_.max_bytes =
        static_cast<uint64_t>(static_cast<double>(kUsualBound) * static_cast<double>(events) / kTenMinutes);
    options_.segment_bytes = 2 << 20;
    options_.commit_ns = 20'000'000;
    auto spool = Open();
    auto pump = Pump(*spool, {{"hostport", broker_->hostport()}, {"topic", "away"}});
    ASSERT_TRUE(pump->Start().ok());
    std::map<std::string, uint64_t> seq;
    uint64_t most = 0, made = 0;
    const auto append = [&](uint64_t count) {
        for (const uint64_t end = made + count; made < end; ++made) {
            const std::string sandbox = absl::StrCat("sbx_", made % kSandboxes);
            v1::Event event = Usual(sandbox, ++seq[sandbox]);
            ASSERT_TRUE(spool->Append(&event).ok());
            if (made % 1000 > 0) continue;
            ASSERT_TRUE(spool->Flush().ok());
            most = std::max(most, spool->counters().bytes);
        }
    };
    append(2000);
    ASSERT_TRUE(Await([&] { return pump->counters().delivered > 500; })) << pump->Health();
    broker_->Kill();
    const uint64_t begin = BootNow();
    append(events - 2000);
    const double seconds = static_cast<double>(BootNow() - begin) / 1e9;
    for (const auto& [sandbox, last] : seq) {
        v1::Sandbox closed;
        closed.set_id(sandbox);
        ASSERT_TRUE(spool->Seal(closed).ok());
    }
    ASSERT_TRUE(spool->Sync().ok());
    ASSERT_TRUE(Await([&] { return !pump->Health().ok(); })) << "nobody says that it is away";
    most = std::max(most, spool->counters().bytes);
    const uint64_t waiting = events - pump->counters().delivered;
    EXPECT_GT(waiting, events * 9 / 10) << "the broker was there: no test";
    EXPECT_LE(most, options_.max_bytes);
    EXPECT_EQ(spool->counters().lost_full, 0u);
    // The arithmetic of the whole ten minutes.
    const double each = static_cast<double>(spool->counters().bytes) / static_cast<double>(waiting);
    EXPECT_GT(each, 450.0) << "smaller than an agent's";
    EXPECT_LT(each * kTenMinutes, static_cast<double>(kUsualBound));
    ASSERT_TRUE(broker_->Restart().ok());
    const uint64_t back = BootNow(), all = events + kSandboxes;
    ASSERT_TRUE(Await([&] { return pump->counters().delivered == all; }, 600))
        << pump->counters().delivered << " of " << all << ": " << pump->Health();
    const double drained = static_cast<double>(BootNow() - back) / 1e9;
    pump->Stop(0);
    // Order too: of each sandbox in each partition.
    const Ran ran = VerifyKafka("--topic-prefix away --key " + key_->public_hex());
    EXPECT_EQ(ran.status, 0) << ran.text;
    EXPECT_EQ(Count(ran.text, "complete"), kSandboxes) << ran.text;
    printf(
        "[  FIGURE  ] %llu events of %.0f bytes without a broker: %llu bytes of %llu in the spool, made in "
        "%.1f s, delivered %.1f s after it is back\n",
        static_cast<unsigned long long>(waiting), each, static_cast<unsigned long long>(most),
        static_cast<unsigned long long>(options_.max_bytes), seconds, drained);
}

}  // namespace
}  // namespace stockade::testing_events
