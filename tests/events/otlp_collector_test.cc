// A real OpenTelemetry collector before a real agent: what it has read and written again, and while it is away.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/tools/free_port.h"
#include "tests/tools/product.h"
#include "userspace/base/fd.h"
#include "userspace/model/json.h"

namespace stockade::testing_events {
namespace {

using testing::HasSubstr;
using tests::At;
using tests::Until;

constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kPolicy[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: reader}\nspec:\n  exec: {allow: "
    "[/usr/**, /bin/**]}\n"
    "  files: {read: [/usr/**, /bin/**, /lib/**, /dev/**], write: [/dev/**]}\n  network: {allow: []}\n  "
    "record: {files: all}\n";

class Collector : public testing::Test {
  protected:
    void SetUp() override {
        binary_ = absl::StrCat(tests::SourcePath("tests/events/otelcol"));
        FILE* pipe = popen(absl::StrCat(binary_, " --where").c_str(), "re");
        binary_ = std::string(absl::StripSuffix(*ReadAll(fileno(pipe), 4096), "\n"));
        ASSERT_EQ(pclose(pipe), 0);
        ASSERT_EQ(access(binary_.c_str(), X_OK), 0) << binary_ << " is not built: tests/events/otelcol";
        port_ = tests::FreePort();
        product_.Put("collector.yaml",
                     absl::StrCat("receivers: {otlp: {protocols: {http: {endpoint: \"127.0.0.1:", port_,
                                  "\"}}}}\nexporters: {file: {path: ", product_.Path("received.json"),
                                  ", append: true, flush_interval: 100ms}}\n"
                                  "service:\n  telemetry: {metrics: {level: none}}\n  pipelines: {logs: "
                                  "{receivers: [otlp], exporters: [file]}}\n"));
        product_.Configure(absl::StrCat(
            "agent_wait_seconds: 60\nevents:\n  exporters:\n    - {kind: otlp, endpoint: \"http://127.0.0.1:",
            port_, "/v1/logs\"}\n"));
        policy_ = product_.Put("reader.yaml", kPolicy);
    }
    void TearDown() override { StopCollector(); }
    void StartCollector() {
        const std::string log = absl::StrCat("collector", ++collectors_, ".err");
        collector_ = tests::Start(
            {.argv = {binary_, "--config", absl::StrCat("file:", product_.Path("collector.yaml"))},
             .out = product_.Path("collector.out"),
             .err = product_.Path(log)});
        ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get(log), "Everything is ready"); }, 60))
            << product_.Get(log);
    }
    void StopCollector() {
        if (collector_ <= 0) return;
        kill(collector_, SIGTERM);
        EXPECT_EQ(tests::Wait(collector_), 0);
        collector_ = 0;
    }
    tests::Ran Reads(const std::string& tag, int reads) {
        return product_.Run(policy_,
                            {"/bin/sh", "-c",
                             absl::StrCat("i=0; while [ $i -lt ", reads,
                                          " ]; do : </usr/bin/env; i=$((i+1)); done; echo done")},
                            {"--session", tag, "--trace", kTrace});
    }
    // Log records as the collector wrote them.
    std::vector<tests::Json> Records() {
        std::vector<tests::Json> records;
        for (const absl::string_view line :
             absl::StrSplit(product_.Get("received.json"), '\n', absl::SkipEmpty())) {
            const tests::Json request = tests::ParseJson(std::string(line));
            for (const tests::Json& resource :
                 request.struct_value().fields().at("resourceLogs").list_value().values())
                for (const tests::Json& scope :
                     resource.struct_value().fields().at("scopeLogs").list_value().values())
                    for (const tests::Json& record :
                         scope.struct_value().fields().at("logRecords").list_value().values())
                        records.push_back(record);
        }
        return records;
    }
    int Seals() {
        int seals = 0;
        for (const absl::string_view line :
             absl::StrSplit(product_.Get("received.json"), "\\\"kind\\\":\\\"seal\\\""))
            seals += !line.empty();
        return seals - 1;
    }
    std::string binary_, policy_;
    tests::Product product_;
    int port_ = 0;
    pid_t collector_ = 0;
    int collectors_ = 0;
};

TEST_F(Collector, ReadsEveryEventWithItsTraceAlsoOfWhileItWasAway) {
    StartCollector();
    EXPECT_EQ(Reads("first", 300).out, "done\n");
    ASSERT_TRUE(Until([&] { return Seals() == 1; }, 60)) << product_.Get("run/agent.log");
    StopCollector();
    EXPECT_EQ(Reads("second", 3000).out, "done\n") << "work goes on without it";
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get("run/agent.log"), "exporter otlp: "); }));
    // The agent as well.
    product_.StopAgent(SIGKILL);
    StartCollector();
    EXPECT_EQ(Reads("third", 300).out, "done\n");
    ASSERT_TRUE(Until([&] { return Seals() == 3; }, 60)) << Seals() << product_.Get("run/agent.log");
    product_.StopAgent(SIGTERM);
    StopCollector();
    std::string events;
    size_t traced = 0;
    const std::vector<tests::Json> records = Records();
    for (const tests::Json& record : records) {
        absl::StrAppend(&events, At(record, "body.stringValue"), "\n");
        const auto event = model::FromJsonLine(At(record, "body.stringValue"));
        ASSERT_TRUE(event.ok()) << event.status();
        EXPECT_EQ(At(record, "eventName"), absl::StrCat("dev.stockade.event.", event->kind(), ".v1"));
        // A seal is of no moment: there the time of the sending counts.
        EXPECT_EQ(At(record, "timeUnixNano"),
                  event->has_time()
                      ? absl::StrCat(event->time().seconds() * 1'000'000'000 + event->time().nanos())
                      : "");
        EXPECT_NE(At(record, "observedTimeUnixNano"), "");
        EXPECT_THAT(At(record, "severityText"), testing::AnyOf("INFO", "WARN", "ERROR", "FATAL"));
        if (event->sandbox().trace().empty()) continue;
        ++traced;
        EXPECT_EQ(At(record, "traceId"), "4bf92f3577b34da6a3ce929d0e0e4736");
        EXPECT_EQ(At(record, "spanId"), "00f067aa0ba902b7");
        EXPECT_EQ(At(record, "flags"), "1");
    }
    EXPECT_GT(traced, 3600u);
    tests::WriteText(product_.Path("events.jsonl"), events);
    const tests::Ran ran = product_.Stockade({"verify", product_.Path("events.jsonl")});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    int complete = 0;
    for (const absl::string_view line : absl::StrSplit(ran.out, '\n'))
        complete += absl::StartsWith(line, "complete");
    EXPECT_EQ(complete, 3) << ran.out;
    EXPECT_THAT(product_.Get("received.json"),
                testing::AllOf(HasSubstr("service.name"), HasSubstr("host.name"), HasSubstr("session.id")));
    printf("[  FIGURE  ] %zu records through the collector\n", records.size());
}

}  // namespace
}  // namespace stockade::testing_events
