// What a sandbox was doing when it was stopped, taken while it is frozen and within a bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stockade::sandbox {

struct ProcessEvidence {
    int pid = 0;
    int ppid = 0;
    char state = '?';
    uint64_t start_boot_ns = 0;
    std::string comm;     // raw bytes of the sandbox's choice
    std::string command;  // argv, with a zero byte between two; at most kMaxCommandBytes, raw bytes
};

struct Evidence {
    uint64_t taken_boot_ns = 0;
    std::vector<ProcessEvidence> processes;
    uint64_t left_out = 0;  // pids that there was no time or room for
    std::string sockets;    // of TakeSockets, where they are asked for
};

// A person reads these; a fork bomb has thousands that are all alike.
inline constexpr size_t kMaxEvidenceProcesses = 256;
inline constexpr size_t kMaxCommandBytes = 256;

// Reads the processes of the cgroup and below until `deadline_boot_ns`. Command lines lie in
// the processes' own memory: hostile, and read only for the processes that there is time for.
// `cgroup_fd` is borrowed. Any thread.
Evidence TakeEvidence(int cgroup_fd, uint64_t deadline_boot_ns);

// Open sockets of the network namespace of one of its processes, as /proc/PID/net has them; at most kMaxSocketBytes of each kind, and
// none after `deadline_boot_ns`.
std::string TakeSockets(const Evidence& evidence, uint64_t deadline_boot_ns);
inline constexpr size_t kMaxSocketBytes = 32 << 10;

}  // namespace stockade::sandbox
