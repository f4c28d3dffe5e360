// The sandbox made ahead: who gets it, who sees it, and that nothing of it stays.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/cmd/run_testing.h"

namespace stockade::cmd {
namespace {

class RunSpare : public Run {
  protected:
    static void SetUpTestSuite() {
        made_ahead_ = "true";
        Run::SetUpTestSuite();
    }
    // One stands, made by the start of a run.
    static std::string Made() {
        EXPECT_EQ(Sh("true").status, 0);
        std::string id;
        // Its init waits once the shim has said that it stands, and the cgroup is there before.
        EXPECT_TRUE(Until([&] { return !(id = Spare()).empty() && Cgroups().empty(); }));
        return id;
    }
    static std::vector<pid_t> Keepers() {
        std::vector<pid_t> pids;
        for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
            int pid = 0;
            const auto words = ReadFile(entry.path().string() + "/cmdline", 4096);
            if (absl::SimpleAtoi(entry.path().filename().string(), &pid) && words.ok() && IsSpare(Spare()) &&
                absl::StrContains(*words, Spare())) {
                pids.push_back(pid);
            }
        }
        return pids;
    }
    static bool There(const std::string& id) {
        const std::vector<std::string> all = AllCgroups();
        return std::find(all.begin(), all.end(), id) != all.end();
    }
};

TEST_F(RunSpare, IsSeenByNobodyAndTakenByTheNextRun) {
    const std::string id = Made();
    EXPECT_FALSE(absl::StrContains(Stockade({"ps", "-o", "json"}).out, id));
    EXPECT_NE(Stockade({"inspect", id}).status, 0);
    EXPECT_NE(Stockade({"kill", id}).status, 0);
    EXPECT_TRUE(There(id));
    Write("given", "given\n");
    const pid_t pid = Start({"run", "-p", dir_ + "/open.yaml", "--bind", dir_ + "/given:/given", "--",
                             "/bin/sh", "-c", "cat /given; sleep 1000"},
                            "sp");
    ASSERT_TRUE(Until([] { return Read("sp.out") == "given\n"; })) << Read("sp.err");
    EXPECT_EQ(Cgroups(), std::vector<std::string>{id});
    EXPECT_TRUE(Until([] { return !Spare().empty(); }));
    EXPECT_EQ(Stockade({"kill", id}).status, 0);
    EXPECT_EQ(Finish(pid, "sp").status, 137);
    EXPECT_TRUE(Until([&] { return NothingLeft() && !There(id); }));
}

TEST_F(RunSpare, StaysForRunsThatItFits) {
    const std::string id = Made();
    const auto mine = [](const std::vector<std::string>& flags) {
        std::vector<std::string> args = {"run", "-p", dir_ + "/open.yaml"};
        args.insert(args.end(), flags.begin(), flags.end());
        for (const char* word : {"--", "/bin/sh", "-c", "echo up; sleep 1000"}) args.push_back(word);
        const std::string tag = "fits" + flags[0];
        const pid_t pid = Start(args, tag);
        EXPECT_TRUE(Until([&] { return Read(tag + ".out") == "up\n"; })) << Read(tag + ".err");
        const std::vector<std::string> ids = Cgroups();
        kill(pid, SIGKILL);
        (void)Finish(pid, tag);
        EXPECT_TRUE(Until(NothingLeft));
        return ids.size() == 1 ? ids[0] : "";
    };
    EXPECT_NE(mine({"--out-size", "1MiB"}), id);
    EXPECT_EQ(Spare(), id);
    EXPECT_NE(mine({"--rootfs", "/usr"}), id);
    EXPECT_EQ(Spare(), id);
    EXPECT_EQ(mine({"--session", "s"}), id);
}

TEST_F(RunSpare, EndsWithItsAgentHoweverThatEnds) {
    (void)Made();
    StopAgent(SIGTERM);
    EXPECT_TRUE(AllCgroups().empty()) << "an agent that leaves waits for it";
    (void)Made();
    StopAgent(SIGKILL);
    EXPECT_TRUE(Until([] { return AllCgroups().empty(); }));
    // All at once: what stays is swept by the next agent.
    const std::string id = Made();
    std::vector<pid_t> all = Keepers();
    ASSERT_GE(all.size(), 1u);
    const pid_t agent = AgentPid();
    kill(agent, SIGSTOP);  // it must not clean up what is to be left
    for (const pid_t pid : all) kill(pid, SIGKILL);
    kill(agent, SIGKILL);
    ASSERT_TRUE(Until([agent] { return kill(agent, 0) != 0; }));
    EXPECT_TRUE(There(id));
    EXPECT_EQ(Sh("true").status, 0);
    EXPECT_TRUE(Until([&] { return NothingLeft() && !There(id); }));
}

TEST_F(RunSpare, WhoseKeeperIsKilledIsSweptAndReplaced) {
    const std::string id = Made();
    for (const pid_t pid : Keepers()) kill(pid, SIGKILL);
    EXPECT_TRUE(Until([&] { return !There(id); }));
    EXPECT_NE(Made(), id);
}

// What it shows of the host is of the moment in which it was made.
TEST_F(RunSpare, IsDroppedWhenTheHostsMountsChange) {
    const std::string id = Made(), at = dir_ + "/mount";
    ASSERT_EQ(mkdir(at.c_str(), 0700), 0);
    ASSERT_EQ(mount("none", at.c_str(), "tmpfs", 0, "size=4k"), 0);
    EXPECT_TRUE(Until([&] { return !There(id); }));
    EXPECT_EQ(umount(at.c_str()), 0);
    EXPECT_NE(Made(), id);
}

}  // namespace
}  // namespace stockade::cmd
