/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The ways out of a sandbox, each behind a grant. Hooks that a kernel lacks are left out at load
 * and told by the probe. Arguments are taken only where their place is the same on all kernels.
 * ON_ERROR deny, for all. */
#include "bpf/lib/escape.h"

/* include/linux/ptrace.h */
#define PTRACE_MODE_ATTACH 0x02
/* include/linux/kernel_read_file.h */
#define READING_MODULE 2
#define READING_KEXEC_IMAGE 3
#define READING_KEXEC_INITRAMFS 4

__noinline int escape_report(struct sk_case *c, __u64 argument, __u32 target_tgid) {
    if (!c) return 0;
    RECORD_BEGIN(escape, ESCAPE, c);
    record->op = c->op;
    record->argument = argument;
    record->target_tgid = target_tgid;
    RECORD_END();
    return 0;
}

static __always_inline bool same_sandbox(struct task_struct *task) {
    struct sk_task *theirs = bpf_task_storage_get(&tasks, task, NULL, 0);
    struct sk_task *mine = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0);
    return mine && theirs && mine->label.slot == theirs->label.slot;
}

/* FIRES for ptrace, process_vm_*, pidfd_getfd, setns by pidfd and reads of /proc/PID of another
 * process. Looking at a process of the same sandbox is free, attaching is not. */
SEC("lsm/ptrace_access_check")
int BPF_PROG(esc_ptrace, struct task_struct *child, unsigned int mode) {
    bool looks = !(mode & PTRACE_MODE_ATTACH) && same_sandbox(child);
    return lsm_result(looks ? 0 : escape_refuse(SK_ESCAPE_PTRACE, SK_GRANT_PTRACE, mode, child->tgid));
}

/* FIRES for PTRACE_TRACEME. */
SEC("lsm/ptrace_traceme")
int BPF_PROG(esc_traceme, struct task_struct *parent) {
    return lsm_result(escape_refuse(SK_ESCAPE_PTRACE, SK_GRANT_PTRACE, 0, parent->tgid));
}

/* FIRES for mount(2), remounts and binds included. */
SEC("lsm/sb_mount")
int BPF_PROG(esc_mount) { return lsm_result(escape_refuse(SK_ESCAPE_MOUNT, SK_GRANT_MOUNT, 0, 0)); }

/* FIRES for move_mount(2), the last step of the newer mount calls. */
SEC("lsm/move_mount")
int BPF_PROG(esc_move_mount) { return lsm_result(escape_refuse(SK_ESCAPE_MOUNT, SK_GRANT_MOUNT, 0, 0)); }

SEC("lsm/sb_umount")
int BPF_PROG(esc_umount) { return lsm_result(escape_refuse(SK_ESCAPE_UMOUNT, SK_GRANT_MOUNT, 0, 0)); }

SEC("lsm/sb_pivotroot")
int BPF_PROG(esc_pivot) { return lsm_result(escape_refuse(SK_ESCAPE_PIVOT_ROOT, SK_GRANT_MOUNT, 0, 0)); }

SEC("lsm/path_chroot")
int BPF_PROG(esc_chroot) { return lsm_result(escape_refuse(SK_ESCAPE_CHROOT, SK_GRANT_CHROOT, 0, 0)); }

/* FIRES for unshare, clone and setns that make a user namespace. SINCE 6.1. */
SEC("lsm/userns_create")
int BPF_PROG(esc_userns) { return lsm_result(escape_refuse(SK_ESCAPE_UNSHARE_USER, SK_GRANT_USERNS, 0, 0)); }

/* include/uapi/linux/sched.h: clone3 only. */
#define CLONE_INTO_CGROUP 0x200000000ULL

/* FIRES for each new task, before it exists. A birth into another cgroup leaves the sandbox's, and the
 * hook does not tell which: refused altogether. */
SEC("lsm/task_alloc")
int BPF_PROG(esc_birth, struct task_struct *task, unsigned long clone_flags) {
    if (!(clone_flags & CLONE_INTO_CGROUP)) return 0;
    return lsm_result(escape_refuse(SK_ESCAPE_CGROUP, SK_GRANT_CGROUP_WRITE, clone_flags, 0));
}

