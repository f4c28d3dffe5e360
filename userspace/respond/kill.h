// Ending a sandbox that the kernel has condemned: freeze where that helps, evidence, kill, and the wait until
// nothing of it runs.
//
//   KillReport report = KillCgroup(cgroup_fd, {}, [&](uint64_t deadline) { ... });
//   if (report.pending) ...   // tasks that the kernel cannot end yet: report.left
//
// Blocks: the write to cgroup.kill can take seconds under a fork bomb, so it belongs on a thread
// of its own. It needs nothing but the cgroup's directory and does not condemn by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::respond {

struct KillTimes {
    uint64_t freeze_asked_ns = 0;  // boot time; 0 = step not done
    uint64_t frozen_ns = 0;        // 0 also when it did not freeze within its bound
    uint64_t evidence_ns = 0;      // evidence taken
    uint64_t kill_asked_ns = 0;    // cgroup.kill written
    uint64_t empty_ns = 0;         // populated 0
};

struct KillReport {
    KillTimes times;
    // Not empty at the deadline: tasks in D state end when the kernel lets them. "kill
    // pending", never "killed".
    bool pending = false;
    std::vector<int> left;  // their pids, at most kMaxLeft
    Status status;          // not OK: cgroup.kill itself failed
};

inline constexpr size_t kMaxLeft = 64;

struct KillOptions {
    // Still the sandbox before evidence is taken. Where its condemned tasks die as soon as they are woken (backend signal),
    // this would kill them one by one before they are seen: docs/adr/0011-no-freezer-under-signal.md.
    bool freeze = true;
    // How long to wait for the freezer. The kernel side stands already, so this only keeps the
    // evidence still; tasks in the kernel freeze when they come out.
    uint64_t freeze_wait_ns = 1'000'000;
    // From the order to freeze on (without one, from the start), evidence must be taken within this (DESIGN rule 10), and
    // gets half of it at least; handed on as a deadline.
    uint64_t evidence_ns = 2'000'000;
    // After it the report says pending; a caller that must know waits on with WaitEmpty.
    uint64_t empty_wait_ns = 5'000'000'000;
    // Readable = wait no longer, what is written stays written. Borrowed; -1 = none.
    int halt_fd = -1;
};

// Called while the sandbox is frozen, or at least condemned, with the boot time at which it has to be done.
using EvidenceFn = std::function<void(uint64_t deadline_boot_ns)>;

// `cgroup_fd` is borrowed. `evidence` may be empty.
KillReport KillCgroup(int cgroup_fd, const KillOptions& options, const EvidenceFn& evidence);

// Writes cgroup.kill: each task in the cgroup and below gets a SIGKILL.
Status AskKill(int cgroup_fd);

// Waits until the cgroup has no process. True when it is empty, false after `wait_ns`, or when
// `halt_fd` becomes readable.
StatusOr<bool> WaitEmpty(int cgroup_fd, uint64_t wait_ns, int halt_fd = -1);

// Freezes the cgroup, or lets it go on, and waits up to `wait_ns` until the kernel says that it is so; tasks that are
// in the kernel freeze when they come out. kDeadlineExceeded: not yet, and what was asked for stands.
Status SetFrozen(int cgroup_fd, bool frozen, uint64_t wait_ns);

// Ends one process of the cgroup: kNotFound where it has ended already, or the number is another's by now.
Status KillOne(int cgroup_fd, int pid, uint64_t start_boot_ns);

// pids in the cgroup and below, at most `max`.
std::vector<int> ListPids(int cgroup_fd, size_t max);

}  // namespace stockade::respond
