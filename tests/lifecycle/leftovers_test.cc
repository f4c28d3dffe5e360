// A launcher killed at any point of a sandbox's life leaves something that the next run, the timer or `stockade gc` removes; and a
// thousand sandboxes leave the machine as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/lifecycle/call.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

// Descendants of our agent that call themselves so: its helper's children are the keepers of sandboxes.
std::vector<pid_t> Named(const Product& product, const std::string& comm) {
    std::map<pid_t, pid_t> parents;
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
        const std::string pid = entry.path().filename();
        if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
        // "PID (NAME) STATE PPID ...": names of ours have no bracket.
        const std::vector<std::string> stat = absl::StrSplit(ReadText(entry.path() / "stat"), absl::ByAnyChar(" ()"), absl::SkipEmpty());
        if (stat.size() < 4 || stat[3].find_first_not_of("0123456789") != std::string::npos) continue;
        parents[std::stoi(pid)] = std::stoi(stat[3]);
        if (absl::StartsWith(stat[1], comm)) found.push_back(std::stoi(pid));
    }
    const pid_t agent = product.AgentPid();
    std::erase_if(found, [&](pid_t pid) {
        while (pid > 1 && pid != agent) pid = parents[pid];
        return agent == 0 || pid != agent;
    });
    return found;
}

// What a look at the machine shows of this installation and of what all share.
struct Machine {
    size_t cgroups = 0, mounts = 0, pins = 0, state = 0, processes = 0, agent_fds = 0;
    std::set<std::string> links, tables;

    static Machine Look(const Product& product) {
        Machine machine;
        std::error_code none;
        for (const auto& entry : fs::directory_iterator(product.Cgroup(), none)) machine.cgroups += entry.is_directory();
        for (const auto& line : absl::StrSplit(ReadText("/proc/self/mountinfo"), '\n')) machine.mounts += absl::StrContains(line, product.dir());
        for (const auto& entry : fs::recursive_directory_iterator(product.pin_dir(), none)) machine.pins += !entry.path().empty();
        for (const auto& entry : fs::directory_iterator(product.Path("run/sandboxes"), none)) machine.state += !entry.path().empty();
        machine.processes = Named(product, "stockade").size();
        for (const auto& entry : fs::directory_iterator(absl::StrCat("/proc/", product.AgentPid(), "/fd"), none)) machine.agent_fds += !entry.path().empty();
        return machine;
    }
};

void ExpectSame(const Machine& before, const Machine& after) {
    EXPECT_EQ(after.cgroups, before.cgroups);
    EXPECT_EQ(after.mounts, before.mounts);
    EXPECT_EQ(after.pins, before.pins);
    EXPECT_EQ(after.state, before.state);
    EXPECT_EQ(after.processes, before.processes);
    EXPECT_EQ(after.agent_fds, before.agent_fds);
}

TEST(Leftovers, GcRemovesWhatIsLeftAndShowsItBefore) {
    Tool tool;
    EXPECT_EQ(tool.product.Stockade({"gc", "--dry-run"}).status, 0);  // no agent, and nothing was ever made
    EXPECT_FALSE(fs::exists(tool.product.Cgroup())) << "a look makes nothing";
    ASSERT_EQ(tool.Sh("true").status, 0);
    const pid_t client = tool.Start({"sleep", "1000"}, {}, "alive");
    ASSERT_TRUE(Until([&] { return !tool.product.Processes().empty(); }));
    // As launchers that were killed leave it: a cgroup that nobody holds, with a task.
    const std::string left = tool.product.Cgroup() + "/sbx_00000000000000000000000000";
    fs::create_directory(left);
    const pid_t task = fork();
    if (task == 0) {
        pause();
        _exit(0);
    }
    WriteText(left + "/cgroup.procs", std::to_string(task));
    tool.product.Put("run/sandboxes/sbx_00000000000000000000000001", "", 0600);
    const Ran dry = tool.product.Stockade({"gc", "--dry-run", "-o", "json"});
    if (fs::exists(left)) {  // the timer may have been first
        EXPECT_EQ(dry.status, 1) << dry.out;
        EXPECT_THAT(dry.out, HasSubstr("cgroup sbx_00000000000000000000000000"));
    }
    const Ran gc = tool.product.Stockade({"gc"});
    EXPECT_EQ(gc.status, 0) << gc.out << gc.err;
    EXPECT_FALSE(fs::exists(left));
    EXPECT_EQ(Wait(task), 128 + SIGKILL);
    // What lives is left alone.
    EXPECT_EQ(tool.product.Sandboxes().size(), 1u);
    EXPECT_EQ(tool.product.Stockade({"gc", "--dry-run"}).status, 0);
    EXPECT_EQ(tool.product.Stockade({"kill", tool.product.Sandboxes().front()}).status, 0);
    (void)tool.Finish(client, "alive");
    // The same without an agent.
    tool.product.StopAgent(SIGTERM);
    fs::create_directory(left);
    EXPECT_EQ(tool.product.Stockade({"gc", "--dry-run"}).status, 1);
    EXPECT_TRUE(fs::exists(left));
    EXPECT_EQ(tool.product.Stockade({"gc"}).status, 0);
    EXPECT_FALSE(fs::exists(left));
}

