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

/* What the case is about: the path of an open file, or a dentry below a mount. */
static __always_inline void case_dentry(struct sk_path_case *c, struct vfsmount *mnt, struct dentry *dentry) {
    c->query.mnt = (__u64)mnt;
    c->query.dentry = (__u64)dentry;
    c->query.policy_index = c->base.policy_index;
    c->query.root_dentry = c->base.root_dentry;
    c->query.any_root = 0;
}

/* `file` is a pointer that the verifier knows: a hook's argument or a field of one. */
static __always_inline void case_file(struct sk_path_case *c, struct file *file) {
    case_dentry(c, file->f_path.mnt, file->f_path.dentry);
}

static __always_inline void case_view(struct sk_path_case *c, const struct sk_file_view *view) {
    case_dentry(c, (void *)view->mnt, (void *)view->dentry);
}

static __always_inline bool bits_allow(__u32 bits, __u32 op) {
    return (bits & op) == op && !((bits >> SK_DENY_SHIFT) & op);
}

/* What the policy says of the case's path, for each operation in `ops`; sets the code on a refusal.
 * Global: verified once. */
int object_judge(struct sk_path_case *c, __u32 ops);
