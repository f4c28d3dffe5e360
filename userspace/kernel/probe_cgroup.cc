#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/kernel/probe_parts.h"

namespace stockade::kernel::probe {
namespace {

// Children do next to nothing; under an emulator even that takes a while.
constexpr int kChildMs = 10'000;
// After the last task is reaped its cgroup may count as populated for an instant.
constexpr uint64_t kRemoveNs = 1'000'000'000;

Status WriteControl(const Fd& dir, const char* file, absl::string_view text) {
    SK_ASSIGN_OR_RETURN(Fd control, Fd::OpenAt(dir, file, O_WRONLY));
    return Annotate(WriteAll(control.get(), text), absl::StrCat("write ", file));
}

// Waits for our own child, at most kChildMs, and reaps it in any case.
StatusOr<int> Reap(pid_t child) {
    Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    bool late = false;
    if (pidfd.ok()) {
        pollfd wait{pidfd.get(), POLLIN, 0};
        int ready;
        do {
            ready = poll(&wait, 1, kChildMs);
        } while (ready < 0 && errno == EINTR);
        late = ready == 0;
        if (late) kill(child, SIGKILL);
    }
    int status = 0;
    pid_t got;
    do {
        got = waitpid(child, &status, 0);
    } while (got < 0 && errno == EINTR);
    if (got != child) return ErrnoStatus(errno, "wait for the probe's child");
    if (late) return absl::DeadlineExceededError("the probe's child did not end");
    return status;
}

Status TryKill(const ThrowAwayCgroup& cgroup) {
    SK_ASSIGN_OR_RETURN(int status, cgroup.Run(
                                        [] {
                                            for (;;) pause();
                                            return 0;
                                        },
                                        [&] { return WriteControl(cgroup.dir(), "cgroup.kill", "1"); }));
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return absl::OkStatus();
    return absl::InternalError("written, and the task in it lived on");
}

Status TryFreeze(const ThrowAwayCgroup& cgroup) {
    SK_RETURN_IF_ERROR(WriteControl(cgroup.dir(), "cgroup.freeze", "1"));
    return WriteControl(cgroup.dir(), "cgroup.freeze", "0");
}

Status TryCloneInto(const ThrowAwayCgroup& cgroup) {
    clone_args arguments{};
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = static_cast<uint64_t>(cgroup.dir().get());
    long child = syscall(SYS_clone3, &arguments, sizeof(arguments));
    if (child < 0) return ErrnoStatus(errno, "clone3(CLONE_INTO_CGROUP)");
    if (child == 0) _exit(0);
    return Reap(static_cast<pid_t>(child)).status();
}

}  // namespace

StatusOr<ThrowAwayCgroup> ThrowAwayCgroup::Create(const std::string& parent) {
    if (parent.empty()) return absl::FailedPreconditionError("no cgroup v2 is mounted");
    static std::atomic<unsigned> count{0};
    std::string path = absl::StrCat(parent, "/stockade-probe-", getpid(), "-", count.fetch_add(1));
    if (mkdir(path.c_str(), 0755) != 0) return ErrnoStatus(errno, absl::StrCat("mkdir ", path));
    auto dir = Fd::Open(path, O_RDONLY | O_DIRECTORY);
    if (!dir.ok()) {
        (void)rmdir(path.c_str());  // the failure to open is the one to tell
        return dir.status();
    }
    return ThrowAwayCgroup(std::move(path), *std::move(dir));
}

ThrowAwayCgroup::ThrowAwayCgroup(ThrowAwayCgroup&& other) noexcept
    : path_(std::exchange(other.path_, "")), dir_(std::move(other.dir_)) {}

ThrowAwayCgroup::~ThrowAwayCgroup() {
    (void)Remove();  // whoever wants to know calls Remove() before
}

Status ThrowAwayCgroup::Remove() {
    if (path_.empty()) return absl::OkStatus();
    dir_.Reset();
    const uint64_t deadline = BootNow() + kRemoveNs;
    while (rmdir(path_.c_str()) != 0) {
        if (errno == ENOENT) break;
        if (errno != EBUSY || BootNow() > deadline) {
            return ErrnoStatus(errno, absl::StrCat("rmdir ", path_));
        }
        timespec pause{0, 1'000'000};
        nanosleep(&pause, nullptr);
    }
    path_.clear();
    return absl::OkStatus();
}

StatusOr<uint64_t> ThrowAwayCgroup::Id() const {
    struct stat info {};
    if (fstat(dir_.get(), &info) != 0) return ErrnoStatus(errno, "fstat the probe's cgroup");
    return info.st_ino;
}

StatusOr<int> ThrowAwayCgroup::Run(const std::function<int()>& body,
                                   const std::function<Status()>& meanwhile) const {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
    Fd gate(ends[0]), opener(ends[1]);
    const pid_t parent = getpid();
    pid_t child = fork();
    if (child < 0) return ErrnoStatus(errno, "fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(255);  // orphaned before the line above
        close(opener.get());
        char byte;
        if (read(gate.get(), &byte, 1) != 1) _exit(255);
        _exit(body());
    }
    Status ready = WriteControl(dir_, "cgroup.procs", absl::StrCat(child));
    if (ready.ok()) ready = WriteAll(opener.get(), "x");
    if (ready.ok() && meanwhile) ready = meanwhile();
    if (!ready.ok()) kill(child, SIGKILL);
    auto status = Reap(child);
    if (!ready.ok()) return ready;
    return status;
}

void FillCgroup(const ThrowAwayCgroup& cgroup, ProbeReport& report) {
    Set(report, Feature::CGROUP_KILL, TryKill(cgroup));
    Set(report, Feature::CGROUP_FREEZE, TryFreeze(cgroup));
    Set(report, Feature::CLONE3_CGROUP, TryCloneInto(cgroup));
}

}  // namespace stockade::kernel::probe
