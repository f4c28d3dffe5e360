#include "tests/bench/audit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tests/bench/process.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::bench {
namespace {

constexpr uint64_t kReadyNs = 10'000'000'000;

// Installed, or fetched by tests/bench/fetch_auditd.
StatusOr<std::string> Find(std::vector<std::string>* prefix) {
    const char* cache = getenv("STOCKADE_CACHE");
    const std::string tree = absl::StrCat(cache ? cache : "/var/cache/stockade", "/auditd/tree");
    for (const std::string& root : {std::string(), tree}) {
        if (access((root + "/sbin/auditd").c_str(), X_OK) != 0) continue;
        if (!root.empty()) {
            *prefix = {"/usr/bin/env", absl::StrCat("LD_LIBRARY_PATH=", root, "/lib/x86_64-linux-gnu:", root,
                                                    "/usr/lib/x86_64-linux-gnu")};
        }
        return root + "/sbin";
    }
    return absl::NotFoundError("auditd is neither installed nor fetched (tests/bench/fetch_auditd)");
}

// Debian's, but that the log is one file here and no disk of it is ever too full.
std::string Configuration(const std::string& dir, const std::string& log) {
    return absl::StrCat(
        "local_events = yes\nwrite_logs = yes\nlog_file = ", log,
        "\nlog_group = root\nlog_format = ENRICHED\nflush = INCREMENTAL_ASYNC\nfreq = 50\nmax_log_file = "
        "65536\n"
        "num_logs = 0\npriority_boost = 4\nname_format = NONE\nmax_log_file_action = IGNORE\nspace_left = 2\n"
        "space_left_action = IGNORE\nadmin_space_left = 1\nadmin_space_left_action = IGNORE\n"
        "disk_full_action = IGNORE\ndisk_error_action = IGNORE\nuse_libwrap = no\ndistribute_network = no\n"
        "q_depth = 2000\noverflow_action = IGNORE\nmax_restarts = 10\nplugin_dir = ",
        dir,
        "/plugins.d\n"
        "end_of_event_timeout = 2\n");
}

// "lost 17" of auditctl -s.
uint64_t NumberOf(absl::string_view text, absl::string_view name) {
    uint64_t value = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        absl::string_view line = text.substr(at, end - at);
        at = end + 1;
        if (absl::ConsumePrefix(&line, name) && absl::ConsumePrefix(&line, " ") &&
            absl::SimpleAtoi(line, &value))
            return value;
    }
    return 0;
}

pid_t KernelThread() {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        int pid = 0;
        const auto comm = ReadFile(entry.path().string() + "/comm", 64);
        if (absl::SimpleAtoi(entry.path().filename().string(), &pid) && comm.ok() && *comm == "kauditd\n")
            return pid;
    }
    return 0;
}

// Of the record that each event has one of; 0 = another one. "type=SYSCALL ... ppid=1 pid=2 auid=..."
pid_t CallerOf(absl::string_view line) {
    constexpr absl::string_view kPid = " pid=";
    const size_t at = absl::StartsWith(line, "type=SYSCALL") ? line.find(kPid) : line.npos;
    if (at == line.npos) return 0;
    line.remove_prefix(at + kPid.size());
    int pid = 0;
    return absl::SimpleAtoi(line.substr(0, line.find(' ')), &pid) ? pid : 0;
}

Status Write(const std::string& path, const std::string& text) {
    SK_ASSIGN_OR_RETURN(Fd file, Fd::Open(path, O_WRONLY | O_CREAT | O_TRUNC, 0640));
    return WriteAll(file.get(), text);
}

}  // namespace

StatusOr<std::string> Audit::Control(const std::vector<std::string>& args) const {
    std::vector<std::string> all = prefix_;
    all.push_back(folder_ + "/auditctl");
    all.insert(all.end(), args.begin(), args.end());
    SK_ASSIGN_OR_RETURN(const Ran ran, RunProcess(all));
    if (ran.status != 0)
        return absl::FailedPreconditionError(absl::StrCat("auditctl ", args[0], ": ", ran.err, ran.out));
    return ran.out;
}

