/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The end of each system call, for the `signal` backend: what has been opened is judged by the
 * returned descriptor; what cannot be judged is reported. */
#pragma once
#include <asm/unistd.h>

#include "bpf/lib/exec.h"
#include "bpf/lib/file.h"
#include "bpf/lib/net.h"

#define EPERM 1
#define EACCES 13
#define EROFS 30
/* arch/x86/include/asm/thread_info.h: the call came by int 0x80, numbers are i386's. */
#define TS_COMPAT 0x2
#define MAP_ANONYMOUS 0x20
#define COMPAT_BIT 0x10000

/* What a call is to us: enum sk_file_op or enum sk_escape_op, and where its path argument is. */
enum sk_call_class {
    SK_CALL_NONE = 0,
    SK_CALL_OPEN = 1,   /* returns a descriptor of what it opened */
    SK_CALL_MAP = 2,    /* mmap */
    SK_CALL_PATH = 3,   /* changes something by path; op = enum sk_file_op */
    SK_CALL_ESCAPE = 4, /* needs a grant; op = enum sk_escape_op */
    SK_CALL_BIRTH = 6,  /* a child's first act is the end of its parent's call: is it where it belongs? */
    SK_CALL_EXEC = 8,   /* looked at where it failed by another lock; else sched_process_exec judges */
    SK_CALL_MAKE = 7,   /* socket(2): family, type and protocol by value */
    SK_CALL_SOCKET = 5, /* uses the descriptor in its first argument; op = enum sk_net_op */
};

struct sk_call {
    __u8 class;
    __u8 op;
    __u8 grant;
    __u8 path_argument; /* 0, 1; of SK_CALL_SOCKET: 2 = the descriptor is in the third argument, else in the first */
};

#define CALL_PATH(OP, argument) {SK_CALL_PATH, SK_FILE_##OP, 0, argument}
#define CALL_ESCAPE(OP, GRANT) {SK_CALL_ESCAPE, SK_ESCAPE_##OP, SK_GRANT_##GRANT, 0}
#define CALL_SOCKET(OP) {SK_CALL_SOCKET, SK_NET_##OP, 0, 0}
/* Not judged; EPERM comes of whose task, id or file it is. `op` is the lock to name. */
#define CALL_OWNED {SK_CALL_NONE, SK_LOCK_DAC, 0, 0}
#define CALL_OPEN(argument) {SK_CALL_OPEN, 0, 0, argument}

/* Call numbers that the table has room for; later ones are not looked at. 6.18 ends at 469. */
#define SK_CALLS 512

/* i386 numbers of the calls that open (arch/x86/entry/syscalls/syscall_32.tbl): everything else of
 * that table is refused to launched sandboxes by seccomp. */
static __always_inline struct sk_call call_of_compat(long number) {
    switch (number) {
        case 5:
        case 8: return (struct sk_call)CALL_OPEN(0);
        case 295:
        case 437:
        case 342: return (struct sk_call)CALL_OPEN(1);
        default: return (struct sk_call){};
    }
}

