// What `stockade run` says: its own failures, refusals, results, help.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/fd.h"
#include "userspace/cmd/run_testing.h"

namespace stockade::cmd {
namespace {

TEST_F(Run, OwnFailuresAre125AndSayWhatToDo) {
    const std::pair<std::vector<std::string>, std::string> cases[] = {
        {{"run", "-p", "/nonexistent.yaml", "--", "/bin/true"}, "/nonexistent.yaml"},
        {{"run", "-p", "no-such-policy", "--", "/bin/true"}, "no policy no-such-policy"},
        {{"run", "--label", "novalue", "--", "/bin/true"}, "--label takes K=V"},
        {{"run", "--cause", "prompt 7", "--label", "cause=x", "--", "/bin/true"}, "give one of them"},
        {{"run", "--timeout", "soon", "--", "/bin/true"}, "--timeout takes"},
        {{"run", "--in", "/nonexistent", "--", "/bin/true"}, "--in"},
        {{"run", "--in", "/", "--", "/bin/true"}, "/"},
        {{"run", "--rootfs", "/", "--", "/bin/true"}, "the host's root"},
        {{"run", "--in", dir_ + "/run", "--", "/bin/true"}, "may not be shown"},
        {{"run", "--in", dir_, "--", "/bin/true"}, "it holds"},
        {{"run", "--rootfs", "/root", "--", "/bin/true"}, "home directory"},
        {{"run", "--runtime", "vm", "--", "/bin/true"}, "not there yet"},
        {{"run", "--polcy", "x"}, "unknown flag --polcy; did you mean '--policy'?"},
        {{"run", "-p", "pyton-tool", "--", "/bin/true"}, "did you mean 'python-tool'?"},
        {{"bogus"}, "there is no command bogus"},
        {{"policy", "chek", "x"}, "did you mean 'check'?"},
        {{"events", "-k", "bogus"}, "no kind of event bogus"},
        {{"events", "--sandbox", "nosuch"}, "no sandbox nosuch"},
        {{"run"}, "no command"},
        {{"inspect", "sbx_NOSUCH"}, "no sandbox"},
    };
    for (const auto& [args, text] : cases) {
        const Ran ran = Stockade(args);
        EXPECT_EQ(ran.status, 125) << absl::StrCat(args[0], " ", text);
        EXPECT_TRUE(absl::StrContains(ran.err, text)) << ran.err;
        EXPECT_TRUE(ran.out.empty()) << ran.out;
    }
    EXPECT_TRUE(Until(NothingLeft));
}

TEST_F(Run, AResultIsNeverThatOfAnEarlierRun) {
    Write("empty.json", "");
    const std::vector<std::string> cases[] = {{"-p", "no-such-policy"}, {"-p", dir_ + "/absent.yaml"},
                                              {"--in", "/nonexistent"}, {"--timeout", ""},
                                              {"--timeout=", "-q"},     {"--in", ""},
                                              {"-w", "/nosuch"},        {"--seccomp", dir_ + "/empty.json"},
                                              {"--events", ""}};
    for (const std::vector<std::string>& flags : cases) {
        Write("old.json", "{\"end\":\"exited\",\"exit_code\":0}\n");
        const Ran ran =
            Stockade({"run", flags[0], flags[1], "--result", dir_ + "/old.json", "--", "/bin/true"});
        const std::string now = Read("old.json");
        EXPECT_EQ(ran.status, 125) << flags[0] << ran.err;
        EXPECT_TRUE(absl::StrContains(now, "\"exit_code\":125,\"end\":\"failed\"")) << flags[0] << now;
        EXPECT_FALSE(absl::StrContains(now, "\"reason\":\"\"")) << now;
        EXPECT_EQ(now.back(), '\n');
    }
    EXPECT_TRUE(absl::StrContains(Sh("true", {"-w", "/nosuch"}).err, "/nosuch"));
    EXPECT_TRUE(absl::StrContains(Sh("true", {"--result", "-"}).err, "--result takes a file"));
    EXPECT_TRUE(absl::StrContains(Sh("true", {"--out", dir_ + "/absent"}).err, "mkdir -p"));
    EXPECT_TRUE(Until(NothingLeft));
}

TEST_F(Run, WrongFlagsLeaveNoEarlierResult) {
    const std::string result = dir_ + "/old.json";
    const std::vector<std::string> cases[] = {
        {"run", "--polcy", "x", "--result", result, "--", "/bin/true"},
        {"run", "--result=" + result, "--polcy=x", "--", "/bin/true"},
        {"run", "--result", result, "--require", "nonsense", "--", "/bin/true"},
        {"run", "--result", result, "--timeout"},
        {"run", "--result", result, "-p", "open", "-p", "strict", "--", "/bin/true"},
        {"run", "--result", result},
        {"run", "--result", result, "--"},
    };
    for (const std::vector<std::string>& words : cases) {
        Write("old.json", "{\"end\":\"exited\",\"exit_code\":0}\n");
        const Ran ran = Stockade(words);
        EXPECT_EQ(ran.status, 125) << words[3] << ran.err;
        EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
        const std::string now = Read("old.json");
        EXPECT_TRUE(absl::StrContains(now, "\"exit_code\":125,\"end\":\"failed\"")) << words[3] << now;
        EXPECT_TRUE(absl::StrContains(now, "stockade run --help") || absl::StrContains(now, "no command"))
            << now;
    }
    // What is given to the command is the command's.
    Write("old.json", "its own");
    EXPECT_EQ(Stockade({"run", "--polcy=x", "/bin/cat", "--result", result}).status, 125);
    EXPECT_EQ(Read("old.json"), "its own");
}

TEST_F(Run, AResultToAFifoThatNobodyReadsIsAnError) {
    const std::string fifo = dir_ + "/fifo";
    ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    const Ran ran = Sh("true", {"--result", fifo});
    EXPECT_EQ(ran.status, 125);
    EXPECT_TRUE(absl::StrContains(ran.err, "FIFO that nobody reads")) << ran.err;
    const Fd reader(open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    EXPECT_EQ(Sh("true", {"--result", fifo}).status, 0);
    char text[65536];
    const ssize_t n = read(reader.get(), text, sizeof(text));
    ASSERT_GT(n, 0);
    EXPECT_TRUE(absl::StrContains(absl::string_view(text, n), "\"end\":\"exited\""));
}

TEST_F(Run, QuietStillSaysWhyItWasKilled) {
    const Ran killed = Stockade(
        {"run", "-q", "-p", dir_ + "/strict.yaml", "--", "/bin/sh", "-c", "/usr/bin/id; /bin/sleep 100"});
    EXPECT_TRUE(absl::StrContains(killed.err, "killed by policy strict: ")) << killed.err;
    EXPECT_FALSE(absl::StrContains(killed.err, "refused:")) << killed.err;
    const Ran late = Sh("sleep 100", {"-q", "--timeout", "300ms"});
    EXPECT_TRUE(absl::StrContains(late.err, "stockade: killed: ")) << late.err;
    const std::vector<std::string> absent = {"run", "-q", "-p", dir_ + "/open.yaml", "--", "/nonexistent"};
    EXPECT_TRUE(absl::StrContains(Stockade(absent).err, "stockade: not run: "));
    EXPECT_EQ(Sh("true", {"-q"}).err, "");
}

TEST_F(Run, ARefusalSaysWhatWouldAllowItOrWhatDeniesIt) {
    std::filesystem::create_directory(dir_ + "/ro");
    Write("ro/secret", "x");
    Write("advice.yaml",
          "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: advice}\nspec:\n"
          "  exec: {allow: [/usr/**, /bin/**]}\n"
          "  files: {read: [/usr/**, /in/**], write: [/tmp/**], deny: [\"**/secret\"]}\n");
    const Ran ran =
        Stockade({"run", "-p", dir_ + "/advice.yaml", "--in", dir_ + "/ro", "--", "/bin/sh", "-c",
                  "(: >/usr/x); (: >/dev/shm/x); (cat /tmp/nope/../../etc/hostname); (read a </in/secret); "
                  "(: >/sys/kernel/x); true"});
    EXPECT_TRUE(absl::StrContains(ran.err, "has no section network: everything there is allowed")) << ran.err;
    // What other locks refuse is seen at the end of system calls, which only `signal` looks at.
    const bool calls = absl::StrContains(Stockade({"doctor", "-o", "json"}).out, "\"backend\":\"signal\"");
    for (const char* word : {"files.write: [/dev/shm/x]", "the mount is read-only"})
        EXPECT_TRUE(!calls || absl::StrContains(ran.err, word)) << ran.err;
    EXPECT_TRUE(absl::StrContains(ran.err, "denied by files.deny '**/secret'")) << ran.err;
    EXPECT_FALSE(absl::StrContains(ran.err, "refused: refused")) << ran.err;
}

TEST_F(Run, HelpAndVersionAreThere) {
    for (const char* word : {"help", "--help"})
        EXPECT_TRUE(absl::StrContains(Stockade({word}).out, "doctor"));
    EXPECT_TRUE(absl::StrContains(Stockade({"help", "run"}).out, "--policy"));
    EXPECT_TRUE(absl::StartsWith(Stockade({"--version"}).out, "stockade "));
    const Ran full = Finish(
        Start({"policy", "explain", "--policy", "networkless", "--exec", "/x"}, "full", "/dev/full"), "full");
    EXPECT_EQ(full.status, 2);
    EXPECT_TRUE(absl::StrContains(full.err, "standard output")) << full.err;
    const std::string wrong = Bin("stockaded") + " --bckend lsm 2>&1";
    FILE* pipe = popen(wrong.c_str(), "r");
    char line[1024] = "";
    EXPECT_NE(fgets(line, sizeof(line), pipe), nullptr);
    EXPECT_TRUE(absl::StrContains(line, "stockaded: unknown flag --bckend; did you mean '--backend'?"))
        << line;
    EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 125);
}

// The exit status is the command's; that what was asked for is not there is the last word, also with -q.
TEST_F(Run, WhatCannotBeWrittenIsTheLastWord) {
    const Ran events = Sh("exit 3", {"-q", "--events", "/dev/full", "--result", dir_ + "/lost.json"});
    EXPECT_EQ(events.status, 3);
    EXPECT_TRUE(
        absl::StrContains(events.err, "stockade: NOT WRITTEN: events of this run (--events /dev/full)"))
        << events.err;
    EXPECT_TRUE(absl::StrContains(Read("lost.json"), "\"NOT WRITTEN: events")) << Read("lost.json");
    const Ran result = Sh("echo err >&2; exit 4", {"--result", "/dev/full"});
    EXPECT_EQ(result.status, 4);
    const std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(result.err, "\n"), '\n');
    EXPECT_TRUE(absl::StartsWith(lines.back(), "stockade: NOT WRITTEN: --result /dev/full: ")) << result.err;
    const Ran control = Sh("true", {"--events", dir_ + "/kept.jsonl", "--result", dir_ + "/kept.json"});
    EXPECT_FALSE(absl::StrContains(control.err, "NOT WRITTEN")) << control.err;
    EXPECT_FALSE(absl::StrContains(Read("kept.json"), "NOT WRITTEN"));
}

TEST_F(Run, TheFirstExamplesOfTheHelpWorkAsTheyStand) {
    const std::vector<std::string> helps[] = {{"--help"}, {"run", "--help"}};
    for (const std::vector<std::string>& words : helps) {
        const std::string help = Stockade(words).out;
        const size_t at = help.find("  stockade run ");
        ASSERT_NE(at, std::string::npos) << help;
        const std::string line = help.substr(at, help.find('\n', at) - at);
        const std::string command =
            absl::StrCat("cd ", std::getenv("STOCKADE_SOURCE_DIR"), " && ", Bin("stockade"), " --config ",
                         dir_, "/config.yaml ", line.substr(line.find("run ")), " >", dir_, "/example.out 2>",
                         dir_, "/example.err");
        EXPECT_EQ(WEXITSTATUS(system(command.c_str())), 0) << line << Read("example.err");
        EXPECT_TRUE(Read("example.out") == "1\n" || Read("example.out") == "42\n") << Read("example.out");
    }
    const Ran unknown = Stockade({"run", "-p", "no-such-policy", "--", "/bin/true"});
    EXPECT_TRUE(absl::StrContains(
        unknown.err, "/rules/policies (a file is taken as well: --policy ./no-such-policy.yaml)"))
        << unknown.err;
}

TEST_F(Run, CompletionKnowsTheWordsThatAFlagTakes) {
    const auto complete = [](const std::string& words) {
        const std::string script =
            absl::StrCat("eval \"$(", Bin("stockade"), " completion bash)\"; COMP_WORDS=(", words,
                         "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _stockade; echo ${COMPREPLY[@]}");
        Write("complete.sh", script);
        FILE* pipe = popen(absl::StrCat("bash ", dir_, "/complete.sh").c_str(), "r");
        char line[4096] = "";
        (void)!fgets(line, sizeof(line), pipe);
        EXPECT_EQ(pclose(pipe), 0);
        return std::string(line);
    };
    EXPECT_EQ(complete("stockade run --require ''"), "lsm signal\n");
    EXPECT_EQ(complete("stockade run --require = l"), "lsm\n");
    EXPECT_EQ(complete("stockade ps -o ''"), "text json\n");
    EXPECT_EQ(complete("stockade policy check x.yaml -o j"), "json\n");
    EXPECT_EQ(complete("stockade dns meter --output t"), "text\n");
    EXPECT_TRUE(absl::StrContains(complete("stockade events -k ''"), "exec"))
        << complete("stockade events -k ''");
    EXPECT_EQ(complete("stockade run --requ"), "--require\n");
    EXPECT_TRUE(absl::StrContains(Stockade({"completion", "fish"}).out, "-l require -x -a 'lsm signal'"));
    EXPECT_TRUE(absl::StrContains(Stockade({"completion", "zsh"}).out,
                                  "'run --require') compadd -- lsm signal; return ;;"));
}

}  // namespace
}  // namespace stockade::cmd
