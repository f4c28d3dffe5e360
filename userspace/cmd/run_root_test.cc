// `stockade run` with its real processes (client, agent, helper, shim) on this kernel: streams, status, files.
// Further parts of this binary: run_root_test_*.cc.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/cmd/run_testing.h"

namespace stockade::cmd {
namespace {

TEST_F(Run, PassesStreamsAndStatusThrough) {
    const Ran ran = Sh("echo out; echo err >&2; exit 7");
    EXPECT_EQ(ran.status, 7) << ran.err;
    EXPECT_EQ(ran.out, "out\n");
    EXPECT_TRUE(absl::StrContains(ran.err, "err\n")) << ran.err;
    EXPECT_EQ(Sh("true").status, 0);
    EXPECT_TRUE(Until(NothingLeft));
}

// What was in the log before, and what others write to it, is not the sandbox's to touch.
TEST_F(Run, FilesOfTheCallersStreamsAreNotHandedIn) {
    Write("log", "before\n");
    const std::string script =
        "echo one; echo two >&2; echo three; cat; python3 -c '\n"
        "import os, sys, stat\n"
        "for fd in (0, 1, 2):\n"
        "    assert stat.S_ISFIFO(os.fstat(fd).st_mode), fd\n"
        "try: os.ftruncate(1, 0)\n"
        "except OSError as e: print(e.errno)\n"
        "try: os.pread(1, 10, 0)\n"
        "except OSError as e: print(e.errno)'";
    Write("script", script);
    Write("input", "given\n");
    const std::string command = absl::StrCat(Bin("stockade"), " --config ", dir_, "/config.yaml run -q -p ",
                                             dir_, "/open.yaml -- /bin/sh -c \"$(cat ", dir_, "/script)\" <",
                                             dir_, "/input >>", dir_, "/log 2>&1");
    EXPECT_EQ(system(command.c_str()), 0) << Read("log");
    EXPECT_EQ(Read("log"), "before\none\ntwo\nthree\ngiven\n22\n29\n");
}

// All of a long output is there when the status is told, and its order is kept.
TEST_F(Run, LongOutputIsDrainedAndAFullDiskIsSaid) {
    const Ran ran = Sh("i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; exit 6");
    EXPECT_EQ(ran.status, 6);
    EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 5000);
    EXPECT_TRUE(absl::EndsWith(ran.out, "line 4999\n"));
    const std::string command =
        absl::StrCat(Bin("stockade"), " --config ", dir_, "/config.yaml run -q -p ", dir_,
                     "/open.yaml -- /bin/sh -c 'while echo y; do :; done' >/dev/full 2>", dir_, "/full.err");
    EXPECT_EQ(WEXITSTATUS(system(command.c_str())), 141);  // SIGPIPE, as of any reader that has gone
    EXPECT_TRUE(absl::StrContains(Read("full.err"), "output of the sandbox is lost")) << Read("full.err");
}

TEST_F(Run, SpeaksOfFailuresAsShellsDo) {
    EXPECT_EQ(Sh("kill -TERM $$").status, 143);
    EXPECT_EQ(Stockade({"run", "-p", dir_ + "/open.yaml", "--", "/nonexistent"}).status, 127);
    EXPECT_EQ(Stockade({"run", "-p", dir_ + "/open.yaml", "--", "/etc"}).status, 126);
}

TEST_F(Run, ForwardsSignals) {
    const pid_t pid = Start({"run", "-p", dir_ + "/open.yaml", "--", "/bin/sh", "-c",
                             "trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.05; done"},
                            "sig");
    ASSERT_TRUE(Until([] { return Read("sig.out") == "ready\n"; })) << Read("sig.err");
    kill(pid, SIGTERM);
    const Ran ran = Finish(pid, "sig");
    EXPECT_EQ(ran.status, 3) << ran.err;
    EXPECT_EQ(ran.out, "ready\ngot\n");
}

// Bit `signo` of a set in /proc/PID/status.
bool HasSignal(pid_t pid, const std::string& set, int signo) {
    const std::string status = ReadFile(absl::StrCat("/proc/", pid, "/status"), 4096).value_or("");
    const size_t at = status.find(set + ":\t");
    return at != std::string::npos && (std::stoull(status.substr(at + set.size() + 2, 16), nullptr, 16) >> (signo - 1) & 1) != 0;
}

// Sent while nobody has made a sandbox yet: it waits for the command.
TEST_F(Run, ASignalBeforeTheCommandReachesIt) {
    ASSERT_EQ(Sh("true").status, 0);  // an agent is there
    const pid_t agent = AgentPid();
    ASSERT_GT(agent, 0);
    ASSERT_EQ(kill(agent, SIGSTOP), 0);
    const pid_t pid = Start({"run", "-p", dir_ + "/open.yaml", "--", "/bin/sleep", "60"}, "early");
    EXPECT_TRUE(Until([&] { return HasSignal(pid, "SigBlk", SIGTERM); }));
    EXPECT_EQ(kill(pid, SIGTERM), 0);
    EXPECT_TRUE(Until([&] { return !HasSignal(pid, "ShdPnd", SIGTERM); }));  // handed on
    ASSERT_EQ(kill(agent, SIGCONT), 0);
    const Ran ran = Finish(pid, "early");
    EXPECT_EQ(ran.status, 143) << ran.err;
}

TEST_F(Run, CopiesFilesOut) {
    std::filesystem::create_directory(dir_ + "/files");
    const Ran ran = Sh("echo data >/out/a; ln -s /etc/passwd /out/link", {"--out", dir_ + "/files"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(Read("files/a"), "data\n");
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(dir_ + "/files/link")));
    const Ran quiet =
        Sh("ln -s x /out/link; echo y >/out/b; ln /out/b /out/c", {"-q", "--out", dir_ + "/files"});
    EXPECT_EQ(quiet.err, "stockade: not copied from /out: link: symlink\n")
        << "lost results are said with -q, too";
    EXPECT_EQ(Read("files/b"), "y\n");
    EXPECT_EQ(Read("files/c"), "y\n");
}

TEST_F(Run, NamesFromOutAreFilesAsTheyAreAndEscapedInWords) {
    std::filesystem::create_directory(dir_ + "/names");
    const Ran ran =
        Sh("cd /out; echo x > \"$(printf 'a\\nb')\"; ln -s a \"$(printf 'c\\nstockade: d')\";"
           "ln -s a \"$(printf 'e\\377')\"; exit 4",
           {"--out", dir_ + "/names", "--result", dir_ + "/names.json"});
    EXPECT_EQ(ran.status, 4) << ran.err;
    EXPECT_EQ(Read("names/a\nb"), "x\n");
    EXPECT_TRUE(absl::StrContains(ran.err, "not copied from /out: c\\x0astockade: d: symlink")) << ran.err;
    EXPECT_TRUE(absl::StrContains(ran.err, "not copied from /out: e\\xff: symlink")) << ran.err;
    EXPECT_TRUE(absl::StrContains(Read("names.json"), "e\\\\xff")) << Read("names.json");
}

// A closed descriptor's number must not go to something of ours, which would then be a stream of the sandbox.
TEST_F(Run, ClosedStandardStreamsAreEmptyOnes) {
    const std::string run = absl::StrCat("timeout -s KILL 60 ", Bin("stockade"), " --config ", dir_,
                                         "/config.yaml run -q -p ", dir_, "/open.yaml -- /bin/sh -c ");
    const auto shell = [&](const std::string& script, const std::string& streams) {
        const std::string line = absl::StrCat(run, "'", script, "' ", streams);
        return WEXITSTATUS(system(line.c_str()));
    };
    EXPECT_EQ(shell("cat; echo end; exit 5", absl::StrCat("<&- >", dir_, "/closed.out")), 5);
    EXPECT_EQ(Read("closed.out"), "end\n");
    Write("given", "given\n");
    EXPECT_EQ(shell("read x; test $x = given && exit 6", absl::StrCat(">&- <", dir_, "/given")), 6);
    EXPECT_EQ(shell("echo out; echo err >&2; cat; exit 7", "<&- >&- 2>&-"), 7);
    EXPECT_TRUE(Until(NothingLeft));
}

// What was compiled for one serves the other; the end of one takes nothing from it.
TEST_F(Run, TwoAtOnceUnderOnePolicyAreJudgedApart) {
    std::filesystem::create_directory(dir_ + "/both");
    const std::vector<std::string> flags = {"run", "-p", dir_ + "/strict.yaml", "--in", dir_ + "/both", "--", "/bin/sh", "-c"};
    std::vector<std::string> first = flags, second = flags;
    first.push_back("echo up; until test -e /in/go; do sleep 0.1; done; echo x >/tmp/x || echo refused; cat /in/go");
    second.push_back("echo up; /usr/bin/id");
    const pid_t pid = Start(first, "first");
    ASSERT_TRUE(Until([] { return Read("first.out") == "up\n"; })) << Read("first.err");
    const Ran killed = Finish(Start(second, "second"), "second");
    EXPECT_EQ(killed.status, 137) << killed.err;
    EXPECT_EQ(killed.out, "up\n");
    EXPECT_TRUE(absl::StrContains(killed.err, "the policy does not allow executing /usr/bin/id")) << killed.err;
    Write("both/go", "");
    const Ran judged = Finish(pid, "first");
    EXPECT_EQ(judged.status, 137) << judged.err;
    EXPECT_EQ(judged.out, "up\nrefused\n");
    EXPECT_TRUE(absl::StrContains(judged.err, "the policy does not allow executing /usr/bin/cat")) << judged.err;
    EXPECT_TRUE(Until(NothingLeft));
}

}  // namespace
}  // namespace stockade::cmd