/* include/uapi/linux/capability.h, include/linux/security.h */
#define CAP_SYS_MODULE 16
#define CAP_SYS_ADMIN 21
#define CAP_OPT_NOAUDIT 2

/* FIRES for each capability that the kernel asks for. Of the calls without a hook of their own, setns
 * and unshare of a mount namespace need CAP_SYS_ADMIN. COVERAGE not those for which it is not asked:
 * in a user namespace of the sandbox's own it has every capability, hence esc_userns. */
SEC("lsm/capable")
int BPF_PROG(esc_capable, const struct cred *cred, struct user_namespace *ns, int capability, unsigned int opts) {
    bool quiet = opts & CAP_OPT_NOAUDIT;
    __u64 grants = GRANT_BIT(MODULE);
    if (capability == CAP_SYS_ADMIN)
        grants = GRANT_BIT(MOUNT) | GRANT_BIT(SETNS) | GRANT_BIT(MNTNS) | GRANT_BIT(USERNS) | GRANT_BIT(BPF) |
                 GRANT_BIT(PERF_EVENT) | GRANT_BIT(CGROUP_WRITE);
    else if (capability != CAP_SYS_MODULE)
        return 0;
    return lsm_result(escape_capability(capability, grants, quiet));
}

/* FIRES for each bpf(2). */
SEC("lsm/bpf")
int BPF_PROG(esc_bpf, int cmd) { return lsm_result(escape_refuse(SK_ESCAPE_BPF, SK_GRANT_BPF, cmd, 0)); }

SEC("lsm/perf_event_open")
int BPF_PROG(esc_perf) { return lsm_result(escape_refuse(SK_ESCAPE_PERF_EVENT, SK_GRANT_PERF_EVENT, 0, 0)); }

/* FIRES when an anonymous inode with a security context is made: the one hook that sees
 * io_uring_setup before 6.16, and userfaultfd. */
SEC("lsm/inode_init_security_anon")
int BPF_PROG(esc_anon, struct inode *inode, const struct qstr *name) {
    char text[8] = {};
    bpf_probe_read_kernel_str(text, sizeof(text), BPF_CORE_READ(name, name));
    if (text[0] != '[') return 0;
    if (text[1] == 'i' && text[2] == 'o' && text[3] == '_')
        return lsm_result(escape_refuse(SK_ESCAPE_IO_URING, SK_GRANT_IO_URING, 0, 0));
    if (text[1] == 'u' && text[2] == 's' && text[3] == 'e')
        return lsm_result(escape_refuse(SK_ESCAPE_USERFAULTFD, SK_GRANT_USERFAULTFD, 0, 0));
    return 0;
}

/* FIRES when a key or keyring is made, then for each use of one. */
SEC("lsm/key_alloc")
int BPF_PROG(esc_key_alloc) { return lsm_result(escape_refuse(SK_ESCAPE_KEYCTL, SK_GRANT_KEYCTL, 0, 0)); }

SEC("lsm/key_permission")
int BPF_PROG(esc_key) { return lsm_result(escape_refuse(SK_ESCAPE_KEYCTL, SK_GRANT_KEYCTL, 0, 0)); }

static __always_inline int escape_kernel_data(int id) {
    if (id == READING_MODULE) return lsm_result(escape_refuse(SK_ESCAPE_MODULE, SK_GRANT_MODULE, id, 0));
    if (id == READING_KEXEC_IMAGE || id == READING_KEXEC_INITRAMFS)
        return lsm_result(escape_refuse(SK_ESCAPE_KEXEC, SK_GRANT_KEXEC, id, 0));
    return 0;
}

/* FIRES for init_module and kexec_load. */
SEC("lsm/kernel_load_data")
int BPF_PROG(esc_load_data, int id) { return lsm_result(escape_kernel_data(id)); }

/* FIRES for finit_module and kexec_file_load. */
SEC("lsm/kernel_read_file")
int BPF_PROG(esc_read_file, struct file *file, int id) { return lsm_result(escape_kernel_data(id)); }