StatusOr<std::unique_ptr<Audit>> Audit::Start(const Stage& stage) {
    std::unique_ptr<Audit> audit(new Audit());
    SK_ASSIGN_OR_RETURN(audit->folder_, Find(&audit->prefix_));
    SK_ASSIGN_OR_RETURN(const std::string before, audit->Control({"-s"}));
    SK_ASSIGN_OR_RETURN(std::string rules, audit->Control({"-l"}));
    const std::string none = "No rules\n", exempt = "-a never,task\n";
    if (NumberOf(before, "enabled") != 0 || NumberOf(before, "pid") != 0 ||
        (rules != none && rules != exempt))
        return absl::FailedPreconditionError("audit is in use on this machine");
    const std::string dir = stage.dir() + "/audit";
    for (const std::string& made : {dir, dir + "/plugins.d"}) {
        if (mkdir(made.c_str(), 0750) != 0) return ErrnoStatus(errno, absl::StrCat("make ", made));
    }
    audit->log_ = dir + "/audit.log";
    SK_RETURN_IF_ERROR(Write(dir + "/auditd.conf", Configuration(dir, audit->log_)));
    audit->ours_ = true;
    SK_RETURN_IF_ERROR(audit->Control({"-D"}).status());
    SK_RETURN_IF_ERROR(audit->Control({"-a", "never,task", "-F", absl::StrCat("pid!=", getpid())}).status());
    // Room as Debian's rules give it. No waiting: it would slow the workload down, and what is lost is what is asked.
    SK_RETURN_IF_ERROR(audit->Control({"-b", "8192"}).status());
    SK_RETURN_IF_ERROR(audit->Control({"--backlog_wait_time", "0"}).status());
    std::vector<std::string> command = audit->prefix_;
    for (const std::string& word : {audit->folder_ + "/auditd", std::string("-n"), std::string("-s"),
                                    std::string("enable"), std::string("-c"), dir})
        command.push_back(word);
    audit->daemon_ = fork();
    if (audit->daemon_ < 0) return ErrnoStatus(errno, "fork auditd");
    if (audit->daemon_ == 0) {
        std::vector<char*> argv;
        for (std::string& word : command) argv.push_back(word.data());
        argv.push_back(nullptr);
        execv(argv[0], argv.data());
        _exit(127);
    }
    for (const uint64_t end = BootNow() + kReadyNs;;) {
        SK_ASSIGN_OR_RETURN(const std::string now, audit->Control({"-s"}));
        if (NumberOf(now, "pid") == static_cast<uint64_t>(audit->daemon_) && NumberOf(now, "enabled") == 1)
            break;
        if (BootNow() > end) return absl::DeadlineExceededError("auditd does not begin");
        usleep(10'000);  // between two looks
    }
    SK_RETURN_IF_ERROR(
        audit->Control({"-a", "always,exit", "-F", "arch=b64", "-S", "openat", "-F", "key=stockade-bench"})
            .status());
    audit->kernel_thread_ = KernelThread();
    SK_RETURN_IF_ERROR(audit->Read({}).status());
    return audit;
}

Audit::~Audit() {
    // What cannot be undone is left for a person to see: auditctl -s, auditctl -l.
    if (daemon_ > 0) {
        (void)kill(daemon_, SIGTERM);
        (void)waitpid(daemon_, nullptr, 0);
    }
    if (!ours_) return;
    (void)Control({"-e", "0"});
    (void)Control({"-D"});
    (void)Control({"-a", "never,task"});
}

StatusOr<Audit::Books> Audit::Read(const std::set<pid_t>& of) {
    Books books;
    SK_ASSIGN_OR_RETURN(const std::string now, Control({"-s"}));
    const uint64_t lost = NumberOf(now, "lost");
    books.lost = lost - std::min(lost, lost_);
    lost_ = lost;
    SK_ASSIGN_OR_RETURN(const Fd file, Fd::Open(log_, O_RDONLY));
    std::string chunk(1 << 20, '\0');
    for (;;) {
        const ssize_t got = pread(file.get(), chunk.data(), chunk.size(), static_cast<off_t>(read_));
        if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", log_));
        if (got == 0) break;
        read_ += static_cast<uint64_t>(got);
        half_.append(chunk, 0, static_cast<size_t>(got));
        size_t at = 0;
        for (size_t end; (end = half_.find('\n', at)) != half_.npos; at = end + 1) {
            books.events += of.count(CallerOf(absl::string_view(half_).substr(at, end - at)));
        }
        half_.erase(0, at);
    }
    return books;
}

}  // namespace stockade::bench
