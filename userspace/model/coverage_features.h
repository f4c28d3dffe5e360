// The kernel features that are probed, the one list: the probe's results, the doctor's table,
// the refusal of a kernel and the conditions of the coverage table all speak of these.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace stockade::model {

// Who cannot do without a feature.
enum class Need : uint8_t {
    kBoth,    // every backend
    kLsm,     // backend lsm
    kSignal,  // backend signal
    kPins,    // an agent that survives its own death; refused unless pins are turned off
    kLaunch,  // `stockade run`
    kExtra,   // nobody; something is better with it
};

// X(NAME, "name", need, "what it is for")
#define SK_FEATURES(X)                                                                           \
    X(BTF, "btf", kBoth, "programs find kernel fields by it (/sys/kernel/btf/vmlinux)")           \
    X(CGROUP2, "cgroup2", kBoth, "a sandbox is a cgroup v2 subtree")                              \
    X(CAPABILITIES, "capabilities", kBoth, "load programs, read tasks, end sandboxes")            \
    X(BPFFS, "bpffs", kPins, "verdicts stay when the agent dies")                                 \
    X(PROG_TP_BTF, "prog:tp_btf", kBoth, "labels at birth, exec, exit and system call exit")      \
    X(PROG_FEXIT, "prog:fexit", kExtra, "signal: the object that a call used, not what its descriptor is after it") \
    X(PROG_ITER_TASK, "prog:iter/task", kBoth, "labels tasks that were there before")             \
    X(PROG_SYSCALL, "prog:syscall", kExtra, "self-tests inside the kernel")                       \
    X(PROG_SOCK_ADDR, "prog:cgroup/sock_addr", kBoth, "connect, sendmsg and bind verdicts")       \
    X(PROG_UNIX_ADDR, "prog:cgroup/connect_unix", kExtra, "unix socket verdicts before the call") \
    X(PROG_SOCK_CREATE, "prog:cgroup/sock_create", kBoth, "which inet sockets may exist")         \
    X(PROG_CGROUP_SKB, "prog:cgroup_skb", kBoth, "packets that no call announced, and DNS")       \
    X(PROG_LSM, "prog:lsm", kLsm, "refuses before the effect")                                    \
    X(PROG_LSM_CGROUP, "prog:lsm_cgroup", kExtra, "LSM programs of one cgroup only")              \
    X(MAP_RINGBUF, "map:ringbuf", kBoth, "records to user space")                                 \
    X(MAP_TASK_STORAGE, "map:task_storage", kBoth, "a task's label, in tracing programs")         \
    X(MAP_TASK_STORAGE_CGROUP, "map:task_storage/cgroup", kExtra,                                 \
      "a task's label, in cgroup programs; without it by ancestor cgroup")                        \
    X(MAP_INNER_ARRAY, "map:inner_array", kBoth, "one frozen array for each policy")              \
    X(HELPER_CURRENT_TASK_BTF, "helper:get_current_task_btf", kBoth, "the acting task")           \
    X(HELPER_SEND_SIGNAL, "helper:send_signal", kBoth, "ends a violator at once")                 \
    X(HELPER_LOOP, "helper:loop", kBoth, "long scans within the verifier's bounds")               \
    X(KFUNC_RDONLY_CAST, "kfunc:rdonly_cast", kExtra, "cheaper reads of kernel objects")          \
    X(KFUNC_TASK_FROM_PID, "kfunc:task_from_pid", kExtra, "look up a task by its number")         \
    X(LSM_PATH_HOOKS, "lsm:path_hooks", kLsm, "unlink, rename and kin (CONFIG_SECURITY_PATH)")    \
    X(LSM_NETWORK_HOOKS, "lsm:network_hooks", kLsm, "sockets handed in (CONFIG_SECURITY_NETWORK)") \
    X(LSM_USERNS_HOOK, "lsm:userns_create", kExtra, "new user namespaces")                        \
    X(LSM_ANON_INODE_HOOK, "lsm:anon_inode", kExtra, "io_uring and userfaultfd")                  \
    X(CANARY_LSM, "canary:lsm", kLsm, "a call of a child was really refused by an LSM program")   \
    X(CANARY_EXEC, "canary:exec_kill", kSignal, "a child was really killed before it ran")        \
    X(CANARY_CONNECT, "canary:connect", kBoth, "a connect of a child was really refused")         \
    X(CANARY_WHOLE, "canary:uninterrupted", kExtra,                                               \
      "a tracepoint program is never left out; without it slower ones are used")                     \
    X(CGROUP_KILL, "cgroup.kill", kBoth, "ends a sandbox at once, fork bombs included")           \
    X(CGROUP_FREEZE, "cgroup.freeze", kBoth, "holds a sandbox still for evidence")                \
    X(PIDFD, "pidfd", kBoth, "a task that cannot be mistaken for another")                        \
    X(CLONE3_CGROUP, "clone3:cgroup", kLaunch, "the first task is born in its cgroup")        \
    X(SECCOMP, "seccomp", kLaunch, "refuses calls that have no hook")                             \
    X(LANDLOCK, "landlock", kExtra, "prevents file access where the signal backend cannot")       \
    X(LANDLOCK_TRUNCATE, "landlock:truncate", kExtra,                                             \
      "refuses truncate, also by an open to read (ABI 3)")                                        \
    X(LANDLOCK_AFTER_BPF, "landlock:after_bpf", kExtra,                                           \
      "bpf is asked before landlock, so each refusal is seen with its policy line")               \
    X(IDMAPPED_MOUNT, "idmapped_mount", kExtra, "/in without a copy")                             \
    X(MEMCG_ACCOUNTING, "memcg_accounting", kExtra, "map memory is not bound by RLIMIT_MEMLOCK")

enum class Feature : uint8_t {
#define X(NAME, name, need, what) NAME,
    SK_FEATURES(X)
#undef X
};

#define X(NAME, name, need, what) +1
inline constexpr size_t kFeatureCount = 0 SK_FEATURES(X);
#undef X

using FeatureSet = std::bitset<kFeatureCount>;

struct FeatureInfo {
    absl::string_view name;
    Need need;
    absl::string_view what;
};
const FeatureInfo& InfoOf(Feature feature);

}  // namespace stockade::model
