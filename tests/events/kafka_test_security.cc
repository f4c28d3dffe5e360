// Who may write: TLS with certificates of both sides, SCRAM, and what becomes of events while it is refused.
#include "tests/events/kafka_fixture.h"

namespace stockade::testing_events {
namespace {

class KafkaSecurityTest : public KafkaTest {
  protected:
    exporters::ExporterOptions Tls(const std::string& hostport) {
        return {{"hostport", hostport},
                {"topic", "secure"},
                {"tls", "true"},
                {"cacertfile", broker_->folder() + "/ca.pem"}};
    }
    static void SetUpTestSuite() {
        KafkaTest::SetUpTestSuite();
        ASSERT_NE(broker_, nullptr);
        ASSERT_TRUE(broker_->CreateTopic("secure.file", 1).ok());
    }
    void Append(pipeline::Spool& spool, uint64_t seq) {
        v1::Event event = pipeline::Telemetry("a", seq);
        ASSERT_TRUE(spool.Append(&event).ok());
        ASSERT_TRUE(spool.Flush().ok());
    }
    void ExpectDelivered(const exporters::ExporterOptions& options) {
        auto spool = Open();
        auto pump = Pump(*spool, options);
        ASSERT_TRUE(pump->Start().ok());
        Append(*spool, 1);
        EXPECT_TRUE(Await([&] { return pump->counters().delivered == 1; })) << pump->Health();
        pump->Stop(0);
    }
    // Refused: said why, nothing lost; delivered once the options are right.
    void ExpectRefusedThenDelivered(const exporters::ExporterOptions& wrong,
                                    const exporters::ExporterOptions& right, const std::string& why) {
        auto spool = Open();
        auto pump = Pump(*spool, wrong);
        ASSERT_TRUE(pump->Start().ok());
        Append(*spool, 1);
        EXPECT_TRUE(Await([&] { return absl::StrContains(pump->Health().message(), why); }))
            << pump->Health();
        EXPECT_EQ(pump->counters().delivered, 0u);
        pump->Stop(0);
        spool->Rewind("r");
        pump = Pump(*spool, right);
        ASSERT_TRUE(pump->Start().ok());
        EXPECT_TRUE(Await([&] { return pump->counters().delivered == 1; })) << pump->Health();
        pump->Stop(0);
    }
};

TEST_F(KafkaSecurityTest, MutualTls) {
    exporters::ExporterOptions right = Tls(broker_->tls_hostport());
    const exporters::ExporterOptions without = right;
    right["certfile"] = broker_->folder() + "/client.pem";
    right["keyfile"] = broker_->folder() + "/client.key";
    ExpectDelivered(right);
    std::filesystem::remove_all(options_.dir);
    ExpectRefusedThenDelivered(without, right, "SSL");
}

TEST_F(KafkaSecurityTest, AServerOfAnotherAuthorityIsNotTrusted) {
    exporters::ExporterOptions right = Tls(broker_->sasl_hostport());
    right.insert({{"sasl", "SCRAM-SHA-256"}, {"username", "alice"}, {"password", "alicepw"}});
    exporters::ExporterOptions wrong = right;
    wrong["cacertfile"] = broker_->folder() + "/client.pem";
    ExpectRefusedThenDelivered(wrong, right, "certificate verify failed");
}

TEST_F(KafkaSecurityTest, Scram) {
    for (const char* mechanism : {"SCRAM-SHA-256", "SCRAM-SHA-512"}) {
        exporters::ExporterOptions right = Tls(broker_->sasl_hostport());
        right.insert({{"sasl", mechanism}, {"username", "alice"}, {"password", "alicepw"}});
        ExpectDelivered(right);
        std::filesystem::remove_all(options_.dir);
        exporters::ExporterOptions wrong = right;
        wrong["password"] = "not-alices";
        ExpectRefusedThenDelivered(wrong, right, "AUTHENTICATION");
        std::filesystem::remove_all(options_.dir);
    }
}

}  // namespace
}  // namespace stockade::testing_events
