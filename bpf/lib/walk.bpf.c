/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Leaf to root: the hashes of a path's components, and the proof that they belong together. */
#include "bpf/lib/dentry.h"
#include "bpf/lib/errors.h"

static __always_inline __u64 hash_word(__u64 h, __u64 word) {
    return sk_hash_word((const void *)&keys, h, word);
}

static __always_inline __u64 hash_inline(const struct sk_dentry_view *view) {
    __u32 len = view->len;
    __u64 h = keys.seed + len;
    if (len <= 8) return hash_word(h, view->word[0] & last_word_mask(len));
    h = hash_word(h, view->word[0]);
    if (len <= 16) return hash_word(h, view->word[1] & last_word_mask(len));
    h = hash_word(h, view->word[1]);
    if (len <= 24) return hash_word(h, view->word[2] & last_word_mask(len));
    h = hash_word(h, view->word[2]);
    if (len <= 32) return hash_word(h, view->word[3] & last_word_mask(len));
    h = hash_word(h, view->word[3]);
    return hash_word(h, view->word[4] & last_word_mask(len));
}

/* The hash of a name outside its dentry; 0 when it cannot be read. NAME_MAX is 255. */
__noinline __u64 hash_long(__u64 name, __u32 len) {
    __u64 h = keys.seed + len;
    if (len > 255) return 0;
    for (int k = 0; k < 16; k++) {
        __u64 words[2] = {};
        __u32 offset = k * 16, part = len - offset;
        if (offset >= len) break;
        keep(part);
        if (part > 16) part = 16;
        keep(part);
        if (part > 16) return 0; /* 6.1 forgets the clamp above */
        if (bpf_probe_read_kernel(words, part, (void *)name + offset)) return 0;
        h = hash_word(h, words[0]);
        if (offset + 8 < len) h = hash_word(h, words[1]);
    }
    return h;
}

struct sk_loop {
    struct sk_path_query *query;
    struct sk_path *out;
};

static __always_inline void cursor_start(struct sk_path_query *query, int result) {
    query->at_dentry = query->dentry;
    query->at_mnt = query->mnt;
    query->at_top = mount_root(query->mnt);
    query->at_print = 0;
    query->race = 0;
    query->result = result;
}

/* From the root of a mount to where it is mounted. False: it hangs nowhere. */
static __always_inline bool cursor_cross(struct sk_path_query *query) {
    __u64 dentry = 0, vfsmount = query->at_mnt;
    if (!mount_step(&vfsmount, &dentry)) return false;
    query->at_dentry = dentry;
    query->at_mnt = vfsmount;
    query->at_top = mount_root(vfsmount);
    return true;
}

enum { STEP_ON = 0, STEP_ENOUGH = 1 };

/* One level of the walk. */
static __always_inline int walk_step(struct sk_path_query *query, __u32 at) {
    __u64 dentry = query->at_dentry;
    if (dentry == query->root_dentry) {
        query->slots = at;
        query->result = query->race ? SK_PATH_ERR_RACE : 0;
        return STEP_ENOUGH;
    }
    if (dentry == query->at_top) {
        query->hash[at] = 0;
        if (query->leaf_slot == at) query->leaf_slot = at + 1;
        if (cursor_cross(query)) return STEP_ON;
        query->slots = at;
        query->result = !query->any_root ? SK_PATH_ERR_UNREACHABLE : query->race ? SK_PATH_ERR_RACE : 0;
        return STEP_ENOUGH;
    }
    struct sk_dentry_view view;
    query->result = SK_PATH_ERR_READ;
    if (dentry_load(&view, dentry)) return STEP_ENOUGH;
    if (view.parent == dentry) {
        query->result = SK_PATH_ERR_UNREACHABLE;
        return STEP_ENOUGH;
    }
    bool stored_inline = view.len < dentry_inline_size();
    __u64 name = stored_inline ? dentry + dentry_inline_offset() : dentry_name(dentry);
    __u64 h = stored_inline ? hash_inline(&view) : hash_long(name, view.len);
    if (!h) return STEP_ENOUGH;
    compiler_barrier();
    query->race |= (view.seq & 1) | (view.seq ^ dentry_seq(dentry));
    query->at_print = query->at_print * 5 + view.seq;
    query->hash[at] = h;
    query->name[at] = name;
    query->len[at] = view.len;
    query->path_hash = (query->path_hash ^ h) * SK_EDGE_SPREAD;
    query->at_dentry = view.parent;
    query->result = SK_PATH_ERR_DEEP;
    return STEP_ON;
}

/* A call of bpf_loop and its return cost as much as a level (13 ns where returns are guarded): so each
 * does several levels. All levels in one are too many instructions for the verifier. */
