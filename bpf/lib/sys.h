/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The end of each system call, for the `signal` backend: what has been opened is judged by the
 * returned descriptor; what cannot be judged is reported. */
#pragma once
#include <asm/unistd.h>

#include "bpf/lib/exec.h"
#include "bpf/lib/file.h"

#define EPERM 1
#define EACCES 13
#define EROFS 30
/* arch/x86/include/asm/thread_info.h: the call came by int 0x80, numbers are i386's. */
#define TS_COMPAT 0x2
#define COMPAT_BIT 0x10000

/* What a call is to us: enum sk_file_op or enum sk_escape_op, and where its path argument is. */
enum sk_call_class {
    SK_CALL_NONE = 0,
    SK_CALL_OPEN = 1,   /* returns a descriptor of what it opened */
    SK_CALL_MAP = 2,    /* mmap */
    SK_CALL_PATH = 3,   /* changes something by path; op = enum sk_file_op */
    SK_CALL_ESCAPE = 4, /* needs a grant; op = enum sk_escape_op */
};

struct sk_call {
    __u8 class;
    __u8 op;
    __u8 grant;
    __u8 path_argument; /* 0, 1 */
};

#define CALL_PATH(OP, argument) (struct sk_call){SK_CALL_PATH, SK_FILE_##OP, 0, argument}
#define CALL_ESCAPE(OP, GRANT) (struct sk_call){SK_CALL_ESCAPE, SK_ESCAPE_##OP, SK_GRANT_##GRANT, 0}
#define CALL_OPEN(argument) (struct sk_call){SK_CALL_OPEN, 0, 0, argument}

/* i386 numbers of the calls that open (arch/x86/entry/syscalls/syscall_32.tbl): everything else of
 * that table is refused to launched sandboxes by seccomp. */
static __always_inline struct sk_call call_of_compat(long number) {
    switch (number) {
        case 5:
        case 8: return CALL_OPEN(0);
        case 295:
        case 437:
        case 342: return CALL_OPEN(1);
        default: return (struct sk_call){};
    }
}

static __always_inline struct sk_call call_of(long number) {
    switch (number) {
        case __NR_openat:
        case __NR_openat2:
        case __NR_open_by_handle_at: return CALL_OPEN(1);
        case __NR_mmap: return (struct sk_call){SK_CALL_MAP, 0, 0, 0};
        case __NR_unlinkat: return CALL_PATH(UNLINK, 1);
        case __NR_renameat2: return CALL_PATH(RENAME, 1);
        case __NR_linkat: return CALL_PATH(LINK, 1);
        case __NR_symlinkat: return CALL_PATH(SYMLINK, 0);
        case __NR_mknodat: return CALL_PATH(MKNOD, 1);
        case __NR_mkdirat: return CALL_PATH(MKDIR, 1);
        case __NR_fchmodat: return CALL_PATH(CHMOD, 1);
        case 452: return CALL_PATH(CHMOD, 1); /* fchmodat2, not in the headers of 6.1 */
        case __NR_fchownat: return CALL_PATH(CHOWN, 1);
        case __NR_truncate: return CALL_PATH(TRUNCATE, 0);
        case __NR_setxattr:
        case __NR_lsetxattr: return CALL_PATH(SETXATTR, 0);
        case __NR_utimensat: return CALL_PATH(UTIMES, 1);
#if defined(__TARGET_ARCH_x86)
        case __NR_open:
        case __NR_creat: return CALL_OPEN(0);
        case __NR_unlink: return CALL_PATH(UNLINK, 0);
        case __NR_rename: return CALL_PATH(RENAME, 0);
        case __NR_renameat: return CALL_PATH(RENAME, 1);
        case __NR_link: return CALL_PATH(LINK, 0);
        case __NR_symlink: return CALL_PATH(SYMLINK, 0);
        case __NR_mknod: return CALL_PATH(MKNOD, 0);
        case __NR_mkdir: return CALL_PATH(MKDIR, 0);
        case __NR_rmdir: return CALL_PATH(RMDIR, 0);
        case __NR_chmod: return CALL_PATH(CHMOD, 0);
        case __NR_chown:
        case __NR_lchown: return CALL_PATH(CHOWN, 0);
        case __NR_utime:
        case __NR_utimes: return CALL_PATH(UTIMES, 0);
#endif
        case __NR_ptrace: return CALL_ESCAPE(PTRACE, PTRACE);
        case __NR_process_vm_readv:
        case __NR_process_vm_writev: return CALL_ESCAPE(PROCESS_VM, PTRACE);
        case __NR_pidfd_getfd: return CALL_ESCAPE(PIDFD_GETFD, PTRACE);
        case __NR_mount:
        case __NR_move_mount:
        case __NR_open_tree:
        case __NR_fsopen:
        case __NR_fsmount:
        case __NR_mount_setattr: return CALL_ESCAPE(MOUNT, MOUNT);
        case __NR_umount2: return CALL_ESCAPE(UMOUNT, MOUNT);
        case __NR_pivot_root: return CALL_ESCAPE(PIVOT_ROOT, MOUNT);
        case __NR_chroot: return CALL_ESCAPE(CHROOT, CHROOT);
        case __NR_setns: return CALL_ESCAPE(SETNS, SETNS);
        case __NR_bpf: return CALL_ESCAPE(BPF, BPF);
        case __NR_perf_event_open: return CALL_ESCAPE(PERF_EVENT, PERF_EVENT);
        case __NR_io_uring_setup: return CALL_ESCAPE(IO_URING, IO_URING);
        case __NR_keyctl:
        case __NR_add_key:
        case __NR_request_key: return CALL_ESCAPE(KEYCTL, KEYCTL);
        case __NR_init_module:
        case __NR_finit_module:
        case __NR_delete_module: return CALL_ESCAPE(MODULE, MODULE);
        case __NR_kexec_load:
        case __NR_kexec_file_load: return CALL_ESCAPE(KEXEC, KEXEC);
        case __NR_userfaultfd: return CALL_ESCAPE(USERFAULTFD, USERFAULTFD);
        default: return (struct sk_call){};
    }
}
