// What the parts of run_root_test share: an installation of their own, and `stockade` run in it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"

namespace stockade::cmd {

constexpr uint64_t kSecond = 1'000'000'000;

inline std::string Bin(const char* name) { return absl::StrCat(std::getenv("STOCKADE_BIN_DIR"), "/", name); }

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
        Write("config.yaml", absl::StrCat("runtime_dir: ", dir_, "/run\nstate_dir: ", dir_, "/state\npin_dir: /sys/fs/bpf/", tag_,
                                          "\ncgroup_name: ", tag_, "\nagent_wait_seconds: 3\nmade_ahead: ", made_ahead_, "\npolicy_dirs: [",
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
    // The sandbox made ahead has no command; a process that keeps it says so by its name.
    static bool IsSpare(const std::string& id) {
        std::error_code error;
        for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
            const std::string dir = entry.path();
            const auto name = ReadFile(dir + "/comm", 64), words = ReadFile(dir + "/cmdline", 4096);
            if (name.ok() && *name == "stockade-spare\n" && words.ok() && absl::StrContains(*words, id))
                return true;
        }
        return false;
    }
    static std::vector<std::string> Cgroups() {
        std::vector<std::string> names = AllCgroups();
        std::erase_if(names, IsSpare);
        return names;
    }
    // The one that is made ahead; empty when there is none.
    static std::string Spare() {
        for (const std::string& name : AllCgroups()) {
            if (IsSpare(name)) return name;
        }
        return "";
    }
    static std::vector<std::string> AllCgroups() {
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
    static inline const char* made_ahead_ = "false";  // under emulation it is twice the work of each start
};

}  // namespace stockade::cmd
