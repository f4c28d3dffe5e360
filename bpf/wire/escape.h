/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/record.h"

#define SK_ESCAPE_OPS(X)                            \
    X(1, PTRACE, "ptrace")                          \
    X(2, PROCESS_VM, "process_vm")                  \
    X(3, MOUNT, "mount")                            \
    X(4, UMOUNT, "umount")                          \
    X(5, PIVOT_ROOT, "pivot_root")                  \
    X(6, CHROOT, "chroot")                          \
    X(7, SETNS, "setns")                            \
    X(8, UNSHARE_USER, "unshare-user")              \
    X(9, UNSHARE_MOUNT, "unshare-mount")            \
    X(10, BPF, "bpf")                               \
    X(11, PERF_EVENT, "perf_event_open")            \
    X(12, IO_URING, "io_uring")                     \
    X(13, KEYCTL, "keyctl")                         \
    X(14, MODULE, "module")                         \
    X(15, KEXEC, "kexec")                           \
    X(16, USERFAULTFD, "userfaultfd")               \
    X(17, PROC_MEM, "proc-mem")                     \
    X(18, CGROUP, "cgroup")                         \
    X(19, LEFT_CGROUP, "left-cgroup")               \
    X(20, PIDFD_GETFD, "pidfd_getfd")               \
    X(21, CAPABILITY, "capability")                 \
    X(22, OTHER_CALL, "system-call")

enum sk_escape_op {
#define X(number, NAME, text) SK_ESCAPE_##NAME = number,
    SK_ESCAPE_OPS(X)
#undef X
};

struct sk_escape {
    struct sk_head head;
    __u64 argument;    /* by operation: bpf command, clone flags, call number; else 0 */
    __u32 op;          /* enum sk_escape_op */
    __u32 target_tgid; /* of ptrace and kin; else 0 */
};
