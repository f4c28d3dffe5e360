// The agent under a service manager: told when it is ready, alive and leaving; and what SIGTERM leaves behind.
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/product.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"

namespace stockade::testing_service {
namespace {

using tests::Until;

constexpr int kWaitMs = 30'000;

class ManagerTest : public testing::Test {
  protected:
    void SetUp() override {
        path_ = product_.Path("notify");
        sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
        path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
        socket_ = Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        product_.Configure("agent_wait_seconds: 60\nmetrics: {listen: off}\n");
    }
    pid_t StartAgent(const std::string& tag) {
        return tests::Start(
            {.argv = {tests::BinPath("stockaded"), "--config", product_.config(), "--log", "json"},
             .out = product_.Path(tag + ".out"),
             .err = product_.Path(tag + ".err"),
             .in_child = [path = path_] {
                 setenv("NOTIFY_SOCKET", path.c_str(), 1);
                 setenv("WATCHDOG_USEC", "400000", 1);
                 unsetenv("WATCHDOG_PID");
             }});
    }
    // What the service manager is told next; "" = nothing in time.
    std::string Told(int wait_ms = kWaitMs) {
        pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
        char text[512];
        if (poll(&entry, 1, wait_ms) <= 0) return "";
        const ssize_t n = recv(socket_.get(), text, sizeof(text), 0);
        return n < 0 ? "" : std::string(text, static_cast<size_t>(n));
    }
    // Signs of life beside it are passed over.
    bool AwaitTold(const std::string& start) {
        std::string told;
        while (!(told = Told()).empty()) {
            if (absl::StartsWith(told, start)) return true;
        }
        return false;
    }
    tests::Product product_;
    std::string path_;
    Fd socket_;
};

TEST_F(ManagerTest, IsToldOfReadinessLifeAndEndAndASandboxOutlivesARestart) {
    const pid_t first = StartAgent("first");
    ASSERT_TRUE(AwaitTold("READY=1\nSTATUS=backend ")) << product_.Get("first.err");
    // Ready is answered.
    EXPECT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
    ASSERT_TRUE(AwaitTold("WATCHDOG=1"));
    // One that hangs gives no sign of life: what the manager would kill it for.
    ASSERT_EQ(kill(first, SIGSTOP), 0);
    while (!Told(0).empty()) {
    }
    EXPECT_EQ(Told(1500), "");
    ASSERT_EQ(kill(first, SIGCONT), 0);
    ASSERT_TRUE(AwaitTold("WATCHDOG=1"));

    const pid_t run = product_.StartRun("networkless", {"/bin/sleep", "1000"}, "run");
    // An agent that leaves during a start ends it.
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Stockade({"ps", "-o", "json"}).out, "\"state\":\"running\""); }));
    const pid_t shim = product_.ShimPid();
    // The client of a run starts an agent where it finds none, and could be faster than the manager.
    ASSERT_EQ(kill(run, SIGSTOP), 0);
    const uint64_t asked = BootNow();
    ASSERT_EQ(kill(first, SIGTERM), 0);
    ASSERT_TRUE(AwaitTold("STOPPING=1"));
    EXPECT_EQ(tests::Wait(first), 0) << product_.Get("first.err");
    EXPECT_LT(BootNow() - asked, 10'000'000'000u) << "leaving takes its time";
    EXPECT_EQ(product_.ShimPid(), shim) << "the keeper of the sandbox went with its agent";

    const pid_t second = StartAgent("second");
    ASSERT_TRUE(AwaitTold("READY=1")) << product_.Get("second.err");
    ASSERT_EQ(kill(run, SIGCONT), 0);
    EXPECT_TRUE(Until([&] { return absl::StrContains(product_.Get("second.err"), "taken over"); }))
        << product_.Get("second.err");
    for (const char* log : {"first.err", "second.err"}) {
        EXPECT_TRUE(absl::StartsWith(product_.Get(log), "{\"time\":\"")) << product_.Get(log);
    }
    kill(run, SIGTERM);
    (void)product_.Finish(run, "run");
    ASSERT_EQ(kill(second, SIGTERM), 0);
    EXPECT_EQ(tests::Wait(second), 0);
}

TEST_F(ManagerTest, AnAgentThatCannotStartIsNeverReady) {
    product_.Configure("default_policy: networkless\npin_dir: /tmp\n");
    const pid_t agent = StartAgent("bad");
    EXPECT_EQ(tests::Wait(agent), 125);
    EXPECT_EQ(Told(0), "");
}

}  // namespace
}  // namespace stockade::testing_service
