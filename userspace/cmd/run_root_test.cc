// `stockade run` with its real processes: client, agent, helper, shim, on this kernel.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/api/channel.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"

namespace stockade::cmd {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

std::string Bin(const char* name) { return absl::StrCat(std::getenv("STOCKADE_BIN_DIR"), "/", name); }

struct Ran {
    int status = -1;  // as a shell says it
    std::string out;
    std::string err;
};

class Run : public ::testing::Test {
  protected:
    static void SetUpTestSuite() {
        char name[] = "/tmp/stockade_run_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
        chmod(name, 0755);
        tag_ = absl::StrCat("stockade_test_", getpid());
        Write("config.yaml", absl::StrCat("runtime_dir: ", dir_, "/run\npin_dir: /sys/fs/bpf/", tag_,
                                          "\ncgroup_name: ", tag_, "\nagent_wait_seconds: 3\npolicy_dirs: [",
                                          std::getenv("STOCKADE_SOURCE_DIR"), "/rules/policies]\n"));
        Write("open.yaml",
              "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: open}\nspec:\n  mode: "
              "observe\n"
              "  exec: {allow: [/usr/**, /bin/**]}\n  files: {read: [/**], write: [/**]}\n  network: {allow: "
              "[]}\n");
        Write("strict.yaml",
              "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: strict}\nspec:\n"
              "  exec: {allow: [\"**/sh\", \"**/dash\", \"**/sleep\"], violation: kill-sandbox}\n"
              "  files: {read: [/usr/**, /bin/**, /in/**], write: [/out/**]}\n  network: {allow: []}\n");
    }
    static void TearDownTestSuite() {
        StopAgent(SIGTERM);
        std::filesystem::remove_all("/sys/fs/bpf/" + tag_);
        std::filesystem::remove_all(dir_);
        for (const char* mount : {"/sys/fs/cgroup/unified/", "/sys/fs/cgroup/"})
            (void)rmdir((mount + tag_).c_str());
    }
    static void Write(const std::string& name, const std::string& text) {
        std::ofstream(dir_ + "/" + name) << text;
    }
    static std::string Read(const std::string& name) {
        auto text = ReadFile(dir_ + "/" + name, 1 << 22);
        return text.ok() ? *text : "";
    }
    static pid_t Start(std::vector<std::string> args, const std::string& tag, const std::string& to = "") {
        std::vector<std::string> words = {Bin("stockade"), "--config", dir_ + "/config.yaml"};
        words.insert(words.end(), args.begin(), args.end());
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        const pid_t pid = fork();
        if (pid == 0) {
            const int null = open("/dev/null", O_RDONLY);
            const int out = open((to.empty() ? dir_ + "/" + tag + ".out" : to).c_str(),
                                 O_WRONLY | O_CREAT | O_TRUNC, 0600);
            const int err = open((dir_ + "/" + tag + ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            dup2(null, 0);
            dup2(out, 1);
            dup2(err, 2);
            execv(argv[0], argv.data());
            _exit(99);
        }
        return pid;
    }
    static Ran Finish(pid_t pid, const std::string& tag) {
        int status = 0;
        Ran ran;
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        ran.out = Read(tag + ".out");
        ran.err = Read(tag + ".err");
        return ran;
    }
    static Ran Stockade(const std::vector<std::string>& args) { return Finish(Start(args, "t"), "t"); }
    static Ran Sh(const std::string& script, std::vector<std::string> flags = {}) {
        std::vector<std::string> args = {"run", "--policy", dir_ + "/open.yaml"};
        args.insert(args.end(), flags.begin(), flags.end());
        for (const char* word : {"--", "/bin/sh", "-c"}) args.push_back(word);
        args.push_back(script);
        return Stockade(args);
    }
    static pid_t AgentPid() {
        int pid = 0;
        return absl::SimpleAtoi(absl::StripSuffix(Read("run/agent.lock"), "\n"), &pid) ? pid : 0;
    }
    static void StopAgent(int signo) {
        const pid_t pid = AgentPid();
        if (pid == 0 || kill(pid, signo) != 0) return;
        Until([pid] { return kill(pid, 0) != 0; });
    }
    template <typename Fn>
    static bool Until(Fn fn, uint64_t wait_ns = 15 * kSecond) {
        const uint64_t end = BootNow() + wait_ns;
        while (!fn()) {
            if (BootNow() > end) return false;
            usleep(10000);  // between two looks, not instead of them
        }
        return true;
    }
    static std::vector<std::string> Cgroups() {
        std::vector<std::string> names;
        for (const char* mount : {"/sys/fs/cgroup/unified/", "/sys/fs/cgroup/"}) {
            std::error_code error;
            for (const auto& entry : std::filesystem::directory_iterator(mount + tag_, error)) {
                if (entry.is_directory()) names.push_back(entry.path().filename());
            }
        }
        return names;
    }
    static bool NothingLeft() {
        return Cgroups().empty() && std::filesystem::is_empty(dir_ + "/run/sandboxes");
    }
    static inline std::string dir_;
    static inline std::string tag_;
};

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

TEST_F(Run, OwnFailuresAre125AndSayWhatToDo) {
    const std::pair<std::vector<std::string>, std::string> cases[] = {
        {{"run", "-p", "/nonexistent.yaml", "--", "/bin/true"}, "/nonexistent.yaml"},
        {{"run", "-p", "no-such-policy", "--", "/bin/true"}, "no policy no-such-policy"},
        {{"run", "--label", "novalue", "--", "/bin/true"}, "--label takes K=V"},
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
    const std::vector<std::string> cases[] = {{"-p", "no-such-policy"},
                                              {"-p", dir_ + "/absent.yaml"},
                                              {"--in", "/nonexistent"},
                                              {"--timeout", ""},
                                              {"--timeout=", "-q"},
                                              {"--in", ""},
                                              {"-w", "/nosuch"},
                                              {"--seccomp", dir_ + "/empty.json"},
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
    const Ran killed = Stockade({"run", "-q", "-p", dir_ + "/strict.yaml", "--", "/bin/sh", "-c", "/usr/bin/id; /bin/sleep 100"});
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
    const Ran ran = Stockade({"run", "-p", dir_ + "/advice.yaml", "--in", dir_ + "/ro", "--", "/bin/sh", "-c",
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
    for (const char* word : {"help", "--help"}) EXPECT_TRUE(absl::StrContains(Stockade({word}).out, "doctor"));
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

TEST_F(Run, TimeoutEndsIt) {
    const Ran ran = Sh("sleep 100", {"--timeout", "300ms", "--result", dir_ + "/r.json"});
    EXPECT_EQ(ran.status, 137);
    EXPECT_TRUE(absl::StrContains(Read("r.json"), "\"end\":\"timeout\"")) << Read("r.json");
}

// A lease makes every open of the file wait, the one of execve too.
TEST_F(Run, TimeoutEndsACommandWhoseExecveWaits) {
    std::filesystem::copy_file("/bin/true", dir_ + "/slow");
    signal(SIGIO, SIG_IGN);  // what tells the holder of the lease
    Fd lease(open((dir_ + "/slow").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(fcntl(lease.get(), F_SETLEASE, F_WRLCK), 0);
    const uint64_t start = BootNow();
    const Ran ran = Stockade({"run", "-p", dir_ + "/open.yaml", "--bind", dir_ + "/slow:/slow", "--timeout",
                              "300ms", "--result", dir_ + "/slow.json", "--", "/slow"});
    EXPECT_LT(BootNow() - start, 20 * kSecond);
    EXPECT_EQ(ran.status, 137) << ran.err;
    EXPECT_TRUE(absl::StrContains(Read("slow.json"), "\"end\":\"timeout\"")) << Read("slow.json");
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

TEST_F(Run, CopiesFilesOut) {
    std::filesystem::create_directory(dir_ + "/files");
    const Ran ran = Sh("echo data >/out/a; ln -s /etc/passwd /out/link", {"--out", dir_ + "/files"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(Read("files/a"), "data\n");
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(dir_ + "/files/link")));
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

TEST_F(Run, APolicyKillIs137WithItsReason) {
    const Ran ran = Stockade({"run", "-p", dir_ + "/strict.yaml", "--result", dir_ + "/k.json", "--events",
                              dir_ + "/k.events", "--", "/bin/sh", "-c", "/usr/bin/id; /bin/sleep 100"});
    EXPECT_EQ(ran.status, 137) << ran.err;
    EXPECT_TRUE(ran.out.empty()) << ran.out;
    EXPECT_TRUE(absl::StrContains(ran.err, "/usr/bin/id")) << ran.err;
    EXPECT_TRUE(absl::StrContains(Read("k.json"), "\"end\":\"policy\"")) << Read("k.json");
    EXPECT_TRUE(absl::StrContains(Read("k.events"), "\"op\":\"killed\"")) << Read("k.events");
    const Ran control = Sh("/usr/bin/id");
    EXPECT_EQ(control.status, 0) << control.err;
    EXPECT_TRUE(absl::StrContains(control.out, "uid=")) << control.out;
}

TEST_F(Run, KilledClientLeavesNothing) {
    const pid_t pid =
        Start({"run", "-p", dir_ + "/open.yaml", "--", "/bin/sh", "-c", "echo up; sleep 1000"}, "cl");
    ASSERT_TRUE(Until([] { return Read("cl.out") == "up\n"; })) << Read("cl.err");
    kill(pid, SIGKILL);
    EXPECT_EQ(Finish(pid, "cl").status, 137);
    EXPECT_TRUE(Until(NothingLeft)) << Cgroups().size();
}

TEST_F(Run, AKilledShimTakesItsSandboxAlong) {
    const pid_t pid =
        Start({"run", "-p", dir_ + "/open.yaml", "--", "/bin/sh", "-c", "echo up; sleep 1000"}, "sh");
    ASSERT_TRUE(Until([] { return Read("sh.out") == "up\n"; })) << Read("sh.err");
    const std::string json = Stockade({"inspect", Cgroups().at(0), "-o", "json"}).out;
    const size_t at = json.find("\"shim_pid\":");
    ASSERT_NE(at, std::string::npos) << json;
    const int shim = std::atoi(json.c_str() + at + 11);
    ASSERT_GT(shim, 1);
    ASSERT_EQ(kill(shim, SIGKILL), 0);
    const Ran ran = Finish(pid, "sh");
    EXPECT_EQ(ran.status, 137) << ran.err;
    EXPECT_TRUE(absl::StrContains(ran.err, "keeper of the sandbox was killed")) << ran.err;
    EXPECT_TRUE(Until(NothingLeft)) << Cgroups().size();
}

TEST_F(Run, StockadeKillEndsASandbox) {
    const pid_t pid =
        Start({"run", "-p", dir_ + "/open.yaml", "--", "/bin/sh", "-c", "echo up; sleep 1000"}, "ki");
    ASSERT_TRUE(Until([] { return Read("ki.out") == "up\n"; })) << Read("ki.err");
    ASSERT_EQ(Cgroups().size(), 1u);
    const std::string id = Cgroups()[0];
    const Ran ps = Stockade({"ps", "-o", "json"});
    EXPECT_TRUE(absl::StrContains(ps.out, id)) << ps.out;
    EXPECT_TRUE(absl::StrContains(Stockade({"inspect", id, "-o", "json"}).out, "sleep 1000"));
    const Ran killed = Stockade({"kill", id, "--reason", "enough"});
    EXPECT_EQ(killed.status, 0) << killed.err;
    const Ran ran = Finish(pid, "ki");
    EXPECT_EQ(ran.status, 137);
    EXPECT_TRUE(absl::StrContains(ran.err, "enough")) << ran.err;
}

// Together their command lines have more than a message may, and their labels more than a page.
TEST_F(Run, PsShowsLongCommandsCutAndAllPages) {
    std::vector<std::string> args = {"run", "-p", dir_ + "/open.yaml"};
    for (int i = 0; i < 31; ++i) {
        args.push_back("--label");
        args.push_back(absl::StrCat("key", i, "=", std::string(250, 'v')));
    }
    for (const char* word : {"--", "/bin/sh", "-c", "echo up; sleep 1000"}) args.push_back(word);
    for (int i = 0; i < 2; ++i) args.push_back(std::string(90000, 'x'));
    std::vector<pid_t> clients;
    for (int i = 0; i < 10; ++i) clients.push_back(Start(args, absl::StrCat("ps", i)));
    for (int i = 0; i < 10; ++i) {
        const std::string tag = absl::StrCat("ps", i);
        ASSERT_TRUE(Until([&] { return Read(tag + ".out") == "up\n"; })) << Read(tag + ".err");
    }
    const Ran ps = Stockade({"ps", "-o", "json"});
    EXPECT_EQ(ps.status, 0) << ps.err;
    for (const std::string& id : Cgroups()) EXPECT_TRUE(absl::StrContains(ps.out, id)) << id;
    EXPECT_TRUE(absl::StrContains(ps.out, "echo up; sleep 1000 xxx")) << ps.out.substr(0, 2000);
    EXPECT_TRUE(absl::StrContains(ps.out, "\"command_truncated\":true"));
    EXPECT_TRUE(absl::StrContains(Stockade({"ps"}).out, "echo up; sleep 1000 xxx"));
    const Ran inspect = Stockade({"inspect", Cgroups().at(0), "-o", "json"});
    EXPECT_EQ(inspect.status, 0) << inspect.err;
    for (const pid_t client : clients) kill(client, SIGKILL);
    for (const pid_t client : clients) (void)Finish(client, "t");
    EXPECT_TRUE(Until(NothingLeft));
}

TEST_F(Run, AnAgentOutOfDescriptorsWaitsForOne) {
    ASSERT_EQ(Sh("true").status, 0);
    const pid_t agent = AgentPid();
    const auto lines = [] {
        const std::string log = Read("run/agent.log");
        return std::count(log.begin(), log.end(), '\n');
    };
    const auto before = lines();
    rlimit old{};
    ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, nullptr, &old), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = old.rlim_max};
    ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, &none, nullptr), 0);
    StatusOr<api::Channel> waits = api::Channel::Connect(dir_ + "/run/agent.sock");
    ASSERT_TRUE(waits.ok()) << waits.status();
    ASSERT_TRUE(Until([&] { return lines() > before; }));
    usleep(1'500'000);  // in which a loop without pause says it thousands of times
    EXPECT_LE(lines(), before + 2) << Read("run/agent.log");
    ASSERT_EQ(prlimit(agent, RLIMIT_NOFILE, &old, nullptr), 0);
    api::Message ping;
    ping.mutable_ping();
    ASSERT_TRUE(waits->Send(ping).ok());
    EXPECT_TRUE(waits->Receive(5000).ok());
    EXPECT_EQ(Stockade({"ps"}).status, 0);
}

TEST_F(Run, ASecondAgentIsRefused) {
    ASSERT_EQ(Sh("true").status, 0);
    const std::string command = absl::StrCat(Bin("stockaded"), " --config ", dir_, "/config.yaml 2>&1");
    FILE* pipe = popen(command.c_str(), "r");
    char line[1024] = "";
    EXPECT_NE(fgets(line, sizeof(line), pipe), nullptr);
    EXPECT_TRUE(absl::StrContains(line, "another agent runs")) << line;
    EXPECT_EQ(WEXITSTATUS(pclose(pipe)), 125);
}

TEST_F(Run, AKilledAgentIsSucceededAndTheSandboxGoesOn) {
    std::filesystem::create_directory(dir_ + "/shown");
    const pid_t pid = Start({"run", "-p", dir_ + "/open.yaml", "--in", dir_ + "/shown", "--", "/bin/sh", "-c",
                             "echo up; while ! [ -e /in/go ]; do sleep 0.05; done; exit 5"},
                            "ad");
    ASSERT_TRUE(Until([] { return Read("ad.out") == "up\n"; })) << Read("ad.err");
    const pid_t before = AgentPid();
    StopAgent(SIGKILL);
    ASSERT_TRUE(Until([] { return absl::StrContains(Stockade({"ps", "-o", "json"}).out, "Adopted"); }));
    EXPECT_NE(AgentPid(), before);
    Write("shown/go", "");
    const Ran ran = Finish(pid, "ad");
    EXPECT_EQ(ran.status, 5) << ran.err;
    EXPECT_TRUE(Until(NothingLeft));
}

}  // namespace
}  // namespace stockade::cmd