/* What is looked at, by call number: one load decides for all other calls of the machine. */
static const struct sk_call sk_calls[SK_CALLS] = {
    [__NR_execve] = {SK_CALL_EXEC, 0, 0, 0},
    [__NR_execveat] = {SK_CALL_EXEC, 0, 0, 1},
    [__NR_openat] = CALL_OPEN(1),
    [__NR_openat2] = CALL_OPEN(1),
    [__NR_open_by_handle_at] = CALL_OPEN(1),
    [__NR_mmap] = {SK_CALL_MAP, 0, 0, 0},
    [__NR_clone] = {SK_CALL_BIRTH, 0, 0, 0},
    [__NR_clone3] = {SK_CALL_BIRTH, 0, 0, 0},
    [__NR_socket] = {SK_CALL_MAKE, 0, 0, 0},
    [__NR_connect] = CALL_SOCKET(CONNECT),
    [__NR_bind] = CALL_SOCKET(BIND),
    [__NR_listen] = CALL_SOCKET(LISTEN),
    [__NR_sendto] = CALL_SOCKET(SEND),
    [__NR_sendmsg] = CALL_SOCKET(SEND),
    [__NR_sendmmsg] = CALL_SOCKET(SEND),
    [__NR_sendfile] = CALL_SOCKET(SEND),
    [__NR_write] = CALL_SOCKET(SEND),
    [__NR_writev] = CALL_SOCKET(SEND),
    [__NR_pwritev2] = CALL_SOCKET(SEND),
    [__NR_splice] = {SK_CALL_SOCKET, SK_NET_SEND, 0, 2}, /* into the socket; out of it: its other end is a pipe's */
    [__NR_read] = CALL_SOCKET(RECEIVE),
    [__NR_readv] = CALL_SOCKET(RECEIVE),
    [__NR_preadv2] = CALL_SOCKET(RECEIVE),
    [__NR_recvfrom] = CALL_SOCKET(RECEIVE),
    [__NR_recvmsg] = CALL_SOCKET(RECEIVE),
    [__NR_recvmmsg] = CALL_SOCKET(RECEIVE),
    [__NR_accept] = CALL_SOCKET(RECEIVE),
    [__NR_accept4] = CALL_SOCKET(RECEIVE),
    [__NR_getsockopt] = CALL_SOCKET(RECEIVE),
    [__NR_unlinkat] = CALL_PATH(UNLINK, 1),
    [__NR_renameat2] = CALL_PATH(RENAME, 1),
    [__NR_linkat] = CALL_PATH(LINK, 1),
    [__NR_symlinkat] = CALL_PATH(SYMLINK, 1),
    [__NR_mknodat] = CALL_PATH(MKNOD, 1),
    [__NR_mkdirat] = CALL_PATH(MKDIR, 1),
    [__NR_fchmodat] = CALL_PATH(CHMOD, 1),
    [452] = CALL_PATH(CHMOD, 1),  /* fchmodat2, not in the headers of 6.1 */
    [__NR_fchownat] = CALL_PATH(CHOWN, 1),
    [__NR_truncate] = CALL_PATH(TRUNCATE, 0),
    [__NR_setxattr] = CALL_PATH(SETXATTR, 0),
    [__NR_lsetxattr] = CALL_PATH(SETXATTR, 0),
    [__NR_removexattr] = CALL_PATH(SETXATTR, 0),
    [__NR_lremovexattr] = CALL_PATH(SETXATTR, 0),
    [__NR_utimensat] = CALL_PATH(UTIMES, 1),
#if defined(__TARGET_ARCH_x86)
    [__NR_open] = CALL_OPEN(0),
    [__NR_creat] = CALL_OPEN(0),
    [__NR_fork] = {SK_CALL_BIRTH, 0, 0, 0},
    [__NR_vfork] = {SK_CALL_BIRTH, 0, 0, 0},
    [__NR_futimesat] = CALL_PATH(UTIMES, 1),
    [__NR_unlink] = CALL_PATH(UNLINK, 0),
    [__NR_rename] = CALL_PATH(RENAME, 0),
    [__NR_renameat] = CALL_PATH(RENAME, 1),
    [__NR_link] = CALL_PATH(LINK, 0),
    [__NR_symlink] = CALL_PATH(SYMLINK, 0),
    [__NR_mknod] = CALL_PATH(MKNOD, 0),
    [__NR_mkdir] = CALL_PATH(MKDIR, 0),
    [__NR_rmdir] = CALL_PATH(RMDIR, 0),
    [__NR_chmod] = CALL_PATH(CHMOD, 0),
    [__NR_chown] = CALL_PATH(CHOWN, 0),
    [__NR_lchown] = CALL_PATH(CHOWN, 0),
    [__NR_utime] = CALL_PATH(UTIMES, 0),
    [__NR_utimes] = CALL_PATH(UTIMES, 0),
#endif
    [__NR_ptrace] = CALL_ESCAPE(PTRACE, PTRACE),
    [__NR_process_vm_readv] = CALL_ESCAPE(PROCESS_VM, PTRACE),
    [__NR_process_vm_writev] = CALL_ESCAPE(PROCESS_VM, PTRACE),
    [__NR_pidfd_getfd] = CALL_ESCAPE(PIDFD_GETFD, PTRACE),
    [__NR_mount] = CALL_ESCAPE(MOUNT, MOUNT),
    [__NR_move_mount] = CALL_ESCAPE(MOUNT, MOUNT),
    [__NR_open_tree] = CALL_ESCAPE(MOUNT, MOUNT),
    [__NR_fsopen] = CALL_ESCAPE(MOUNT, MOUNT),
    [__NR_fsmount] = CALL_ESCAPE(MOUNT, MOUNT),
    [__NR_mount_setattr] = CALL_ESCAPE(MOUNT, MOUNT),
    [__NR_umount2] = CALL_ESCAPE(UMOUNT, MOUNT),
    [__NR_pivot_root] = CALL_ESCAPE(PIVOT_ROOT, MOUNT),
    [__NR_chroot] = CALL_ESCAPE(CHROOT, CHROOT),
    [__NR_setns] = CALL_ESCAPE(SETNS, SETNS),
    [__NR_bpf] = CALL_ESCAPE(BPF, BPF),
    [__NR_perf_event_open] = CALL_ESCAPE(PERF_EVENT, PERF_EVENT),
    [__NR_io_uring_setup] = CALL_ESCAPE(IO_URING, IO_URING),
    [__NR_keyctl] = CALL_ESCAPE(KEYCTL, KEYCTL),
    [__NR_add_key] = CALL_ESCAPE(KEYCTL, KEYCTL),
    [__NR_request_key] = CALL_ESCAPE(KEYCTL, KEYCTL),
    [__NR_init_module] = CALL_ESCAPE(MODULE, MODULE),
    [__NR_finit_module] = CALL_ESCAPE(MODULE, MODULE),
    [__NR_delete_module] = CALL_ESCAPE(MODULE, MODULE),
    [__NR_kexec_load] = CALL_ESCAPE(KEXEC, KEXEC),
    [__NR_kexec_file_load] = CALL_ESCAPE(KEXEC, KEXEC),
    [__NR_userfaultfd] = CALL_ESCAPE(USERFAULTFD, USERFAULTFD),
    [__NR_kill] = CALL_OWNED,
    [__NR_tkill] = CALL_OWNED,
    [__NR_tgkill] = CALL_OWNED,
    [__NR_pidfd_send_signal] = CALL_OWNED,
    [__NR_setpriority] = CALL_OWNED,
    [__NR_ioprio_set] = CALL_OWNED,
    [__NR_sched_setscheduler] = CALL_OWNED,
    [__NR_sched_setparam] = CALL_OWNED,
    [__NR_sched_setattr] = CALL_OWNED,
    [__NR_prlimit64] = CALL_OWNED,
    [__NR_setrlimit] = CALL_OWNED,
    [__NR_setuid] = CALL_OWNED,
    [__NR_setgid] = CALL_OWNED,
    [__NR_setreuid] = CALL_OWNED,
    [__NR_setregid] = CALL_OWNED,
    [__NR_setresuid] = CALL_OWNED,
    [__NR_setresgid] = CALL_OWNED,
    [__NR_setgroups] = CALL_OWNED,
    [__NR_fchmod] = CALL_OWNED,
    [__NR_fchown] = CALL_OWNED,
};

static __always_inline struct sk_call call_of(long number) {
    __u32 index = number;
    if (index >= SK_CALLS) return (struct sk_call){};
    return sk_calls[index];
}
