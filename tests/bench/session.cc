#include "tests/bench/session.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/base/errno.h"

namespace stockade::bench {
namespace {

constexpr int kAgentEndMs = 30000;

Status Write(const std::string& path, const std::string& text) {
    SK_ASSIGN_OR_RETURN(Fd file, Fd::Open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    return WriteAll(file.get(), text);
}

// "condemned_boot_ns":123 and its like; keys that end so exist in the object `times` only.
std::map<std::string, uint64_t> TimesOf(absl::string_view json) {
    constexpr absl::string_view kEnd = "_boot_ns\":";
    std::map<std::string, uint64_t> times;
    for (size_t at = json.find(kEnd); at != absl::string_view::npos; at = json.find(kEnd, at + 1)) {
        const size_t quote = json.rfind('"', at - 1);
        absl::string_view digits = absl::StripLeadingAsciiWhitespace(json.substr(at + kEnd.size()));
        digits = absl::StripPrefix(digits, "\"");
        digits = digits.substr(0, digits.find_first_not_of("0123456789"));
        uint64_t value = 0;
        if (quote != absl::string_view::npos && absl::SimpleAtoi(digits, &value)) {
            times.emplace(json.substr(quote + 1, at - quote - 1), value);
        }
    }
    return times;
}

}  // namespace

StatusOr<std::unique_ptr<Session>> Session::Open(const Settings& settings, bool evidence) {
    std::unique_ptr<Session> session(new Session());
    session->stockade_ = settings.bin_dir + "/stockade";
    for (const char* name : {"/stockade", "/stockaded"}) {
        const std::string path = settings.bin_dir + name;
        if (access(path.c_str(), X_OK) != 0) return ErrnoStatus(errno, absl::StrCat("use ", path));
    }
    SK_ASSIGN_OR_RETURN(session->stage_, Stage::Create(settings.step));
    static int number = 0;
    session->tag_ = absl::StrCat("stockade_bench_", getpid(), "_", ++number);
    const std::string& dir = session->stage_->dir();
    const char* backend = settings.backend == kernel::Backend::kLsm      ? "lsm"
                          : settings.backend == kernel::Backend::kSignal ? "signal"
                                                                         : "auto";
    // No breaker: each run of kill.* is a kill.
    SK_RETURN_IF_ERROR(Write(
        dir + "/config.yaml",
        absl::StrCat("runtime_dir: ", dir, "/run\nstate_dir: ", dir, "/state\npin_dir: /sys/fs/bpf/", session->tag_, "\ncgroup_name: ",
                     session->tag_, "\npolicy_dirs: []\nbackend: ", backend, "\nkills_per_minute: 0\n",
                     evidence ? absl::StrCat("evidence:\n  dir: ", dir, "/evidence\n") : "")));
    // /usr/bin/true may be read: an execve that Landlock refuses is not one to kill for.
    SK_RETURN_IF_ERROR(
        Write(dir + "/policy.yaml",
              "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: bench}\nspec:\n  "
              "violation: kill-sandbox\n"
              "  exec: {allow: [/step]}\n  files: {read: [/step, /usr/bin/true], write: []}\n  network: {allow: []}\n"));
    return session;
}

Session::~Session() {
    if (tag_.empty()) return;
    (void)StopAgent();  // a bench that cannot end its agent leaves it to --idle-exit
    std::error_code ignored;
    std::filesystem::remove_all("/sys/fs/bpf/" + tag_, ignored);
    (void)rmdir(
        absl::StrCat(stage_->cgroup2_mount(), "/", tag_).c_str());  // stays while something of it is left
}

StatusOr<Session::Sandboxed> Session::Run(const std::vector<std::string>& words) {
    const std::string result = stage_->dir() + "/result.json";
    std::vector<std::string> args = {stockade_,
                                     "--config",
                                     stage_->dir() + "/config.yaml",
                                     "run",
                                     "--policy",
                                     stage_->dir() + "/policy.yaml",
                                     "--bind",
                                     stage_->step() + ":/step",
                                     "--result",
                                     result,
                                     "--quiet",
                                     "--",
                                     "/step"};
    args.insert(args.end(), words.begin(), words.end());
    Sandboxed sandboxed;
    SK_ASSIGN_OR_RETURN(sandboxed.ran, RunProcess(args));
    if (sandboxed.ran.status == 125 || sandboxed.ran.status == 127) {
        return absl::UnavailableError(absl::StrCat("stockade run failed: ", sandboxed.ran.err));
    }
    SK_ASSIGN_OR_RETURN(const std::string json, ReadFile(result, 16 << 20));
    sandboxed.times = TimesOf(json);
    (void)unlink(result.c_str());
    return sandboxed;
}

Status Session::StopAgent() {
    const auto text = ReadFile(stage_->dir() + "/run/agent.lock", 64);
    int pid = 0;
    if (!text.ok() || !absl::SimpleAtoi(absl::StripSuffix(*text, "\n"), &pid) || pid <= 1)
        return absl::OkStatus();
    const Fd agent(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    // The number may be another's by now: only what was started from our own configuration is ended.
    const auto command = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"), 65536);
    if (!agent.ok() || !command.ok() || command->find(stage_->dir()) == std::string::npos)
        return absl::OkStatus();
    if (syscall(SYS_pidfd_send_signal, agent.get(), SIGTERM, nullptr, 0) != 0)
        return ErrnoStatus(errno, "end the agent");
    pollfd ended = {agent.get(), POLLIN, 0};
    if (poll(&ended, 1, kAgentEndMs) != 1)
        return absl::DeadlineExceededError("the agent of the bench does not end");
    return absl::OkStatus();
}

}  // namespace stockade::bench
