/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* From a kernel file or dentry to an answer: does the policy allow these operations on it? */
#pragma once
#include "bpf/lib/judge.h"

/* include/uapi/linux/magic.h */
#define PROC_SUPER_MAGIC 0x9fa0
#define NSFS_MAGIC 0x6e736673
#define CGROUP_SUPER_MAGIC 0x27e0eb
#define CGROUP2_SUPER_MAGIC 0x63677270
/* include/linux/mount.h: a mount of the kernel's own (pipes, memfd, sockets), not in any tree. */
#define MNT_INTERNAL 0x4000
/* include/linux/fs.h */
#define FMODE_READ 0x1
#define FMODE_WRITE 0x2
#define FMODE_EXEC 0x20     /* also in f_flags: opened by execve */
#define FMODE_PATH 0x4000
/* SINCE 6.5: the file below an overlayfs file, opened by the kernel on a private mount. The view
 * above it was judged by the path that the sandbox sees; before 6.5 the second open shows that
 * same path. No system call sets the bit. */
#define FMODE_BACKING 0x2000000
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFDIR 0040000
#define S_IFIFO 0010000
#define S_IFSOCK 0140000

static __always_inline void case_path(struct sk_case *c, const struct path *path) {
    c->query.mnt = (__u64)path->mnt;
    c->query.dentry = (__u64)path->dentry;
}

static __always_inline bool bits_allow(__u32 bits, __u32 op) {
    return (bits & op) == op && !((bits >> SK_DENY_SHIFT) & op);
}

/* What the policy says of the case's path, for each operation in `ops`; sets c->code on a refusal.
 * Global: verified once. */
int object_judge(struct sk_case *c, __u32 ops);
