/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#include "bpf/lib/object.h"

static __always_inline __u32 code_of(__u32 op, bool denied) {
    switch (op) {
        case SK_OP_READ: return denied ? SK_CODE_READ_DENIED : SK_CODE_READ_NOT_ALLOWED;
        case SK_OP_WRITE: return denied ? SK_CODE_WRITE_DENIED : SK_CODE_WRITE_NOT_ALLOWED;
        case SK_OP_EXEC: return denied ? SK_CODE_EXEC_DENIED : SK_CODE_EXEC_NOT_ALLOWED;
        case SK_OP_UNIX: return SK_CODE_UNIX_NOT_ALLOWED;
        default: return SK_CODE_MAP_NOT_ALLOWED;
    }
}

/* Files that have no path: pipes and sockets reopened through /proc/self/fd hold nothing that
 * the sandbox did not have; memory files may be read and written, but code in them needs a
 * grant; a namespace file is the handle of setns. */
static __always_inline __u32 pathless_code(struct sk_path_case *c, __u32 ops) {
    struct vfsmount *mnt = (struct vfsmount *)c->query.mnt;
    unsigned long magic = c->query.leaf_magic;
    if (!(BPF_CORE_READ(mnt, mnt_flags) & MNT_INTERNAL)) return SK_CODE_PATH_UNKNOWN;
    if (magic == NSFS_MAGIC) return case_granted(&c->base, SK_GRANT_SETNS) ? SK_CODE_OK : SK_CODE_ESCAPE;
    if (!(ops & (SK_OP_EXEC | SK_OP_MAP))) return SK_CODE_OK;
    return case_granted(&c->base, SK_GRANT_MEMFD_EXEC) ? SK_CODE_OK : SK_CODE_EXEC_NO_PATH;
}

/* Files whose meaning is not their path: another process's memory, cgroup membership. */
static __always_inline __u32 special_code(struct sk_path_case *c, __u32 ops) {
    struct dentry *dentry = (struct dentry *)c->query.dentry;
    unsigned long magic = c->query.leaf_magic;
    if (magic == PROC_SUPER_MAGIC) {
        char name[8] = {};
        bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(dentry, d_name.name));
        if (name[0] == 'm' && name[1] == 'e' && name[2] == 'm' && name[3] == 0)
            return case_granted(&c->base, SK_GRANT_PTRACE) ? SK_CODE_OK : SK_CODE_ESCAPE;
    }
    if ((magic == CGROUP_SUPER_MAGIC || magic == CGROUP2_SUPER_MAGIC) && (ops & SK_OP_WRITE))
        return case_granted(&c->base, SK_GRANT_CGROUP_WRITE) ? SK_CODE_OK : SK_CODE_ESCAPE;
    return SK_CODE_OK;
}

__noinline int object_judge(struct sk_path_case *c, __u32 ops) {
    if (!c) return 0;
    if (c->base.code != SK_CODE_OK) return 0;
    int rc = path_query(&c->query);
    c->base.path_hash = c->query.path_hash;
    path_leaf(&c->query);
    if (rc == SK_PATH_ERR_UNREACHABLE) {
        c->base.code = pathless_code(c, ops);
        return 0;
    }
    if (rc) {
        c->base.code = SK_CODE_PATH_UNKNOWN;
        return 0;
    }
    c->base.code = special_code(c, ops);
    if (c->base.code != SK_CODE_OK) return 0;
    /* A deleted file keeps the name of what may by now be another file. */
    if ((ops & (SK_OP_EXEC | SK_OP_MAP)) && c->query.leaf_nlink == 0 && !case_granted(&c->base, SK_GRANT_MEMFD_EXEC)) {
        c->base.code = SK_CODE_EXEC_NO_PATH;
        return 0;
    }
    __u32 bits = c->query.bits;
    for (int i = 0; i < 8; i++) {
        __u32 op = 1U << i;
        if (!(ops & op) || bits_allow(bits, op)) continue;
        c->base.code = code_of(op, (bits >> SK_DENY_SHIFT) & op);
        return 0;
    }
    return 0;
}
