// What reaches a real Apache Kafka while it is killed, paused, and lacks what it should have.
#include "tests/events/kafka_fixture.h"

#include <fstream>

namespace stockade::testing_events {
namespace {

using pipeline::ChainReport;
using pipeline::Spool;
using testing::HasSubstr;

v1::Event Mixed(const std::string& sandbox, uint64_t seq) {
    if (seq % 50 == 0) {
        v1::Event finding = pipeline::Finding(sandbox, seq);
        finding.set_kernel_seq(seq);  // no gap in the numbers
        return finding;
    }
    return seq % 10 == 0 ? pipeline::Violation(sandbox, seq) : pipeline::Telemetry(sandbox, seq);
}

TEST_F(KafkaTest, TwoKillsAndAPauseLoseNothingAndKeepTheOrder) {
    constexpr int kSandboxes = 50;
    constexpr int kEvents = 20'000;
    MakeTopics("kills", 3);
    options_.max_bytes = 256 << 20;
    options_.segment_bytes = 2 << 20;
    auto spool = Open();
    auto pump = Pump(*spool, {{"hostport", broker_->hostport()}, {"topic", "kills"}});
    ASSERT_TRUE(pump->Start().ok());
    std::map<std::string, uint64_t> seq;
    for (int i = 1; i <= kEvents; ++i) {
        const std::string sandbox = absl::StrCat("sbx_", i % kSandboxes);
        v1::Event event = Mixed(sandbox, ++seq[sandbox]);
        ASSERT_TRUE(spool->Append(&event).ok());
        ASSERT_TRUE(i % 100 != 0 || spool->Flush().ok());
        // In the middle of deliveries: some are under way.
        if (i == kEvents / 4 || i == kEvents / 2) {
            ASSERT_TRUE(Await([&] { return pump->counters().delivered > static_cast<uint64_t>(i) / 4; }))
                << pump->Health();
            broker_->Kill();
            ASSERT_TRUE(broker_->Restart().ok());
        }
        if (i == 3 * kEvents / 4) broker_->Pause();
    }
    for (const auto& [sandbox, last] : seq) {
        v1::Sandbox closed;
        closed.set_id(sandbox);
        ASSERT_TRUE(spool->Seal(closed).ok());
    }
    ASSERT_TRUE(spool->Flush().ok());
    broker_->Continue();
    const uint64_t all = kEvents + kSandboxes;
    EXPECT_TRUE(Await([&] { return pump->counters().delivered == all; }))
        << pump->counters().delivered << " of " << all << ": " << pump->Health();
    pump->Stop(0);
    uint64_t messages = 0;
    const auto reports = VerifyTopics("kills", &messages);
    EXPECT_EQ(reports.size(), static_cast<size_t>(kSandboxes));
    uint64_t repeated = 0;
    for (const auto& [sandbox, report] : reports) {
        EXPECT_TRUE(report.complete())
            << sandbox << ": " << report.missing << " missing, first at " << report.first_fault;
        repeated += report.repeated;
    }
    EXPECT_EQ(repeated, 0u);
    EXPECT_EQ(spool->counters().lost_full, 0u);
    printf(
        "[  FIGURE  ] %d events, 2 kills, 1 pause: %llu messages, %llu repeated, %llu failed and sent "
        "again\n",
        kEvents, static_cast<unsigned long long>(messages), static_cast<unsigned long long>(repeated),
        static_cast<unsigned long long>(pump->counters().failed));
}

// The producer dies as well: a second process takes over its spool.
TEST_F(KafkaTest, AProducerThatDiesRepeatsButLosesNothing) {
    MakeTopics("dies", 1);
    auto spool = Open();
    auto pump = Pump(*spool, {{"hostport", broker_->hostport()}, {"topic", "dies"}});
    ASSERT_TRUE(pump->Start().ok());
    for (uint64_t i = 1; i <= 2000; ++i) {
        v1::Event event = Mixed("a", i);
        ASSERT_TRUE(spool->Append(&event).ok());
    }
    ASSERT_TRUE(spool->Flush().ok());
    ASSERT_TRUE(Await([&] { return pump->counters().delivered > 100; })) << pump->Health();
    // As kill -9 leaves it: what was acknowledged since the last Sync is not on record.
    std::filesystem::copy(options_.dir, root_ + "/copy", std::filesystem::copy_options::recursive);
    ASSERT_TRUE(Await([&] { return pump->counters().delivered == 2000; }));
    pump->Stop(0);
    spool.reset();
    options_.dir = root_ + "/copy";
    spool = Open();
    pump = Pump(*spool, {{"hostport", broker_->hostport()}, {"topic", "dies"}});
    ASSERT_TRUE(pump->Start().ok());
    v1::Sandbox sandbox;
    sandbox.set_id("a");
    ASSERT_TRUE(spool->Seal(sandbox).ok());
    ASSERT_TRUE(spool->Flush().ok());
    EXPECT_TRUE(Await([&] { return pump->counters().delivered == 2001; })) << pump->counters().delivered;
    pump->Stop(0);
    uint64_t marked = 0;
    std::vector<v1::Event> events;
    for (const char* name : {"file", "findings", "lifecycle"}) {
        const auto topic = broker_->Read(absl::StrCat("dies.", name));
        ASSERT_TRUE(topic.ok()) << topic.status();
        for (const auto& message : *topic) {
            marked += absl::StrContains(message.headers, "stockade-again=true");
            events.push_back(*model::FromJsonLine(message.value));
        }
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const auto& a, const auto& b) { return a.export_seq() < b.export_seq(); });
    const ChainReport report = Verify(events)["a"];
    EXPECT_TRUE(report.complete()) << report.first_fault;
    EXPECT_EQ(report.repeated, 2000u);
    EXPECT_EQ(marked, 2000u) << "each that may be there already says so";
}

TEST_F(KafkaTest, ATopicThatIsMissingIsWaitedFor) {
    auto spool = Open();
    auto pump = Pump(*spool, {{"hostport", broker_->hostport()}, {"topic", "late"}});
    ASSERT_TRUE(pump->Start().ok());
    for (uint64_t i = 1; i <= 50; ++i) {
        v1::Event event = pipeline::Telemetry("a", i);
        ASSERT_TRUE(spool->Append(&event).ok());
    }
    ASSERT_TRUE(spool->Flush().ok());
    EXPECT_TRUE(Await([&] { return pump->counters().failed >= 50; }));
    EXPECT_THAT(std::string(pump->Health().message()), HasSubstr("UNKNOWN_TOPIC"));
    EXPECT_EQ(pump->counters().delivered, 0u);
    MakeTopics("late", 1);
    EXPECT_TRUE(Await([&] { return pump->counters().delivered == 50; })) << pump->Health();
    EXPECT_TRUE(pump->Health().ok());
    pump->Stop(0);
    uint64_t messages = 0;
    EXPECT_FALSE(VerifyTopics("late", &messages)["a"].faulty());
    EXPECT_EQ(messages, 50u);
}

TEST_F(KafkaTest, AMessageThatIsTooLargeIsToldAndHoldsNothingUp) {
    MakeTopics("small", 1);
    ASSERT_TRUE(broker_->CreateTopic("tiny.file", 1, "2000").ok());
    options_.max_bytes = 64 << 20;
    auto spool = Open();
    auto pump = Pump(*spool, {{"hostport", broker_->hostport()},
                              {"topic", "small"},
                              {"topic.file", "tiny.file"},
                              {"compression", "none"}});
    ASSERT_TRUE(pump->Start().ok());
    const auto append = [&](uint64_t seq, size_t bytes) {
        v1::Event event = pipeline::Telemetry("a", seq, bytes);
        ASSERT_TRUE(spool->Append(&event).ok());
        ASSERT_TRUE(spool->Flush().ok());
        ASSERT_TRUE(Await([&] { return pump->counters().delivered + pump->counters().rejected >= seq; }))
            << pump->Health();
    };
    append(1, 40);
    append(2, 5000);  // the broker refuses it
    append(3, 40);
    append(4, size_t{2} << 20);  // the client does, before it is sent
    append(5, 40);
    ASSERT_TRUE(spool->Flush().ok());
    EXPECT_TRUE(Await([&] { return pump->counters().delivered == 5; }))
        << pump->counters().delivered;  // three, and what tells of two
    EXPECT_EQ(pump->counters().rejected, 2u);
    pump->Stop(0);
    std::vector<v1::Event> events;
    for (const char* topic : {"tiny.file", "small.lifecycle"}) {
        const auto read = broker_->Read(topic);
        ASSERT_TRUE(read.ok()) << read.status();
        for (const auto& message : *read) events.push_back(*model::FromJsonLine(message.value));
    }
    std::sort(events.begin(), events.end(),
              [](const auto& a, const auto& b) { return a.export_seq() < b.export_seq(); });
    const ChainReport report = Verify(events)["a"];
    EXPECT_FALSE(report.faulty()) << report.missing;
    EXPECT_EQ(report.lost, 2u);
}

TEST_F(KafkaTest, VerifyReadsTheTopicsThemselves) {
    MakeTopics("verify", 3);
    auto spool = Open();
    auto pump = Pump(*spool, {{"hostport", broker_->hostport()}, {"topic", "verify"}});
    ASSERT_TRUE(pump->Start().ok());
    for (uint64_t i = 1; i <= 300; ++i) {
        for (const char* sandbox : {"a", "b"}) {
            v1::Event event = Mixed(sandbox, i);
            ASSERT_TRUE(spool->Append(&event).ok());
        }
    }
    v1::Sandbox closed;
    closed.set_id("a");
    ASSERT_TRUE(spool->Seal(closed).ok());
    ASSERT_TRUE(spool->Flush().ok());
    ASSERT_TRUE(Await([&] { return pump->counters().delivered == 601; })) << pump->Health();
    pump->Stop(0);
    const std::string key = " --key " + key_->public_hex();
    Ran ran = VerifyKafka("--topic-prefix verify" + key);
    EXPECT_EQ(ran.status, 2) << ran.text;
    EXPECT_THAT(ran.text, testing::AllOf(HasSubstr("complete     n1 a: 301 events"), HasSubstr("open         n1 b: 300 events")));
    ran = VerifyKafka("--topic-prefix verify -o json" + key);
    EXPECT_THAT(ran.text, testing::AllOf(HasSubstr("\"exit_code\":2"), HasSubstr("\"state\":\"complete\"")));

    // What somebody else puts there shows: here what belongs to another topic, a second time and later.
    ran = VerifyKafka("--topic-prefix verify --kafka-option topic.audit=verify.file");
    EXPECT_EQ(ran.status, 2) << "a topic is read once: " << ran.text;
    v1::Event forged = Mixed("a", 7);
    forged.set_export_seq(7);
    forged.set_chain(std::string(64, 'a'));
    ASSERT_TRUE(Produce("verify.file", model::ToJsonLine(forged)).ok());
    ASSERT_TRUE(Produce("verify.audit", "no event").ok());
    ran = VerifyKafka("--topic-prefix verify");
    EXPECT_EQ(ran.status, 1) << ran.text;
    EXPECT_THAT(ran.text, testing::AllOf(HasSubstr("FAULTY       n1 a"), HasSubstr("1 with two contents"), HasSubstr("1 lines are no events"),
                                         HasSubstr("verify.audit[")));

    ran = VerifyKafka("--topic-prefix nowhere");
    EXPECT_EQ(ran.status, 125) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("topic nowhere.audit: UNKNOWN_TOPIC"));
    ran = VerifyKafka("--kafka-option nonsense=1");
    EXPECT_EQ(ran.status, 125) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("no option \"nonsense\""));
    EXPECT_EQ(Stockade("verify").status, 125);
}

