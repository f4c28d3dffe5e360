// An agent whose wall clock jumps ahead and back while sandboxes run, and before the next agent. The clock is that of the agent alone, moved
// by a preloaded library as clock_settime(2) moves it; all else is real.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/tools/product.h"
#include "userspace/base/fd.h"
#include "userspace/model/json.h"

namespace stockade::testing_events {
namespace {

using testing::HasSubstr;
using tests::Until;

constexpr int64_t kDay = 86'400;

class Clock : public testing::Test {
  protected:
    Clock() {
        product_.Configure(
            absl::StrCat("agent_wait_seconds: 60\nmade_ahead: false\nmetrics: {listen: off}\nevents:\n  "
                         "exporters:\n    - {kind: jsonl, path: ",
                         product_.Path("events.jsonl"), "}\n"));
        product_.Put("in/ready", "");
        Jump(0);
    }
    ~Clock() override { StopAgent(); }
    void StartAgent() {
        const std::string shim = absl::StrCat(tests::BinPath("tests"), "/libstockade_clock_shim.so"),
                          file = product_.Path("clock");
        ASSERT_EQ(access(shim.c_str(), R_OK), 0) << shim;
        const std::string log = absl::StrCat("agent", ++agents_, ".err");
        agent_ = tests::Start({.argv = {tests::BinPath("stockaded"), "--config", product_.config()},
                               .out = product_.Path("agent.out"),
                               .err = product_.Path(log),
                               .in_child = [shim, file] {
                                   setenv("LD_PRELOAD", shim.c_str(), 1);
                                   setenv("STOCKADE_CLOCK_FILE", file.c_str(), 1);
                               }});
        ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get(log), "listening at"); }))
            << product_.Get(log);
    }
    void StopAgent() {
        if (agent_ <= 0) return;
        kill(agent_, SIGTERM);
        (void)tests::Wait(agent_);
        agent_ = 0;
    }
    void Jump(int64_t days) {
        const int64_t seconds = days * kDay;
        const Fd file(open(product_.Path("clock").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        ASSERT_EQ(write(file.get(), &seconds, sizeof(seconds)), static_cast<ssize_t>(sizeof(seconds)));
    }
    void Short() {
        const tests::Ran ran = product_.Run(
            "networkless", {"/bin/sh", "-c", "/bin/true; { cat /etc/shadow; } 2>/dev/null; echo done"});
        EXPECT_EQ(ran.out, "done\n") << ran.Text();
    }
    std::vector<v1::Event> Events() {
        std::vector<v1::Event> events;
        for (const absl::string_view line :
             absl::StrSplit(product_.Get("events.jsonl"), '\n', absl::SkipEmpty())) {
            auto event = model::FromJsonLine(line);
            EXPECT_TRUE(event.ok()) << event.status();
            if (event.ok()) events.push_back(*std::move(event));
        }
        return events;
    }
    int Seals() {
        int seals = 0;
        for (const v1::Event& event : Events()) seals += event.has_seal();
        return seals;
    }
    static int64_t Offset(const v1::Event& event) {
        return event.time().seconds() * 1'000'000'000 + event.time().nanos() -
               static_cast<int64_t>(event.boot_ns());
    }
    tests::Product product_;
    pid_t agent_ = 0;
    int agents_ = 0;
};

TEST_F(Clock, JumpsChangeNeitherOrderNorNumbersNorWhatIsKept) {
    StartAgent();
    const pid_t spanning = product_.StartRun(
        "networkless",
        {"/bin/sh", "-c", "echo up; while ! [ -e /in/stop ]; do /bin/sleep 0.1; done; echo over"}, "span",
        {"--in", product_.Path("in")});
    ASSERT_TRUE(Until([&] { return product_.Get("span.out") == "up\n"; })) << product_.Get("span.err");
    for (const int64_t days : {0, 400, -800, 36'500, -7'300}) {
        Jump(days);
        Short();
    }
    ASSERT_TRUE(Until([&] { return Seals() == 5; })) << Seals();
    const std::vector<v1::Event> first = Events();
    ASSERT_GT(first.size(), 30u);
    for (const v1::Event& event : first) {
        if (event.has_seal() && !event.has_time()) continue;  // it is of no moment
        ASSERT_GT(event.boot_ns(), 0u) << event.kind();
        EXPECT_EQ(Offset(event), Offset(first.front())) << event.kind() << ": its time is of another clock";
    }
    // The next agent's times are those of its own start; numbers and chains go on.
    Jump(-3'650);
    // The client of a run starts an agent where it finds none, and could be faster.
    ASSERT_EQ(kill(spanning, SIGSTOP), 0);
    StopAgent();
    StartAgent();
    ASSERT_EQ(kill(spanning, SIGCONT), 0);
    Short();
    product_.Put("in/stop", "");
    EXPECT_EQ(product_.Finish(spanning, "span").out, "up\nover\n");
    ASSERT_TRUE(Until([&] { return Seals() == 7; })) << Seals();
    StopAgent();
    const std::vector<v1::Event> all = Events();
    const auto last =
        std::find_if(all.rbegin(), all.rend(), [](const v1::Event& event) { return event.has_time(); });
    ASSERT_NE(last, all.rend());
    EXPECT_LT(Offset(*last), Offset(first.front()) - 3'000 * kDay * 1'000'000'000)
        << "the clock did not move: no test";
    const tests::Ran ran = product_.Stockade({"verify", product_.Path("events.jsonl")});
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    EXPECT_THAT(ran.out, testing::Not(HasSubstr("FAULTY")));
}

}  // namespace
}  // namespace stockade::testing_events
