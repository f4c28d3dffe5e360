/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/lib/object.h"
#include "bpf/lib/reserve.h"
#include "bpf/wire/file.h"

/* One record for all file operations; written once, in file.bpf.c. */
int file_report(struct sk_path_case *c, __u32 open_flags, __s32 error);

/* Record and refusal of a case whose path was judged. */
static __always_inline int file_settle(struct sk_path_case *c, __u32 open_flags) {
    case_settle(&c->base);
    if (c->base.ring) file_report(c, open_flags, 0);
    return case_finish(&c->base);
}

#define O_WRONLY 01
#define O_RDWR 02
#define O_CREAT 0100
#define O_TRUNC 01000

/* Judges an opened file. Opens for execve are judged as exec. */
static __always_inline int file_opened(struct sk_path_case *c, const struct sk_file_view *view) {
    __u32 ops = 0;
    if ((view->flags & FMODE_EXEC) || (view->mode & (FMODE_PATH | FMODE_BACKING))) return 0;
    if (view->mode & FMODE_READ) ops |= SK_OP_READ;
    if (view->mode & FMODE_WRITE) ops |= SK_OP_WRITE;
    case_view(c, view);
    c->base.op = ops & SK_OP_WRITE ? SK_FILE_OPEN_WRITE : view->kind == S_IFDIR ? SK_FILE_READDIR : SK_FILE_OPEN_READ;
    object_judge(c, ops);
    if (c->base.code == SK_CODE_ESCAPE) c->base.section = SK_SECTION_ESCAPE;
    return file_settle(c, view->flags);
}

/* An operation that writes at a path: directory entry or inode, named by mount and dentry. */
static __always_inline int file_change(struct vfsmount *mnt, struct dentry *dentry, __u32 op, __u32 flags) {
    struct sk_path_case *c = case_open(SK_SECTION_FILES, SK_POWER_REFUSE);
    if (!c) return 0;
    case_dentry(c, mnt, dentry);
    c->base.op = op;
    object_judge(c, SK_OP_WRITE);
    return file_settle(c, flags);
}

/* Source or target of a rename. A directory below which the policy denies something stays where
 * it is: moved away, its contents would have other names. */
static __always_inline int file_move(struct vfsmount *mnt, struct dentry *dentry) {
    struct sk_path_case *c = case_open(SK_SECTION_FILES, SK_POWER_REFUSE);
    if (!c) return 0;
    case_dentry(c, mnt, dentry);
    c->base.op = SK_FILE_RENAME;
    object_judge(c, SK_OP_WRITE);
    if (c->base.code == SK_CODE_OK && (c->query.leaf_meta & SK_META_DENY_BELOW)) {
        struct inode *inode = BPF_CORE_READ(dentry, d_inode);
        if (inode && (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFDIR) c->base.code = SK_CODE_RENAME_OVER_DENY;
    }
    return file_settle(c, 0);
}

/* The source of a link: its new name must not give what its old one does not, so reading it must
 * be allowed as writing is; a name outside the allow list cannot be brought in. */
static __always_inline int file_link_source(struct vfsmount *mnt, struct dentry *dentry) {
    struct sk_path_case *c = case_open(SK_SECTION_FILES, SK_POWER_REFUSE);
    if (!c) return 0;
    case_dentry(c, mnt, dentry);
    c->base.op = SK_FILE_LINK;
    object_judge(c, SK_OP_READ | SK_OP_WRITE);
    return file_settle(c, 0);
}
