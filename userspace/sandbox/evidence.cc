#include "userspace/sandbox/evidence.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/respond/kill.h"

namespace stockade::sandbox {
namespace {

// One read of a small /proc file; empty when the process is gone.
std::string ReadShort(const std::string& path, size_t max) {
    const StatusOr<Fd> fd = Fd::Open(path, O_RDONLY);
    if (!fd.ok()) return "";
    std::string text(max, '\0');
    const ssize_t n = read(fd->get(), text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
}

// /proc/PID/stat: "pid (comm) state ppid ...", where comm may hold anything, ')' included.
bool ParseStat(absl::string_view stat, ProcessEvidence* out) {
    const size_t open = stat.find('(');
    const size_t close = stat.rfind(')');
    if (open == absl::string_view::npos || close == absl::string_view::npos || close < open) {
        return false;
    }
    out->comm = std::string(stat.substr(open + 1, close - open - 1));
    const std::vector<absl::string_view> fields =
        absl::StrSplit(stat.substr(close + 1), ' ', absl::SkipEmpty());
    // Field 3 of proc(5) is the first here; 22 is the start in clock ticks since boot.
    uint64_t ticks = 0;
    if (fields.size() < 20 || fields[0].empty() || !absl::SimpleAtoi(fields[1], &out->ppid) ||
        !absl::SimpleAtoi(fields[19], &ticks)) {
        return false;
    }
    out->state = fields[0][0];
    out->start_boot_ns = ticks * (1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
    return true;
}

}  // namespace

Evidence TakeEvidence(int cgroup_fd, uint64_t deadline_boot_ns) {
    Evidence evidence;
    const std::vector<int> pids = respond::ListPids(cgroup_fd, 16 * kMaxEvidenceProcesses);
    for (const int pid : pids) {
        if (evidence.processes.size() >= kMaxEvidenceProcesses || BootNow() >= deadline_boot_ns) {
            break;
        }
        ProcessEvidence process;
        process.pid = pid;
        const std::string base = absl::StrCat("/proc/", pid);
        if (!ParseStat(ReadShort(base + "/stat", 1024), &process)) continue;
        evidence.processes.push_back(std::move(process));
    }
    for (ProcessEvidence& process : evidence.processes) {
        if (BootNow() >= deadline_boot_ns) break;
        process.command = ReadShort(absl::StrCat("/proc/", process.pid, "/cmdline"), kMaxCommandBytes);
        while (!process.command.empty() && process.command.back() == '\0') process.command.pop_back();
    }
    evidence.left_out = pids.size() - std::min(pids.size(), evidence.processes.size());
    evidence.taken_boot_ns = BootNow();
    return evidence;
}

std::string TakeSockets(const Evidence& evidence, uint64_t deadline_boot_ns) {
    if (evidence.processes.empty()) return "";
    std::string text;
    for (const char* kind : {"tcp", "tcp6", "udp", "udp6", "unix"}) {
        if (BootNow() >= deadline_boot_ns) return absl::StrCat(text, "== no time for more\n");
        absl::StrAppend(&text, "== ", kind, "\n", ReadShort(absl::StrCat("/proc/", evidence.processes.front().pid, "/net/", kind), kMaxSocketBytes));
    }
    return text;
}

}  // namespace stockade::sandbox
