#include "userspace/respond/kill.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::respond {
namespace {

// Nested cgroups a sandbox can make are bounded by its own limits; deeper ones are left to
// cgroup.kill, which needs no list.
constexpr int kMaxDepth = 8;
// Of a sandbox without a bound of its own; the kernel's own bound of pids is four millions.
constexpr size_t kMaxListed = 1 << 16;

StatusOr<Fd> OpenIn(int dir, const char* name, int flags) {
    Fd fd(openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.ok()) return ErrnoStatus(errno, absl::StrCat("open ", name));
    return fd;
}

Status WriteIn(int dir, const char* name, absl::string_view value) {
    SK_ASSIGN_OR_RETURN(const Fd fd, OpenIn(dir, name, O_WRONLY));
    return WriteAll(fd.get(), value);
}

// Value of `key` in cgroup.events; the file has a few short lines.
StatusOr<int> EventValue(int events_fd, absl::string_view key) {
    char buffer[256];
    const ssize_t n = pread(events_fd, buffer, sizeof(buffer), 0);
    // A removed cgroup has no events; it is as empty as can be.
    if (n < 0 && errno == ENODEV) return 0;
    if (n < 0) return ErrnoStatus(errno, "read cgroup.events");
    for (absl::string_view line : absl::StrSplit(absl::string_view(buffer, static_cast<size_t>(n)), '\n')) {
        const std::pair<absl::string_view, absl::string_view> pair = absl::StrSplit(line, ' ');
        int value = 0;
        if (pair.first == key && absl::SimpleAtoi(pair.second, &value)) return value;
    }
    return absl::NotFoundError(absl::StrCat("no ", key, " in cgroup.events"));
}

// Waits until `key` has `value`. cgroup.events tells of a change by POLLPRI.
StatusOr<bool> WaitValue(int cgroup_fd, absl::string_view key, int value, uint64_t wait_ns, int halt_fd) {
    const StatusOr<Fd> events = OpenIn(cgroup_fd, "cgroup.events", O_RDONLY);
    // The cgroup was removed while we held its directory: see EventValue.
    if (absl::IsNotFound(events.status())) return value == 0;
    if (!events.ok()) return events.status();
    const uint64_t start = BootNow();
    const uint64_t end = start + std::min(wait_ns, UINT64_MAX - start);
    while (true) {
        SK_ASSIGN_OR_RETURN(const int now_value, EventValue(events->get(), key));
        if (now_value == value) return true;
        const uint64_t now = BootNow();
        if (now >= end) return false;
        const uint64_t left = end - now;
        const timespec timeout{.tv_sec = static_cast<time_t>(left / 1'000'000'000),
                               .tv_nsec = static_cast<long>(left % 1'000'000'000)};
        pollfd entries[] = {{.fd = events->get(), .events = POLLPRI, .revents = 0},
                            {.fd = halt_fd, .events = POLLIN, .revents = 0}};
        if (ppoll(entries, 2, &timeout, nullptr) < 0) {
            if (errno == EINTR) continue;
            return ErrnoStatus(errno, "wait for cgroup.events");
        }
        if (entries[1].revents != 0) return false;
    }
}

void AddPids(int dir, size_t max, int depth, std::vector<int>* pids) {
    const StatusOr<Fd> procs = OpenIn(dir, "cgroup.procs", O_RDONLY);
    // 8 bytes hold a pid and its newline: enough for `max` of them.
    const StatusOr<std::string> text =
        procs.ok() ? ReadAll(procs->get(), std::max<size_t>(max * 8, 1 << 20)) : procs.status();
    if (text.ok()) {
        for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
            int pid = 0;
            if (pids->size() < max && absl::SimpleAtoi(line, &pid)) pids->push_back(pid);
        }
    }
    if (depth >= kMaxDepth || pids->size() >= max) return;
    const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* handle = copy < 0 ? nullptr : fdopendir(copy);
    if (handle == nullptr) return;
    while (const dirent* entry = readdir(handle)) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
        const StatusOr<Fd> child = OpenIn(dirfd(handle), entry->d_name, O_RDONLY | O_DIRECTORY);
        if (child.ok()) AddPids(child->get(), max, depth + 1, pids);
    }
    (void)closedir(handle);  // closes `copy` too
}

// Field 22 of /proc/PID/stat; the name before it may hold anything, a parenthesis too.
StatusOr<uint64_t> StartTicks(int pid) {
    SK_ASSIGN_OR_RETURN(const std::string text, ReadFile(absl::StrCat("/proc/", pid, "/stat"), 4096));
    const std::vector<std::string> words = absl::StrSplit(text.substr(std::min(text.rfind(')'), text.size())), ' ');
    uint64_t ticks = 0;
    if (words.size() < 21 || !absl::SimpleAtoi(words[20], &ticks)) return absl::InternalError("/proc/PID/stat is cut");
    return ticks;
}

}  // namespace

StatusOr<bool> WaitEmpty(int cgroup_fd, uint64_t wait_ns, int halt_fd) {
    return WaitValue(cgroup_fd, "populated", 0, wait_ns, halt_fd);
}

std::vector<int> ListPids(int cgroup_fd, size_t max) {
    std::vector<int> pids;
    AddPids(cgroup_fd, max, 0, &pids);
    return pids;
}

Status SetFrozen(int cgroup_fd, bool frozen, uint64_t wait_ns) {
    SK_RETURN_IF_ERROR(WriteIn(cgroup_fd, "cgroup.freeze", frozen ? "1" : "0"));
    SK_ASSIGN_OR_RETURN(const bool done, WaitValue(cgroup_fd, "frozen", frozen ? 1 : 0, wait_ns, -1));
    if (done) return absl::OkStatus();
    return absl::DeadlineExceededError(frozen ? "not all of its tasks are frozen yet" : "not all of its tasks go on yet");
}

Status KillOne(int cgroup_fd, int pid, uint64_t start_boot_ns) {
    const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!process.ok()) return errno == ESRCH ? absl::NotFoundError("it has ended") : ErrnoStatus(errno, "open a pidfd");
    // From here on the number stays whose it is.
    SK_ASSIGN_OR_RETURN(const uint64_t ticks, StartTicks(pid));
    if (ticks != start_boot_ns / (1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK))))
        return absl::NotFoundError("it has ended");
    const std::vector<int> pids = ListPids(cgroup_fd, kMaxListed);
    if (std::find(pids.begin(), pids.end(), pid) == pids.end()) return absl::NotFoundError("it is not in the sandbox");
    if (syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0) return absl::OkStatus();
    return errno == ESRCH ? absl::NotFoundError("it has ended") : ErrnoStatus(errno, "kill it");
}

