/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Not a hook: the path verdict as a hook would take it, for a descriptor of the caller. Tests run it
 * by bpf_prog_test_run and compare it with a slow, obvious matcher. */
#include "bpf/lib/path.h"
#include "bpf/selftest/selftest.h"

/* A query is too large for the stack beside those of the functions that it calls. One caller at a
 * time has its place by number; tests give each thread one of its own. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SK_SELFTEST_PLACES);
    __type(key, __u32);
    __type(value, struct sk_path_query);
} queries SEC(".maps");

static __always_inline int place_file(struct sk_path_query *query, __u32 fd) {
    struct file *file = (struct file *)file_of_fd(fd);
    if (!file) return -1;
    query->mnt = (__u64)BPF_CORE_READ(file, f_path.mnt);
    query->dentry = (__u64)BPF_CORE_READ(file, f_path.dentry);
    return 0;
}

static __always_inline __u64 root_of(__u32 root_fd) {
    if (root_fd == SK_SELFTEST_OWN_ROOT)
        return (__u64)BPF_CORE_READ(bpf_get_current_task_btf(), fs, root.dentry);
    struct file *file = (struct file *)file_of_fd(root_fd);
    return file ? (__u64)BPF_CORE_READ(file, f_path.dentry) : 0;
}

SEC("syscall")
int selftest_path(struct sk_selftest_call *call) {
    __u32 place = call->place;
    struct sk_path_query *query = bpf_map_lookup_elem(&queries, &place);
    if (!query) return 1;
    if (place_file(query, call->fd)) return 2;
    query->root_dentry = root_of(call->root_fd);
    query->policy_index = call->policy_index;
    query->bits = 0;
    query->leaf_meta = 0;
    call->rc = path_query(query);
    call->bits = query->bits;
    call->leaf_meta = query->leaf_meta;
    call->slots = query->slots;
    return 0;
}
