/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Root to leaf: the automaton of a compiled policy over the hashes of a path's components.
 * The same steps stand in userspace/policy/evaluate.cc; random patterns and paths hold the two
 * against a slow obvious matcher. */
#include "bpf/lib/path.h"
#include "bpf/lib/policy.h"

enum sk_eval_need { SK_NEED_ANYGLOB = 1, SK_NEED_STATE_GLOB = 2 };
enum sk_eval_done { SK_DONE_ANYGLOB = 1, SK_DONE_STATE_GLOB = 2 };

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

struct sk_eval {
    struct sk_path_query *query;
    void *policy;
    struct sk_policy_view view;
};

/* One component; 1 = the leaf is reached, or a name's bytes are needed. */
static int eval_step(__u32 i, struct sk_eval *eval) {
    struct sk_path_query *query = eval->query;
    if (query->left == 0) return 1;
    __u32 at = slot_index(query->left - 1), state = query->state, meta = query->meta, flags = eval->view.flags;
    __u64 h = query->hash[at], entry = 0;
    if (!h) {
        query->left = at;
        return 0;
    }
    if (!query->done && (flags & SK_POLICY_ANYNAME))
        query->bits |= eval_anyname(eval->policy, &eval->view, h, at == 0);
    if (meta & SK_META_EDGES) entry = policy_entry(eval->policy, &eval->view, edge_key(h, state));
    query->need = eval_needs(flags, meta, at == 0, !entry, query->done);
    if (query->need) {
        query->result = 1;
        return 1;
    }
    query->done = 0;
    query->left = at;
    if (!entry && (meta & SK_META_STAR))
        entry = policy_entry(eval->policy, &eval->view, edge_key(SK_HASH_STAR, state));
    if (entry) {
        query->state = entry_next(entry);
        query->meta = entry_meta(entry);
    } else if (!(meta & SK_META_SELF)) {
        query->state = SK_STATE_DEAD;
        query->meta = 0;
    }
    return 0;
}

/* Eats components until the leaf (returns 0) or until a glob needs a name's bytes (returns 1,
 * query->need says which). */
__noinline int path_eval(struct sk_path_query *query) {
    if (!query) return SK_PATH_ERR_READ;
    struct sk_eval eval = {.query = query};
    eval.policy = policy_open(query->policy_index, &eval.view);
    if (!eval.policy) return SK_PATH_ERR_POLICY;
    query->result = 0;
    bpf_loop(SK_PATH_SLOTS + 1, eval_step, &eval, 0);
    if (query->result) return 1;
    query->leaf_meta = query->meta;
    query->bits = (query->bits | query->meta) & SK_VERDICT_MASK;
    return 0;
}

struct sk_glob {
    void *policy;
    union sk_cell *classes;
    __u64 name;
    __u32 glob_cell;
    __u32 len;
    __u32 row;
    int result;
};

/* Eight bytes of a name through the byte DFA; 1 = enough. */
static int glob_step(__u32 i, struct sk_glob *glob) {
    __u32 offset = i * 8, part = glob->len - offset, row = glob->row;
    __u64 word = 0;
    if (offset >= glob->len) return 1;
    if (part > 8) part = 8;
    keep(part);
    glob->result = SK_PATH_ERR_READ;
    if (part > 8) return 1;
    if (bpf_probe_read_kernel(&word, part, (void *)glob->name + offset)) return 1;
    glob->result = SK_PATH_ERR_POLICY;
    for (int k = 0; k < 8; k++) {
        __u32 byte = word & 255;
        word >>= 8;
        if (!byte) break;
        union sk_cell *cell = policy_cell(glob->policy, glob->glob_cell + row);
        if (!cell) return 1;
        row = cell->row[glob->classes->classes[byte] & (SK_GLOB_CLASSES - 1)];
        if (!row) break;
    }
    glob->row = row;
    glob->result = 0;
    return row == 0;
}

/* The class of globs that match a dentry's name, 0 = none, below 0 = unknown. NAME_MAX is 255. */
__noinline int glob_run(__u64 dentry, __u32 policy_index, __u32 row) {
    struct sk_policy_view view;
    struct sk_glob glob = {.row = row};
    glob.policy = policy_open(policy_index, &view);
    if (!glob.policy) return SK_PATH_ERR_POLICY;
    glob.classes = policy_cell(glob.policy, SK_CLASS_CELL);
    if (!glob.classes) return SK_PATH_ERR_POLICY;
    glob.glob_cell = view.glob_cell;
    struct dentry *from = (struct dentry *)dentry;
    if (bpf_core_read(&glob.len, sizeof(glob.len), &from->d_name.len) || glob.len > 255) return SK_PATH_ERR_READ;
    if (bpf_core_read(&glob.name, sizeof(glob.name), &from->d_name.name)) return SK_PATH_ERR_READ;
    bpf_loop(32, glob_step, &glob, 0);
    if (glob.result) return glob.result;
    if (!glob.row) return 0;
    union sk_cell *cell = policy_cell(glob.policy, view.glob_cell + glob.row);
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

struct sk_try {
    struct sk_path_query *query;
    __u32 start_meta;
    int result;
};

/* Each component can stop the evaluation at most once. */
static int glob_level(__u32 i, struct sk_try *try) {
    try->result = path_glob(try->query);
    if (!try->result) try->result = path_eval(try->query);
    return try->result <= 0;
}

/* One walk, evaluation and recheck; 1 = no race, so enough. */
static int path_try(__u32 i, struct sk_try *try) {
    struct sk_path_query *query = try->query;
    try->result = path_walk(query);
    if (try->result) return try->result != SK_PATH_ERR_RACE;
    query->state = SK_STATE_START;
    query->meta = try->start_meta;
    query->bits = 0;
    query->left = query->slots;
    query->done = 0;
    try->result = path_eval(query);
    if (try->result > 0) bpf_loop(SK_PATH_SLOTS, glob_level, try, 0);
    if (try->result > 0) try->result = SK_PATH_ERR_DEEP;
    if (!try->result) try->result = path_recheck(query);
    return try->result != SK_PATH_ERR_RACE;
}

/* 0 and query->bits, or an SK_PATH_ERR_*. */
__noinline int path_query(struct sk_path_query *query) {
    if (!query) return SK_PATH_ERR_READ;
    struct sk_policy_view view;
    if (!policy_open(query->policy_index, &view)) return SK_PATH_ERR_POLICY;
    struct sk_try try = {.query = query, .start_meta = view.start_meta};
    bpf_loop(SK_PATH_RETRIES, path_try, &try, 0);
    int rc = try.result;
    if (rc == SK_PATH_ERR_RACE) count_error(SK_ERROR_WALK_RACE);
    if (rc == SK_PATH_ERR_DEEP) count_error(SK_ERROR_WALK_DEEP);
    if (rc == SK_PATH_ERR_READ) count_error(SK_ERROR_WALK_READ);
    if (rc == SK_PATH_ERR_UNREACHABLE) count_error(SK_ERROR_WALK_UNREACHABLE);
    return rc;
}
