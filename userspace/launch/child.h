// The code of the sandbox's first task, between clone3 and the command's execve.
//
// It runs in a copy of the launcher's memory, perhaps made while another thread held a lock of
// the allocator: so it allocates nothing, throws nothing and calls nothing but system calls.
//
// Its work has two parts. The base, namespaces and what every sandbox's root has, is laid out beforehand in a
// ChildBase, whose pointers stay valid in the copy. Then it waits for its order: a message with descriptors, the first
// of them a file that it maps where the launcher has kept room for it, which makes the pointers in it right.
#pragma once

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace stockade::launch {

// Every step that can fail, with the words for its message.
#define SK_CHILD_STEPS(X)                               \
    X(kNone, "nothing")                                 \
    X(kDescriptors, "arrange descriptors")              \
    X(kCgroupNamespace, "unshare the cgroup namespace") \
    X(kHostName, "set the host name")                   \
    X(kLoopback, "bring up the loopback device")        \
    X(kPrivateMounts, "make mounts private")            \
    X(kAttachRoot, "attach the root")                   \
    X(kAttachMount, "attach a mount")                   \
    X(kProc, "mount /proc")                             \
    X(kPivot, "pivot_root")                             \
    X(kDetachOld, "detach the host's root")             \
    X(kKernelMemory, "limit what the kernel keeps")     \
    X(kMask, "mask a path of /proc")                    \
    X(kSession, "make a session")                       \
    X(kOrder, "take the order")                         \
    X(kReadOnlyRoot, "make the root read-only")         \
    X(kRlimit, "set a resource limit")                  \
    X(kCapabilities, "drop capabilities")               \
    X(kIds, "take the sandbox's uid and gid")           \
    X(kKeyring, "join a new session keyring")           \
    X(kNoNewPrivileges, "set no_new_privs")             \
    X(kParentDeath, "tie to the launcher's life")       \
    X(kWorkingDirectory, "enter the working directory") \
    X(kLandlockRuleset, "make the landlock ruleset")    \
    X(kLandlockRule, "add a landlock rule")             \
    X(kSignals, "arrange signals")                      \
    X(kFork, "fork the command")                        \
    X(kTerminal, "take the controlling terminal")       \
    X(kLandlock, "landlock")                            \
    X(kSeccomp, "seccomp")                              \
    X(kExecve, "execve")

enum ChildStep : int32_t {
#define X(name, words) name,
    SK_CHILD_STEPS(X)
#undef X
};
const char* ChildStepName(int32_t step);

// What the init writes to its status pipe, and the command (on failure only) to its exec pipe.
struct ChildMessage {
    // kPrepared: the base stands, and the order is waited for.
    enum Kind : int32_t { kFailed = 1, kReady = 2, kExited = 3, kPrepared = 4 };
    int32_t kind;
    int32_t step;   // kFailed: ChildStep
    int32_t error;  // kFailed: errno; kExited: wait status
    int32_t index;  // kFailed: which row of the plan
};

// One byte on the go pipe: release, or the number of a signal for the command.
inline constexpr unsigned char kGoRelease = 0;

struct ChildMount {
    int fd;
    const char* target;  // relative to the root, no leading slash
};
struct ChildLandlockRule {
    const char* path;
    uint64_t access_any;   // what the rule grants below a directory
    uint64_t access_file;  // ... to a single file
};
struct ChildRlimit {
    int resource;
    rlimit limit;
};

struct ChildBase {
    const char* host_name;
    int root_fd;
    const ChildMount* mounts;
    size_t mount_count;
    int go_fd, status_fd, exec_fd;  // read, write, write
    int order_fd;                   // a socket of packets
    void* plan_at;                  // kPlanRoom bytes that nothing lies in
};
// A sandbox's order is at most this long: 1 MiB of words, as many pointers, and 4,096 landlock paths.
inline constexpr size_t kPlanRoom = 64u << 20;
// The packet: this, with the file of the plan, three standard streams, and the mounts.
struct ChildOrder {
    uint64_t plan_bytes;
};
inline constexpr size_t kOrderFixedFds = 4;
inline constexpr size_t kMaxOrderMounts = 65;  // the binds, and /in

// What the file of the order begins with. All that it points to lies in the file.
struct ChildPlan {
    const char* const* targets;  // of the mounts, relative to the root
    size_t mount_count;
    bool tty;
    uid_t uid;
    gid_t gid;
    const ChildRlimit* rlimits;
    size_t rlimit_count;
    const char* cwd;
    uint64_t landlock_fs;  // 0 and scoped 0 = no landlock
    uint64_t landlock_scoped;
    int landlock_abi;
    const ChildLandlockRule* landlock_rules;
    size_t landlock_count;
    sock_fprog floor;
    sock_fprog profile;
    const char* const* candidates;  // paths to try for argv[0], null-terminated
    char* const* argv;
    char* const* envp;
};

struct StepError {
    ChildStep step = kNone;
    int error = 0;
    int index = 0;
    bool ok() const { return step == kNone; }
};

[[noreturn]] void RunChild(const ChildBase& base);

// The stages of RunChild.
StepError EnterRoot(const ChildBase& base);  // child_root.cc
// child_root.cc: attaches one mount below the root; `index` for the message.
StepError Attach(int root_fd, const ChildMount& mount, size_t index);
StepError LimitKernelMemory();  // child_root.cc
StepError MaskProc();           // child_root.cc
// child_lock.cc, in this order. The init has the command's ids and can change them until it has found the command;
// then it is the keeper, which the command cannot reach; after the fork it can do nothing but send signals.
StepError DropPrivileges(const ChildPlan& plan);
StepError BecomeKeeper();
StepError KeepToSignals();
StepError BecomeCommand(const ChildPlan& plan);              // in the fork
StepError MakeRuleset(const ChildPlan& plan, int* ruleset);  // child_lock.cc; -1 = none

}  // namespace stockade::launch
