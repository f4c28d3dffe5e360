#include "exporters/kafka/kafka_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "exporters/kafka/kafka.h"

namespace stockade::exporters {
namespace {

std::string ErrorOf(const ExporterOptions& options) {
    return std::string(ParseKafkaOptions(options).status().message());
}

TEST(KafkaOptions, WrongOnesAreNamed) {
    const struct {
        ExporterOptions options;
        const char* error;
    } rows[] = {
        {{}, "hostport is missing"},
        {{{"hostport", "h:1"}, {"hostprot", "x"}}, "no option \"hostprot\"; there are"},
        {{{"hostport", "h:1"}, {"topic.flie", "x"}}, "no option \"topic.flie\""},
        {{{"hostport", "h:1"}, {"topic", "a b"}}, "\"a b.process\" is no name of a topic"},
        {{{"hostport", "h:1"}, {"requiredacks", "none"}}, "no option \"requiredacks\""},
        {{{"hostport", "h:1"}, {"compression", "zip"}},
         "compression is one of none, gzip, snappy, lz4, zstd"},
        {{{"hostport", "h:1"}, {"format", "xml"}}, "json and ocsf"},
        {{{"hostport", "h:1"}, {"tls", "yes"}}, "tls is true or false"},
        {{{"hostport", "h:1"}, {"cacertfile", "/x"}}, "without tls"},
        {{{"hostport", "h:1"}, {"tls", "true"}, {"certfile", "/x"}}, "certfile and keyfile"},
        {{{"hostport", "h:1"}, {"sasl", "GSSAPI"}}, "sasl is one of"},
        {{{"hostport", "h:1"}, {"sasl", "PLAIN"}, {"username", "u"}}, "go together"},
        {{{"hostport", "h:1"}, {"username", "u"}, {"password", "p"}}, "go together"},
        {{{"hostport", "h:1"}, {"sasl", "PLAIN"}, {"username", "u"}, {"passwordfile", "/nonexistent"}},
         "/nonexistent"},
        {{{"hostport", "h:1"}, {"queuebytes", "1"}}, "queuebytes is 65536 to"},
    };
    for (const auto& row : rows) EXPECT_THAT(ErrorOf(row.options), testing::HasSubstr(row.error));
    EXPECT_THAT(ErrorOf({{"hostport", "h:1"}, {"pasword", "hunter2"}}),
                testing::Not(testing::HasSubstr("hunter2")));
}

TEST(KafkaOptions, RightOnesBecomeSettings) {
    const auto options = ParseKafkaOptions({{"hostport", "h:1"},
                                            {"topic", "soc"},
                                            {"topic.findings", "alerts"},
                                            {"tls", "true"},
                                            {"sasl", "SCRAM-SHA-256"},
                                            {"username", "u"},
                                            {"password", "p"}});
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->topics.at("findings"), "alerts");
    EXPECT_EQ(options->topics.at("file"), "soc.file");
    EXPECT_THAT(options->settings,
                testing::IsSupersetOf({std::pair<std::string, std::string>("security.protocol", "SASL_SSL"),
                                       {"compression.codec", "zstd"},
                                       {"bootstrap.servers", "h:1"}}));
}

// librdkafka takes each of the settings: it was built with TLS, SCRAM and every codec.
TEST(Kafka, EveryCodecAndMechanismIsBuiltIn) {
    for (const char* codec : {"none", "gzip", "snappy", "lz4", "zstd"}) {
        EXPECT_TRUE(MakeKafka({{"hostport", "127.0.0.1:1"}, {"compression", codec}}).ok()) << codec;
    }
    for (const char* sasl : {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}) {
        const auto made = MakeKafka({{"hostport", "127.0.0.1:1"},
                                     {"tls", "true"},
                                     {"sasl", sasl},
                                     {"username", "u"},
                                     {"password", "p"}});
        EXPECT_TRUE(made.ok()) << made.status();
    }
    EXPECT_THAT(std::string(MakeKafka({{"hostport", "h:1"}, {"tls", "true"}, {"cacertfile", "/nonexistent"}})
                                .status()
                                .message()),
                testing::HasSubstr("/nonexistent"));
}

}  // namespace
}  // namespace stockade::exporters