Status AskKill(int cgroup_fd) { return WriteIn(cgroup_fd, "cgroup.kill", "1"); }

KillReport KillCgroup(int cgroup_fd, const KillOptions& options, const EvidenceFn& evidence) {
    KillReport report;
    const uint64_t begin = BootNow();
    // A freezer that fails or is late costs evidence its stillness, nothing else.
    if (options.freeze) report.times.freeze_asked_ns = begin;
    if (options.freeze && WriteIn(cgroup_fd, "cgroup.freeze", "1").ok()) {
        const StatusOr<bool> frozen =
            WaitValue(cgroup_fd, "frozen", 1, options.freeze_wait_ns, options.halt_fd);
        if (frozen.ok() && *frozen) report.times.frozen_ns = BootNow();
    }
    if (evidence) {
        const uint64_t now = BootNow();
        evidence(std::max(now + options.evidence_ns / 2, begin + options.evidence_ns));
        report.times.evidence_ns = BootNow();
    }
    report.status = AskKill(cgroup_fd);
    report.times.kill_asked_ns = BootNow();
    const StatusOr<bool> empty = WaitEmpty(cgroup_fd, options.empty_wait_ns, options.halt_fd);
    if (empty.ok() && *empty) {
        report.times.empty_ns = BootNow();
        if (absl::IsNotFound(report.status)) report.status = absl::OkStatus();  // nothing was there to kill
        return report;
    }
    report.pending = true;
    report.left = ListPids(cgroup_fd, kMaxLeft);
    if (report.status.ok() && !empty.ok()) report.status = empty.status();
    return report;
}

}  // namespace stockade::respond
