/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Leaf to root: the hashes of a path's components, and the proof that they belong together. */
#include "bpf/lib/dentry.h"

static __always_inline __u64 hash_word(__u64 h, __u64 word) {
    return __builtin_bswap64((h ^ word) * keys.k1) * keys.k2;
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

static __always_inline __u64 hash_view(const struct sk_dentry_view *view, __u64 dentry) {
    if (view->len < dentry_inline_size()) return hash_inline(view);
    return hash_long(dentry_name(dentry), view->len);
}

__noinline int path_walk(struct sk_path_query *query) {
    if (!query) return SK_PATH_ERR_READ;
    __u64 dentry = query->dentry, vfsmount = query->mnt, root = query->root_dentry;
    __u64 top = mount_root(vfsmount), fingerprint = 0, path_hash = 0;
    __u32 race = 0;
    for (int i = 0; i < SK_PATH_SLOTS; i++) {
        keep(i);
        if (dentry == root) {
            query->slots = i;
            query->fingerprint = fingerprint;
            query->path_hash = path_hash;
            return race ? SK_PATH_ERR_RACE : 0;
        }
        if (dentry == top) {
            if (!mount_step(&vfsmount, &dentry)) return SK_PATH_ERR_UNREACHABLE;
            top = mount_root(vfsmount);
            query->hash[i] = 0;
            continue;
        }
        struct sk_dentry_view view;
        if (dentry_load(&view, dentry)) return SK_PATH_ERR_READ;
        if (view.parent == dentry) return SK_PATH_ERR_UNREACHABLE;
        __u64 h = hash_view(&view, dentry);
        if (!h) return SK_PATH_ERR_READ;
        compiler_barrier();
        race |= (view.seq & 1) | (view.seq ^ dentry_seq(dentry));
        fingerprint = fingerprint * 5 + view.seq;
        query->hash[i] = h;
        path_hash = (path_hash ^ h) * SK_EDGE_SPREAD;
        dentry = view.parent;
    }
    return SK_PATH_ERR_DEEP;
}

/* The second look at the sequence counts: all as in the walk means that every (name, parent)
 * pair was valid at one instant between the two. */
__noinline int path_recheck(struct sk_path_query *query) {
    if (!query) return SK_PATH_ERR_READ;
    __u64 dentry = query->dentry, vfsmount = query->mnt, root = query->root_dentry;
    __u64 top = mount_root(vfsmount), fingerprint = 0;
    for (int i = 0; i < SK_PATH_SLOTS; i++) {
        keep(i);
        if (dentry == root) break;
        if (dentry == top) {
            if (!mount_step(&vfsmount, &dentry)) return SK_PATH_ERR_UNREACHABLE;
            top = mount_root(vfsmount);
            continue;
        }
        fingerprint = fingerprint * 5 + dentry_seq(dentry);
        dentry = dentry_parent(dentry);
    }
    return fingerprint == query->fingerprint ? 0 : SK_PATH_ERR_RACE;
}

/* The dentry that the walk had in slot `at`. */
__noinline int path_slot(struct sk_path_query *query, __u32 at) {
    if (!query) return SK_PATH_ERR_READ;
    __u64 dentry = query->dentry, vfsmount = query->mnt, top = mount_root(vfsmount);
    for (int i = 0; i < SK_PATH_SLOTS; i++) {
        keep(i);
        if (at == 0) break;
        at--;
        if (dentry == top) {
            if (!mount_step(&vfsmount, &dentry)) return SK_PATH_ERR_UNREACHABLE;
            top = mount_root(vfsmount);
        } else {
            dentry = dentry_parent(dentry);
        }
    }
    /* Through memory: a global function returns a number, and the verifier knows a pointer here. */
    query->at_dentry = dentry;
    return 0;
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

__noinline int path_record(struct sk_path *out, struct sk_path_query *query) {
    if (!out || !query) return 0;
    __u64 dentry = query->dentry, vfsmount = query->mnt, root = query->root_dentry;
    __u64 top = mount_root(vfsmount);
    for (int i = 0; i < SK_PATH_SLOTS; i++) {
        keep(i);
        if (dentry == root) return 0;
        if (dentry == top) {
            if (!mount_step(&vfsmount, &dentry)) {
                out->flags |= SK_PATH_UNREACHABLE;
                return 0;
            }
            top = mount_root(vfsmount);
            continue;
        }
        query->at_dentry = dentry; /* a pointer to the verifier, a number when read back */
        compiler_barrier();
        if (record_component(out, query->at_dentry)) break;
        __u64 parent = dentry_parent(dentry);
        if (parent == dentry) {
            out->flags |= SK_PATH_UNREACHABLE;
            return 0;
        }
        dentry = parent;
    }
    out->flags |= SK_PATH_TRUNCATED;
    return 0;
}

/* The file behind a descriptor of the current task, from kernel memory only; 0 = none. */
__noinline __u64 file_of_fd(__u32 fd) {
    struct fdtable *table = BPF_CORE_READ(bpf_get_current_task_btf(), files, fdt);
    if (fd >= BPF_CORE_READ(table, max_fds)) return 0;
    struct file **array = BPF_CORE_READ(table, fd), *file = NULL;
    bpf_probe_read_kernel(&file, sizeof(file), array + fd);
    return (__u64)file;
}
