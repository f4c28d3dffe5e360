// What a real Prometheus would scrape of a real agent: the numbers are right, the form is what promtool takes, and whatever dashboard and
// alerts ask for is there.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/tools/free_port.h"
#include "tests/tools/product.h"
#include "userspace/base/fd.h"

namespace stockade::testing_service {
namespace {

using tests::Until;

constexpr char kPolicy[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: strict}\nspec:\n"
    "  exec: {allow: [/bin/sh, /usr/bin/dash, /bin/true, /usr/bin/true], violation: kill-sandbox}\n"
    "  files: {read: [/usr/**, /lib/**, /dev/**], write: [/dev/**], violation: deny}\n  network: {allow: "
    "[]}\n";

sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

class Metrics : public testing::Test {
  protected:
    void Listen(const std::string& more = "") {
        port_ = tests::FreePort();
        product_.Configure(absl::StrCat("metrics: {listen: \"127.0.0.1:", port_, "\"}\n", more));
        policy_ = product_.Put("strict.yaml", kPolicy);
    }
    Fd Connect() const {
        Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_in address = Loopback(port_);
        return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0
                   ? std::move(fd)
                   : Fd();
    }
    // The body; empty when nobody answers.
    std::string Scrape() const {
        const Fd fd = Connect();
        if (!fd.ok()) return "";
        const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        EXPECT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
        std::string text;
        char buffer[16384];
        pollfd entry{.fd = fd.get(), .events = POLLIN, .revents = 0};
        while (poll(&entry, 1, 20'000) > 0) {
            const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
            if (n <= 0) break;
            text.append(buffer, static_cast<size_t>(n));
        }
        const size_t body = text.find("\r\n\r\n");
        return body == text.npos ? "" : text.substr(body + 4);
    }
    // -1 = the series is not there.
    static double Value(const std::string& scrape, const std::string& series) {
        for (const absl::string_view line : absl::StrSplit(scrape, '\n')) {
            double value = 0;
            if (absl::StartsWith(line, series + " ") &&
                absl::SimpleAtod(line.substr(series.size() + 1), &value))
                return value;
        }
        return -1;
    }
    // A scrape that has it; numbers are a second old at most.
    std::string Await(const std::string& series, double value) {
        std::string scrape;
        EXPECT_TRUE(Until([&] { return Value(scrape = Scrape(), series) == value; }))
            << series << " is " << Value(scrape, series) << ", not " << value << "\n"
            << product_.Get("run/agent.log");
        return scrape;
    }
    tests::Product product_;
    uint16_t port_ = 0;
    std::string policy_;
};

TEST_F(Metrics, AreRightWellFormedAndWhatDashboardAndAlertsAskFor) {
    Listen(absl::StrCat("events:\n  exporters:\n    - {kind: jsonl, path: ", product_.Path("events.jsonl"),
                        "}\n"));
    ASSERT_EQ(product_.Run(policy_, {"/bin/sh", "-c", ": </usr/bin/env"}).status, 0);
    ASSERT_EQ(product_.Run(policy_, {"/bin/sh", "-c", ": >/etc/x; : >/etc/y; exit 3"}).status, 2);
    ASSERT_EQ(product_.Run(policy_, {"/bin/sh", "-c", "/bin/ls /"}).status, 137);
    std::string scrape = Await("stockade_sandboxes_ended_total{end=\"policy\"}", 1);
    EXPECT_EQ(Value(scrape, "stockade_sandboxes_ended_total{end=\"exited\"}"), 2);
    EXPECT_EQ(Value(scrape, "stockade_sandboxes_started_total"), 3);
    EXPECT_EQ(Value(scrape, "stockade_kills_total{by=\"policy\"}"), 1);
    EXPECT_EQ(Value(scrape, "stockade_kill_duration_seconds_count"), 1);
    EXPECT_EQ(Value(scrape, "stockade_sandboxes{state=\"running\"}"), 0);
    EXPECT_EQ(Value(scrape, "stockade_condition{type=\"Ready\"}"), 1);
    EXPECT_EQ(Value(scrape, "stockade_condition{type=\"Degraded\"}"), 0);
    EXPECT_EQ(Value(scrape, "stockade_violations_total{section=\"exec\"}"), 1);
    EXPECT_EQ(Value(scrape, "stockade_violations_total{section=\"network\"}"), 0);
    EXPECT_EQ(Value(scrape, "stockade_refusals_total{section=\"exec\",lock=\"bpf\"}"), 1);
    EXPECT_GE(Value(scrape, "stockade_kernel_records_total"), 3);
    EXPECT_EQ(Value(scrape, "stockade_events_lost_total"), 0);
    EXPECT_EQ(Value(scrape, "stockade_exporter_up{exporter=\"jsonl\"}"), 1);
    scrape = Await("stockade_exporter_events_total{exporter=\"jsonl\",result=\"delivered\"}",
                   Value(scrape, "stockade_events_stored_total"));
    EXPECT_GE(Value(scrape, "stockade_delivery_duration_seconds_count{exporter=\"jsonl\"}"), 3);
    EXPECT_GE(Value(scrape, "stockade_event_handed_on_seconds_count"), 3);
    // Ids are no labels: their number has no bound.
    EXPECT_FALSE(absl::StrContains(scrape, "sbx_"));

    product_.Put("scrape", scrape);
    const auto run = [&](const std::string& command) {
        const int status = system(command.c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    };
    const std::string here = tests::SourcePath("tests/service/");
    EXPECT_EQ(run(absl::StrCat("python3 ", here, "promtool.py check metrics < ", product_.Path("scrape"))),
              0);
    EXPECT_EQ(run(absl::StrCat("python3 ", here, "queries.py ", product_.Path("scrape"))), 0);
    // And they would see a metric that is not there.
    product_.Put("scrape",
                 absl::StrReplaceAll(scrape, {{"stockade_kills_held_back ", "stockade_kils_held_back "}}));
    EXPECT_EQ(run(absl::StrCat("python3 ", here, "queries.py ", product_.Path("scrape"), " 2>/dev/null")), 1);
}

// More hanging clients than the server has threads: sandboxes start, are judged and killed as ever, and a scrape comes through.
TEST_F(Metrics, ClientsThatHangDelayNobody) {
    Listen();
    ASSERT_EQ(product_.Run(policy_, {"/bin/true"}).status, 0);
    std::vector<Fd> hanging;
    for (int i = 0; i < 16; ++i) {
        hanging.push_back(Connect());
        ASSERT_TRUE(hanging.back().ok());
        (void)!write(hanging.back().get(), "GET /metrics", 12);  // and no more
    }
    EXPECT_EQ(product_.Run(policy_, {"/bin/sh", "-c", "/bin/ls /"}).status, 137);
    EXPECT_EQ(product_.Run(policy_, {"/bin/true"}).status, 0);
    Await("stockade_sandboxes_started_total", 3);
}

TEST_F(Metrics, AnAddressThatIsTakenStopsNoSandbox) {
    Listen();
    const Fd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(port_);
    ASSERT_EQ(bind(taken.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(taken.get(), 1), 0);
    EXPECT_EQ(product_.Run(policy_, {"/bin/true"}).status, 0);
    EXPECT_TRUE(absl::StrContains(product_.Get("run/agent.log"), "no metrics: serve metrics at 127.0.0.1:"));
}

TEST_F(Metrics, OffIsOff) {
    product_.Configure("metrics: {listen: off}\n");
    policy_ = product_.Put("strict.yaml", kPolicy);
    EXPECT_EQ(product_.Run(policy_, {"/bin/true"}).status, 0);
    // No thread of a server: the library's have a name of their own.
    const int status =
        system(absl::StrCat("cat /proc/", product_.AgentPid(), "/task/*/comm | grep -q civetweb").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace stockade::testing_service
