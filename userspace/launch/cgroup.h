// The cgroup v2 directory of a sandbox: made, limited, killed, removed.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::launch {

// The parent of all launched sandboxes, which carries the cgroup programs once.
struct CgroupHome {
    Fd dir;            // O_RDONLY | O_DIRECTORY
    std::string path;  // "/sys/fs/cgroup/unified/stockade" or the like
};

// Finds cgroup v2 in /proc/self/mountinfo (also in hybrid set-ups) and makes `name` in it.
// kFailedPrecondition where it is not mounted.
// The same where it is there already; makes nothing. kNotFound.
StatusOr<CgroupHome> OpenCgroupHome(const std::string& name = "stockade");
StatusOr<CgroupHome> FindCgroupHome(const std::string& name = "stockade");

// 0 = no limit. A limit whose controller cgroup v2 does not have is skipped and reported.
struct CgroupLimits {
    uint64_t pids_max = 0;
    uint64_t memory_max_bytes = 0;
    uint64_t swap_max_bytes = 0;   // beside limited memory; here 0 means none
    uint32_t cpu_max_percent = 0;  // of one CPU; 150 = one and a half
};

// `dir` holds an exclusive flock from birth on: as long as any process has this open file (the
// launcher, also by SCM_RIGHTS), CleanLeftovers leaves the sandbox alone.
struct SandboxCgroup {
    Fd parent;
    std::string name;
    Fd dir;
    uint64_t id = 0;        // inode number, the kernel's cgroup id
    std::string unlimited;  // controllers of asked limits that are not there: "pids,memory"
};

// The part of CreateCgroup that sets them, for tests.
Status ApplyLimits(SandboxCgroup& cgroup, const CgroupLimits& limits);

StatusOr<SandboxCgroup> CreateCgroup(const CgroupHome& home, const std::string& name,
                                     const CgroupLimits& limits);

// Writes cgroup.kill from a thread of its own (the write can block for seconds under a fork bomb)
// and waits for populated 0. kDeadlineExceeded when it does not come.
Status KillCgroup(const Fd& dir, int timeout_ms);
// Removes child cgroups, then the cgroup, and looks that it is gone. OK when it was.
Status RemoveCgroup(const Fd& parent, const std::string& name);

}  // namespace stockade::launch
