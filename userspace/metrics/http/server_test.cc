#include "userspace/metrics/http/server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/metrics/listen_address.h"

namespace stockade::metrics {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kSecond = 1'000'000'000;

sockaddr_in Address(uint16_t port) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {}, .sin_zero = {}};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

// One that is free now.
uint16_t FreePort() {
    const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = Address(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
}

class Scraped : public ::testing::Test {
  protected:
    void SetUp() override {
        port_ = FreePort();
        auto server = Server::Start(absl::StrCat("127.0.0.1:", port_));
        ASSERT_TRUE(server.ok()) << server.status();
        server_ = *std::move(server);
    }
    Fd Connect() const {
        Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_in address = Address(port_);
        EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        return fd;
    }
    // All that comes until the other side closes.
    std::string Ask(const std::string& request) const {
        const Fd fd = Connect();
        EXPECT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
        std::string text;
        char buffer[4096];
        pollfd entry{.fd = fd.get(), .events = POLLIN, .revents = 0};
        while (poll(&entry, 1, 20'000) > 0) {
            const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
            if (n <= 0) return text;
            text.append(buffer, static_cast<size_t>(n));
        }
        return text + " (and no end)";
    }
    std::string Scrape() const { return Ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); }
    void Publish(double value) {
        auto families = std::make_shared<Families>();
        families->Counter("stockade_test_total", "A counter.", value, {{"kind", "a\"b\\c\nd"}});
        families->Gauge("stockade_test_bytes", "A gauge.", 7);
        Histogram histogram;
        histogram.Observe(2'000'000);
        histogram.Observe(400 * kSecond);
        families->Add("stockade_test_seconds", "A histogram.", histogram.Read());
        server_->Publish(families);
    }
    uint16_t port_ = 0;
    std::unique_ptr<Server> server_;
};

TEST_F(Scraped, GetsTheLatestOfWhatWasPublished) {
    EXPECT_THAT(Scrape(), Not(HasSubstr("stockade_test_total")));
    Publish(1);
    Publish(42);
    const std::string text = Scrape();
    EXPECT_THAT(
        text,
        HasSubstr("# TYPE stockade_test_total counter\nstockade_test_total{kind=\"a\\\"b\\\\c\\nd\"} 42"));
    EXPECT_THAT(
        text,
        HasSubstr(
            "# HELP stockade_test_bytes A gauge.\n# TYPE stockade_test_bytes gauge\nstockade_test_bytes 7"));
    EXPECT_THAT(
        text,
        HasSubstr(
            "stockade_test_seconds_bucket{le=\"0.001\"} 0\nstockade_test_seconds_bucket{le=\"0.0025\"} 1"));
    EXPECT_THAT(
        text,
        HasSubstr("stockade_test_seconds_bucket{le=\"300\"} 1\nstockade_test_seconds_bucket{le=\"+Inf\"} 2"));
    EXPECT_THAT(text, HasSubstr("stockade_test_seconds_count 2\nstockade_test_seconds_sum 400.002"));
}

TEST_F(Scraped, ServesOnAfterNonsense) {
    Publish(1);
    for (const std::string& request :
         {std::string("\r\n\r\n"), std::string("GET\r\n\r\n"), std::string(1000, '\0') + "\r\n\r\n",
          std::string(20'000, 'x'), "GET /metrics HTTP/1.1\r\n" + std::string(20'000, 'h') + "\r\n\r\n",
          std::string("POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"),
          std::string("GET /../../../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n")}) {
        const Fd fd = Connect();
        (void)!write(fd.get(), request.data(), request.size());  // it may hang up in the middle
    }
    EXPECT_THAT(Ask("GET /../../../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"), Not(HasSubstr("root:")));
    EXPECT_THAT(Scrape(), HasSubstr("stockade_test_total"));
}

// More of them than there are workers: who publishes never waits, and who scrapes gets an answer once their time is over.
TEST_F(Scraped, ClientsThatSendNothingHoldNobodyForLong) {
    Publish(1);
    std::vector<Fd> hanging;
    for (int i = 0; i < 8; ++i) {
        hanging.push_back(Connect());
        (void)!write(hanging.back().get(), "GET /metrics HT", 15);  // and no more
    }
    uint64_t longest = 0;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t before = BootNow();
        Publish(i);
        longest = std::max(longest, BootNow() - before);
    }
    EXPECT_LT(longest, kSecond) << "publishing waited for a client";
    EXPECT_THAT(Scrape(), HasSubstr("stockade_test_total{kind=\"a\\\"b\\\\c\\nd\"} 999"));
}

// An agent that leaves is awaited by the next one.
TEST_F(Scraped, EndsAtOnce) {
    const uint64_t before = BootNow();
    server_.reset();
    EXPECT_LT(BootNow() - before, kSecond);
}

TEST_F(Scraped, AnAddressThatIsTakenIsAnError) {
    const auto second = Server::Start(absl::StrCat("127.0.0.1:", port_));
    EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat(port_)));
}

TEST(ListenAddress, NeedsAddressAndPort) {
    for (const char* good : {"127.0.0.1:9464", "0.0.0.0:1", "[::1]:65535", "[::]:9464"})
        EXPECT_TRUE(ParseListenAddress(good).ok()) << good;
    for (const char* bad :
         {"", "9464", ":9464", "localhost:9464", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x",
          "::1:9464", "[::1]", "[::1]9464", "127.0.0.1:9464,8080", "127.0.0.1:9464s"})
        EXPECT_FALSE(ParseListenAddress(bad).ok()) << bad;
}

}  // namespace
}  // namespace stockade::metrics