#define LOOP_STEPS 2

static int walk_steps(__u32 i, struct sk_loop *loop) {
    for (__u32 k = 0; k < LOOP_STEPS; k++)
        if (walk_step(loop->query, slot_index(i * LOOP_STEPS + k)) == STEP_ENOUGH) return 1;
    return 0;
}

static __always_inline int path_walk(struct sk_path_query *query) {
    struct sk_loop loop = {.query = query};
    cursor_start(query, SK_PATH_ERR_DEEP);
    query->path_hash = 0;
    query->leaf_slot = 0;
    bpf_loop(SK_PATH_SLOTS / LOOP_STEPS, walk_steps, &loop, 0);
    query->fingerprint = query->at_print;
    return query->result;
}

static __always_inline int recheck_step(struct sk_path_query *query) {
    __u64 dentry = query->at_dentry;
    if (dentry == query->root_dentry) return STEP_ENOUGH;
    if (dentry == query->at_top) {
        if (cursor_cross(query)) return STEP_ON;
        query->result = query->any_root ? 0 : SK_PATH_ERR_UNREACHABLE;
        return STEP_ENOUGH;
    }
    query->at_print = query->at_print * 5 + dentry_seq(dentry);
    query->at_dentry = dentry_parent(dentry);
    return STEP_ON;
}

static int recheck_steps(__u32 i, struct sk_loop *loop) {
    for (__u32 k = 0; k < LOOP_STEPS; k++)
        if (recheck_step(loop->query) == STEP_ENOUGH) return 1;
    return 0;
}

/* The second look at the sequence counts: all as in the walk means that every (name, parent)
 * pair was valid at one instant between the two. */
static __always_inline int path_recheck(struct sk_path_query *query) {
    struct sk_loop loop = {.query = query};
    cursor_start(query, 0);
    bpf_loop(SK_PATH_SLOTS / LOOP_STEPS, recheck_steps, &loop, 0);
    if (query->result) return query->result;
    return query->at_print == query->fingerprint ? 0 : SK_PATH_ERR_RACE;
}

struct sk_try {
    struct sk_path_query *query;
    int result;
};

/* One walk, evaluation and recheck; 1 = no race, so enough. */
static int path_try(__u32 i, struct sk_try *try) {
    try->result = path_walk(try->query);
    if (!try->result) try->result = path_eval(try->query);
    if (!try->result) try->result = path_recheck(try->query);
    return try->result != SK_PATH_ERR_RACE;
}

__noinline int path_query(struct sk_path_query *query) {
    if (!query) return SK_PATH_ERR_READ;
    struct sk_try try = {.query = query};
    bpf_loop(SK_PATH_RETRIES, path_try, &try, 0);
    int rc = try.result;
    if (rc == SK_PATH_ERR_RACE) count_error(SK_ERROR_WALK_RACE);
    if (rc == SK_PATH_ERR_DEEP) count_error(SK_ERROR_WALK_DEEP);
    if (rc == SK_PATH_ERR_READ) count_error(SK_ERROR_WALK_READ);
    if (rc == SK_PATH_ERR_UNREACHABLE) count_error(SK_ERROR_WALK_UNREACHABLE);
    return rc;
}

/* Appends one component to a record's path. 0 = it fitted. */
__noinline int record_component(struct sk_path *out, __u64 dentry) {
    if (!out) return 1;
    __u32 at = out->bytes_len, len = 0;
    bpf_core_read(&len, sizeof(len), &((struct dentry *)dentry)->d_name.len);
    keep(at);
    if (at > SK_PATH_BYTES - 256 || len > 255 || at + len + 1 > SK_PATH_BYTES) return 1;
    out->bytes[at] = len;
    keep(len);
    if (len > 255) return 1;
    if (bpf_probe_read_kernel(&out->bytes[at + 1], len, (void *)dentry_name(dentry))) return 1;
    out->bytes_len = at + len + 1;
    out->components += 1;
    return 0;
}

static int record_step(__u32 i, struct sk_loop *loop) {
    struct sk_path_query *query = loop->query;
    __u64 dentry = query->at_dentry;
    query->result = 0;
    if (dentry == query->root_dentry) return 1;
    if (dentry == query->at_top) {
        if (cursor_cross(query)) return 0;
        loop->out->flags |= SK_PATH_UNREACHABLE;
        return 1;
    }
    query->result = SK_PATH_ERR_DEEP;
    if (record_component(loop->out, dentry)) return 1;
    __u64 parent = dentry_parent(dentry);
    if (parent == dentry) {
        loop->out->flags |= SK_PATH_UNREACHABLE;
        query->result = 0;
        return 1;
    }
    query->at_dentry = parent;
    return 0;
}