TEST(Leftovers, TheTimerFindsThemAndSaysSo) {
    Tool tool("", "metrics: {listen: off}\n");
    ASSERT_EQ(tool.Sh("true").status, 0);
    const pid_t follower = tool.product.StartStockade({"events", "--follow", "-k", "finding", "-o", "json"}, "follow");
    const std::string left = tool.product.Cgroup() + "/sbx_00000000000000000000000000";
    // Again and again, until the follower is there to see it.
    for (int i = 0; i < 6 && !absl::StrContains(tool.product.Get("follow.out"), "leftover_sandbox"); ++i) {
        fs::create_directory(absl::StrCat(left.substr(0, left.size() - 1), i));
        ASSERT_TRUE(Until([&] { return !fs::exists(absl::StrCat(left.substr(0, left.size() - 1), i)); }, 40));
        (void)Until([&] { return absl::StrContains(tool.product.Get("follow.out"), "leftover_sandbox"); }, 2);
    }
    EXPECT_THAT(tool.product.Get("follow.out"), HasSubstr("\"rule\":\"leftover_sandbox\""));
    kill(follower, SIGTERM);
    (void)Wait(follower);
}

// Keeper, agent and client are killed at moments spread over the whole life; the next run finds nothing of it in its way.
TEST(Leftovers, KilledAtAnyPointTheNextRunCleansUp) {
    Tool tool("", "made_ahead: false\n");
    ASSERT_EQ(tool.Sh("true").status, 0);
    std::set<std::string> states;
    for (int i = 0; i < 40; ++i) {
        const pid_t client = tool.Start({"sh", "-c", i % 2 == 0 ? "true" : "sleep 0.02"}, {}, "victim");
        // The wait is the point: each round another moment of the life, which lasts some tens of milliseconds.
        usleep(static_cast<useconds_t>(i * 1500));
        const std::vector<pid_t> shims = Named(tool.product, "stockade-shim");
        const Ran ps = i % 4 == 0 ? tool.product.Stockade({"ps", "-o", "json"}) : Ran();
        for (const char* state : {"registered", "starting", "running", "condemned", "empty"}) {
            if (absl::StrContains(ps.out, absl::StrCat("\"", state, "\""))) states.insert(state);
        }
        if (!shims.empty()) states.insert("shim");
        for (const pid_t shim : Named(tool.product, "stockade-shim")) kill(shim, SIGKILL);
        if (i % 3 == 0) tool.product.StopAgent(SIGKILL);
        if (i % 5 == 0) kill(client, SIGKILL);
        (void)Wait(client);
        const Ran next = tool.Sh("echo ran");
        ASSERT_EQ(next.status, 0) << "round " << i << next.Text();
        ASSERT_TRUE(Until([&] { return tool.product.LeftOver().empty() && tool.product.Processes().empty(); })) << "round " << i << ": " << tool.product.LeftOver();
    }
    EXPECT_TRUE(states.count("shim") == 1) << "no round met a sandbox that was there";
}

TEST(Leftovers, AThousandSandboxesLeaveTheMachineAsItWas) {
    Tool tool("", "made_ahead: false\n");
    ASSERT_EQ(tool.Sh("true").status, 0);
    const auto settled = [&] { return tool.product.LeftOver().empty() && Named(tool.product, "stockade-shim").empty(); };
    ASSERT_TRUE(Until(settled));
    const Machine before = Machine::Look(tool.product);
    constexpr int kAll = 1000, kAtOnce = 20;
    int failed = 0;
    for (int done = 0; done < kAll; done += kAtOnce) {
        std::vector<pid_t> clients;
        for (int i = 0; i < kAtOnce; ++i) clients.push_back(tool.Start({"sh", "-c", "echo x >/tmp/x; cat /etc/shadow 2>/dev/null; exit 7"}, {"-q"}, absl::StrCat("many", i)));
        for (const pid_t client : clients) failed += Wait(client) != 7;
    }
    EXPECT_EQ(failed, 0);
    EXPECT_TRUE(Until(settled)) << tool.product.LeftOver();
    ExpectSame(before, Machine::Look(tool.product));
    EXPECT_EQ(tool.product.Stockade({"gc", "--dry-run"}).out, "nothing is left of ended sandboxes\n");
}

}  // namespace
}  // namespace stockade::tests
