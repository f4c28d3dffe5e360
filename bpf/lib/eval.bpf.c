/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Root to leaf: the automaton of a compiled policy over the hashes of a path's components.
 * The same steps stand in userspace/policy/evaluate.cc; random patterns and paths hold the two
 * against a slow obvious matcher. */
#include "bpf/lib/path.h"
#include "bpf/lib/policy.h"

enum sk_eval_need { SK_NEED_ANYGLOB = 1, SK_NEED_STATE_GLOB = 2 };
enum sk_eval_done { SK_DONE_ANYGLOB = 1, SK_DONE_STATE_GLOB = 2 };

/* The verifier knows constants and splits its states by them, past a million instructions here.
 * Adding a number that it cannot see merges them again. */
__u64 opaque_zero;

/* Names outside the automaton: their bits hold wherever they stand. */
static __always_inline __u32 eval_anyname(void *policy, const struct sk_policy_view *view, __u64 h,
                                          bool leaf) {
    __u64 entry = policy_entry(policy, view, edge_key(h, SK_STATE_ANYNAME));
    return (entry_meta(entry) | (leaf ? entry_next(entry) : 0)) & SK_VERDICT_MASK;
}

static __always_inline __u32 eval_needs(__u32 flags, __u32 meta, bool leaf, bool miss, __u32 done) {
    __u32 need = 0;
    bool anyglob = (flags & SK_POLICY_ANYGLOB_ALL) || (leaf && (flags & SK_POLICY_ANYGLOB_LEAF));
    if (anyglob && !(done & SK_DONE_ANYGLOB)) need |= SK_NEED_ANYGLOB;
    if (miss && (meta & SK_META_GLOB) && !(done & SK_DONE_STATE_GLOB)) need |= SK_NEED_STATE_GLOB;
    return need;
}

/* Eats components until the leaf (returns 0) or until a glob needs a name's bytes (returns 1,
 * query->need says which). */
__noinline int path_eval(struct sk_path_query *query) {
    if (!query) return SK_PATH_ERR_READ;
    struct sk_policy_view view;
    void *policy = policy_open(query->policy_index, &view);
    if (!policy) return SK_PATH_ERR_POLICY;
    __u32 state = query->state, meta = query->meta, bits = query->bits, left = query->left;
    __u32 done = query->done, flags = view.flags;
    __u64 zero = opaque_zero;
    for (int i = 0; i < SK_PATH_SLOTS; i++) {
        keep(i);
        if (left == 0) break;
        __u32 at = slot_index(left - 1);
        __u64 h = query->hash[at];
        if (!h) {
            left = at;
            continue;
        }
        state += zero, meta += zero, bits += zero, done += zero, flags += zero;
        if (!done && (flags & SK_POLICY_ANYNAME)) bits |= eval_anyname(policy, &view, h, at == 0);
        __u64 entry = 0;
        if (meta & SK_META_EDGES) entry = policy_entry(policy, &view, edge_key(h, state));
        entry += zero, meta += zero, done += zero, flags += zero, bits += zero;
        __u32 need = eval_needs(flags, meta, at == 0, !entry, done);
        need += zero;
        if (need) {
            query->state = state, query->meta = meta, query->bits = bits, query->left = left;
            query->need = need;
            query->done = done;
            return 1;
        }
        done = 0;
        left = at;
        if (!entry && (meta & SK_META_STAR))
            entry = policy_entry(policy, &view, edge_key(SK_HASH_STAR, state));
        if (entry) {
            state = entry_next(entry);
            meta = entry_meta(entry);
        } else if (!(meta & SK_META_SELF)) {
            state = SK_STATE_DEAD;
            meta = 0;
        }
    }
    query->left = left;
    query->leaf_meta = meta;
    query->bits = (bits | meta) & SK_VERDICT_MASK;
    return 0;
}

/* Runs a byte DFA over a name. The class of globs that match it, 0 = none, below 0 = unknown. */
static __always_inline int glob_word(void *policy, const struct sk_policy_view *view,
                                     union sk_cell *classes, __u64 word, __u32 *row) {
    for (int i = 0; i < 8; i++) {
        __u32 byte = word & 255;
        word >>= 8;
        if (!byte) return 0;
        union sk_cell *cell = policy_cell(policy, view->glob_cell + *row);
        if (!cell) return -1;
        *row = cell->row[classes->classes[byte] & (SK_GLOB_CLASSES - 1)];
        if (!*row) return 0;
    }
    return 0;
}