__noinline int path_record(struct sk_path *out, struct sk_path_query *query) {
    if (!out || !query) return 0;
    struct sk_loop loop = {.query = query, .out = out};
    cursor_start(query, SK_PATH_ERR_DEEP);
    bpf_loop(SK_PATH_SLOTS, record_step, &loop, 0);
    if (query->result) out->flags |= SK_PATH_TRUNCATED;
    return 0;
}

/* Pointers to files lie in an array; the verifier follows one through a type whose first member is
 * such a pointer. */
struct kiocb {
    struct file *ki_filp;
} __attribute__((preserve_access_index));

/* The file behind a descriptor of the current task, from kernel memory only; 0 = none. */
__noinline __u64 file_of_fd(__u32 fd) {
    struct fdtable *table = BPF_CORE_READ(bpf_get_current_task_btf(), files, fdt);
    if (fd >= BPF_CORE_READ(table, max_fds)) return 0;
    struct file **array = BPF_CORE_READ(table, fd), *file = NULL;
    bpf_probe_read_kernel(&file, sizeof(file), array + fd);
    return (__u64)file;
}

/* The same by checked loads, as a pointer that the verifier knows; only where has_rdonly_cast(). */
static __always_inline struct file *file_by_cast(__u32 fd) {
    struct fdtable *table = bpf_get_current_task_btf()->files->fdt;
    return fd < table->max_fds ? cast_to(kiocb, table->fd + fd)->ki_filp : NULL;
}

__noinline int fd_view(struct sk_file_view *out, __u32 fd) {
    if (!out) return -1;
    if (has_rdonly_cast()) {
        struct file *file = file_by_cast(fd);
        if (!file) return -1;
        out->mnt = (__u64)file->f_path.mnt;
        out->dentry = (__u64)file->f_path.dentry;
        out->mode = file->f_mode;
        out->flags = file->f_flags;
        out->kind = file->f_inode->i_mode & 0170000;
        return 0;
    }
    struct file *file = (struct file *)file_of_fd(fd);
    if (!file) return -1;
    out->mnt = (__u64)BPF_CORE_READ(file, f_path.mnt);
    out->dentry = (__u64)BPF_CORE_READ(file, f_path.dentry);
    out->mode = BPF_CORE_READ(file, f_mode);
    out->flags = BPF_CORE_READ(file, f_flags);
    out->kind = BPF_CORE_READ(file, f_inode, i_mode) & 0170000;
    return 0;
}

__noinline int fd_socket(struct sk_socket_view *out, __u32 fd) {
    if (!out) return -1;
    if (has_rdonly_cast()) {
        struct file *file = file_by_cast(fd);
        if (!file || (file->f_inode->i_mode & 0170000) != 0140000) return -1;
        struct sock *sk = cast_to(socket, file->private_data)->sk;
        if (!sk) return -1;
        out->sk = (__u64)sk;
        out->cgroup = (__u64)sk->sk_cgrp_data.cgroup;
        out->family = sk->__sk_common.skc_family;
        out->type = sk->sk_type;
        out->protocol = sk->sk_protocol;
        return 0;
    }
    struct file *file = (struct file *)file_of_fd(fd);
    if (!file || (BPF_CORE_READ(file, f_inode, i_mode) & 0170000) != 0140000) return -1;
    struct socket *sock = BPF_CORE_READ(file, private_data);
    struct sock *sk = BPF_CORE_READ(sock, sk);
    if (!sk) return -1;
    out->sk = (__u64)sk;
    out->cgroup = (__u64)BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
    out->family = BPF_CORE_READ(sk, __sk_common.skc_family);
    out->type = BPF_CORE_READ(sk, sk_type);
    out->protocol = BPF_CORE_READ(sk, sk_protocol);
    return 0;
}

__noinline int path_leaf(struct sk_path_query *query) {
    if (!query) return -1;
    if (has_rdonly_cast()) {
        struct dentry *dentry = cast_to(dentry, query->dentry);
        struct inode *inode = dentry->d_inode;
        query->leaf_magic = dentry->d_sb->s_magic;
        query->leaf_nlink = inode ? inode->i_nlink : 1;
        return 0;
    }
    struct dentry *dentry = (struct dentry *)query->dentry;
    struct inode *inode = BPF_CORE_READ(dentry, d_inode);
    query->leaf_magic = BPF_CORE_READ(dentry, d_sb, s_magic);
    query->leaf_nlink = inode ? BPF_CORE_READ(inode, i_nlink) : 1;
    return 0;
}
