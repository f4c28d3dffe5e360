// The first task gives up what it could do, and lays out the Landlock domain of the command.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/securebits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "userspace/launch/child.h"
#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

// Higher than any capability that a kernel has; the kernel answers EINVAL past its last.
constexpr int kCapabilityLimit = 64;

int DropBounding() {
    for (int cap = 0; cap < kCapabilityLimit; ++cap) {
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0) return errno == EINVAL ? 0 : -1;
    }
    return 0;
}

constexpr uint32_t kMaySetUid = 1u << CAP_SETUID, kMayKill = 1u << CAP_KILL;

int KeepCapabilities(uint32_t kept) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2] = {};
    sets[0].effective = sets[0].permitted = kept;
    return static_cast<int>(syscall(SYS_capset, &header, sets));
}

// Of the init, once all is laid out. Were it the command's, that could pin the init to a busy CPU, lower its
// priority and its limits, and so put off the end that the init is there for.
constexpr uid_t kKeeperUid = 0;

constexpr unsigned long kSecureBits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                                      SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                                      SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

StepError TakeIds(const ChildPlan& plan) {
    // Raw calls: the C library's versions would signal threads that exist only in its books.
    if (syscall(SYS_setgroups, 0, nullptr) != 0) return {kIds, errno, 0};
    if (syscall(SYS_setresgid, plan.gid, plan.gid, plan.gid) != 0) return {kIds, errno, 1};
    if (syscall(SYS_setresuid, plan.uid, plan.uid, kKeeperUid) != 0) return {kIds, errno, 2};
    return {};
}

// What a change of ids clears.
StepError TieToLauncher() {
    // Not to be looked into by the command: /proc/1 belongs to root and is invisible. The command's own execve
    // makes itself dumpable again.
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return {kNoNewPrivileges, errno, 1};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return {kParentDeath, errno, 0};
    return {};
}

struct RulesetAttr {
    uint64_t handled_access_fs;
    uint64_t handled_access_net;
    uint64_t scoped;
};
struct __attribute__((packed)) PathBeneathAttr {
    uint64_t allowed_access;
    int32_t parent_fd;
};
constexpr int kRulePathBeneath = 1;

}  // namespace

StepError DropPrivileges(const ChildPlan& plan) {
    for (size_t i = 0; i < plan.rlimit_count; ++i) {
        const ChildRlimit& row = plan.rlimits[i];
        if (setrlimit(static_cast<__rlimit_resource_t>(row.resource), &row.limit) != 0) {
            return {kRlimit, errno, static_cast<int>(i)};
        }
    }
    if (prctl(PR_SET_SECUREBITS, kSecureBits, 0, 0, 0) != 0) return {kCapabilities, errno, 0};
    if (DropBounding() != 0) return {kCapabilities, errno, 1};
    StepError failed = TakeIds(plan);
    if (!failed.ok()) return failed;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return {kCapabilities, errno, 2};
    if (KeepCapabilities(kMaySetUid | kMayKill) != 0) return {kCapabilities, errno, 3};
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0 && errno != ENOSYS) {
        return {kKeyring, errno, 0};
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return {kNoNewPrivileges, errno, 0};
    return TieToLauncher();
}

StepError BecomeKeeper() {
    if (syscall(SYS_setresuid, kKeeperUid, kKeeperUid, kKeeperUid) != 0) return {kIds, errno, 3};
    return TieToLauncher();
}

StepError KeepToSignals() {
    return KeepCapabilities(kMayKill) == 0 ? StepError{} : StepError{kCapabilities, errno, 4};
}

StepError BecomeCommand(const ChildPlan& plan) {
    if (syscall(SYS_setresuid, plan.uid, plan.uid, plan.uid) != 0) return {kIds, errno, 4};
    return KeepCapabilities(0) == 0 ? StepError{} : StepError{kCapabilities, errno, 5};
}

StepError MakeRuleset(const ChildPlan& plan, int* ruleset) {
    *ruleset = -1;
    if (plan.landlock_fs == 0 && plan.landlock_scoped == 0) return {};
    RulesetAttr attr{plan.landlock_fs, 0, plan.landlock_scoped};
    // Older kernels take the shorter structures that they know.
    size_t size = plan.landlock_abi >= 6 ? sizeof(attr) : sizeof(uint64_t);
    int fd = static_cast<int>(syscall(kNrLandlockCreate, &attr, size, 0));
    if (fd < 0) return {kLandlockRuleset, errno, 0};
    for (size_t i = 0; i < plan.landlock_count; ++i) {
        const ChildLandlockRule& rule = plan.landlock_rules[i];
        int path = open(rule.path, O_PATH | O_CLOEXEC);
        if (path < 0) continue;  // absent inside: nothing to grant, and less is granted
        struct stat st;
        if (fstat(path, &st) != 0) return {kLandlockRule, errno, static_cast<int>(i)};
        PathBeneathAttr beneath{S_ISDIR(st.st_mode) ? rule.access_any : rule.access_file, path};
        int rc = beneath.allowed_access == 0
                     ? 0
                     : static_cast<int>(syscall(kNrLandlockAdd, fd, kRulePathBeneath, &beneath, 0));
        int error = errno;
        close(path);
        if (rc != 0) return {kLandlockRule, error, static_cast<int>(i)};
    }
    *ruleset = fd;
    return {};
}

}  // namespace stockade::launch