__noinline int glob_run(__u64 dentry, __u32 policy_index, __u32 row) {
    struct sk_policy_view view;
    void *policy = policy_open(policy_index, &view);
    if (!policy) return SK_PATH_ERR_POLICY;
    union sk_cell *classes = policy_cell(policy, SK_CLASS_CELL);
    if (!classes) return SK_PATH_ERR_POLICY;
    __u32 len = 0;
    if (bpf_core_read(&len, sizeof(len), &((struct dentry *)dentry)->d_name.len) || len > 255)
        return SK_PATH_ERR_READ;
    __u64 name = 0, zero = opaque_zero;
    if (bpf_core_read(&name, sizeof(name), &((struct dentry *)dentry)->d_name.name)) return SK_PATH_ERR_READ;
    for (int k = 0; k < 32; k++) {
        keep(k);
        __u32 offset = k * 8, part = len - offset;
        __u64 word = 0;
        if (offset >= len || !row) break;
        if (part > 8) part = 8;
        keep(part);
        if (part > 8) return SK_PATH_ERR_READ;
        if (bpf_probe_read_kernel(&word, part, (void *)name + offset)) return SK_PATH_ERR_READ;
        row += zero;
        if (glob_word(policy, &view, classes, word, &row)) return SK_PATH_ERR_POLICY;
    }
    if (!row) return 0;
    union sk_cell *cell = policy_cell(policy, view.glob_cell + row);
    return cell ? cell->row[SK_GLOB_END] : SK_PATH_ERR_POLICY;
}

static __always_inline int glob_class_entry(void *policy, const struct sk_policy_view *view,
                                            __u32 glob, __u32 state, __u64 *out) {
    *out = policy_entry(policy, view, edge_key(SK_HASH_GLOB + glob, state));
    return *out ? 0 : SK_PATH_ERR_POLICY;
}

/* Gives the evaluation what it stopped for. A name that changed since the walk hashed it is
 * found out by path_recheck: a rename bumps the sequence count. */
__noinline int path_glob(struct sk_path_query *query) {
    if (!query) return SK_PATH_ERR_READ;
    struct sk_policy_view view;
    void *policy = policy_open(query->policy_index, &view);
    if (!policy) return SK_PATH_ERR_POLICY;
    __u32 at = slot_index(query->left - 1);
    int rc = path_slot(query, at);
    if (rc) return rc;
    __u64 dentry = query->at_dentry;
    __u64 entry = 0;
    if (query->need & SK_NEED_ANYGLOB) {
        int glob = glob_run(dentry, query->policy_index, view.anyglob_row);
        if (glob < 0) return glob;
        if (glob > 0) {
            if (glob_class_entry(policy, &view, glob, SK_STATE_ANYGLOB, &entry)) return SK_PATH_ERR_POLICY;
            query->bits |= (entry_meta(entry) | (at == 0 ? entry_next(entry) : 0)) & SK_VERDICT_MASK;
        }
    }
    query->done = SK_DONE_ANYGLOB | SK_DONE_STATE_GLOB;
    if (!(query->need & SK_NEED_STATE_GLOB)) return 0;
    if (glob_class_entry(policy, &view, 0, query->state, &entry)) return SK_PATH_ERR_POLICY;
    int glob = glob_run(dentry, query->policy_index, entry_next(entry));
    if (glob <= 0) return glob;
    if (glob_class_entry(policy, &view, glob, query->state, &entry)) return SK_PATH_ERR_POLICY;
    query->state = entry_next(entry);
    query->meta = entry_meta(entry);
    query->left = at;
    query->done = 0;
    return 0;
}

static __always_inline int path_try(struct sk_path_query *query, __u32 start_meta) {
    int rc = path_walk(query);
    if (rc) return rc;
    query->state = SK_STATE_START;
    query->meta = start_meta;
    query->bits = 0;
    query->left = query->slots;
    query->done = 0;
    rc = path_eval(query);
    /* Each component can stop the evaluation at most once. */
    for (int i = 0; i < SK_PATH_SLOTS && rc > 0; i++) {
        keep(i);
        rc = path_glob(query);
        if (rc) return rc;
        rc = path_eval(query);
    }
    if (rc) return rc > 0 ? SK_PATH_ERR_DEEP : rc;
    return path_recheck(query);
}

/* 0 and query->bits, or an SK_PATH_ERR_*. */
__noinline int path_query(struct sk_path_query *query) {
    if (!query) return SK_PATH_ERR_READ;
    struct sk_policy_view view;
    if (!policy_open(query->policy_index, &view)) return SK_PATH_ERR_POLICY;
    int rc = SK_PATH_ERR_RACE;
    for (int i = 0; i < SK_PATH_RETRIES && rc == SK_PATH_ERR_RACE; i++) {
        keep(i);
        rc = path_try(query, view.start_meta);
    }
    if (rc == SK_PATH_ERR_RACE) count_error(SK_ERROR_WALK_RACE);
    if (rc == SK_PATH_ERR_DEEP) count_error(SK_ERROR_WALK_DEEP);
    if (rc == SK_PATH_ERR_READ) count_error(SK_ERROR_WALK_READ);
    if (rc == SK_PATH_ERR_UNREACHABLE) count_error(SK_ERROR_WALK_UNREACHABLE);
    return rc;
}