// As an auditor who has a login of his own.
TEST_F(KafkaTest, VerifyReadsOverTlsAndALogin) {
    MakeTopics("login", 1);
    const std::string options = "--topic-prefix login --kafka-option tls=true --kafka-option cacertfile=" + broker_->folder() + "/ca.pem ";
    std::ofstream(root_ + "/password") << "alicepw\n";
    Ran ran = Stockade("verify --kafka " + broker_->sasl_hostport() + " " + options +
                       "--kafka-option sasl=SCRAM-SHA-512 --kafka-option username=alice --kafka-option passwordfile=" + root_ + "/password");
    EXPECT_EQ(ran.status, 2) << "they are empty: " << ran.text;
    std::ofstream(root_ + "/password") << "wrong\n";
    ran = Stockade("verify --kafka " + broker_->sasl_hostport() + " " + options +
                   "--kafka-option sasl=SCRAM-SHA-512 --kafka-option username=alice --kafka-option passwordfile=" + root_ + "/password");
    EXPECT_EQ(ran.status, 125) << ran.text;
    EXPECT_THAT(ran.text, HasSubstr("uthentication"));
}

TEST_F(KafkaTest, MessagesCarryKeyHeadersAndTheChosenFormat) {
    MakeTopics("form", 4);
    auto spool = Open();
    auto pump = Pump(
        *spool,
        {{"hostport", broker_->hostport()}, {"topic", "form"}, {"format", "ocsf"}, {"compression", "lz4"}});
    ASSERT_TRUE(pump->Start().ok());
    for (uint64_t i = 1; i <= 20; ++i) {
        v1::Event event = pipeline::Telemetry("sbx_1", i);
        event.mutable_sandbox()->set_session(absl::StrCat("s-", i % 2));
        ASSERT_TRUE(spool->Append(&event).ok());
    }
    ASSERT_TRUE(spool->Flush().ok());
    ASSERT_TRUE(Await([&] { return pump->counters().delivered == 20; })) << pump->Health();
    pump->Stop(0);
    const auto messages = broker_->Read("form.file");
    ASSERT_TRUE(messages.ok()) << messages.status();
    ASSERT_EQ(messages->size(), 20u);
    std::map<std::string, std::set<int>> partitions;
    for (const auto& message : *messages) {
        partitions[message.key].insert(message.partition);
        EXPECT_THAT(message.headers, testing::AllOf(HasSubstr("ce_specversion=1.0"),
                                                    HasSubstr("ce_type=dev.stockade.event.file.v1"),
                                                    HasSubstr("ce_source=/stockade/node/n1"),
                                                    HasSubstr("content-type=application/json")));
        EXPECT_THAT(message.value, HasSubstr("\"class_uid\":1001"));
    }
    EXPECT_EQ(partitions.size(), 2u) << "by session";
    for (const auto& [key, where] : partitions) EXPECT_EQ(where.size(), 1u) << key;
}

}  // namespace
}  // namespace stockade::testing_events
