/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Root to leaf: the automaton of a compiled policy over the hashes of a path's components.
 * The same steps stand in userspace/policy/evaluate.cc; random patterns and paths hold the two
 * against a slow obvious matcher. */
#include "bpf/lib/path.h"
#include "bpf/lib/policy.h"

/* Loops here are calls of bpf_loop, each of which does several steps: a call and its return cost as
 * much as a step (13 ns where returns are guarded), and steps that the verifier unrolls cost it too
 * much, as it follows them once for each size of policies. */
#define EVAL_STEPS 2
#define GLOB_WORDS 2
#define GLOB_PART (GLOB_WORDS * 8)

struct sk_glob {
    struct sk_policy policy;
    struct sk_path_query *query;
    __u64 name;
};

/* A part of a name through the byte DFA. */
static int glob_part(__u32 i, struct sk_glob *glob) {
    const struct sk_policy *policy = &glob->policy;
    struct sk_path_query *query = glob->query;
    const __u8 *classes = policy_cell(policy, SK_CLASS_CELL)->classes;
    __u32 offset = i * GLOB_PART, bytes = query->name_len - offset, row = query->row, first = policy_head(policy)->glob_cell;
    __u64 words[GLOB_WORDS] = {};
    if (offset >= query->name_len || !row) return 1;
    if (bytes > GLOB_PART) bytes = GLOB_PART;
    keep(bytes);
    query->result = SK_PATH_ERR_READ;
    if (bytes > GLOB_PART) return 1;
    if (bpf_probe_read_kernel(words, bytes, (void *)glob->name + offset)) return 1;
    query->result = 0;
    for (int w = 0; w < GLOB_WORDS; w++) {
        __u64 word = words[w];
        for (int k = 0; k < 8 && row && (word & 255); k++, word >>= 8)
            row = policy_cell(policy, first + row)->row[classes[word & 255] & (SK_GLOB_CLASSES - 1)];
    }
    query->row = row;
    return 0;
}

/* The class of globs that match a component's name, 0 = none, below 0 = unknown. `row` is where the
 * byte DFA starts. A name that changed since the walk hashed it is found out by the recheck: a rename
 * bumps the sequence count. Its memory is freed by RCU, not before this program is over. */
static __always_inline int glob_run(const struct sk_policy *policy, struct sk_path_query *query, __u32 at, __u32 row) {
    struct sk_glob glob = {.policy = *policy, .query = query, .name = query->name[at]};
    query->name_len = query->len[at];
    query->row = row;
    query->result = 0;
    bpf_loop(256 / GLOB_PART, glob_part, &glob, 0);
    if (query->result) return query->result;
    row = query->row;
    return row ? policy_cell(policy, policy_head(policy)->glob_cell + row)->row[SK_GLOB_END] : 0;
}

/* What names outside the automaton add: their bits hold wherever they stand. */
static __always_inline __u32 entry_bits(__u64 entry, bool leaf) {
    return (entry_meta(entry) | (leaf ? entry_next(entry) : 0)) & SK_VERDICT_MASK;
}

static __always_inline bool wants_anyglob(__u32 flags, bool leaf) {
    return (flags & SK_POLICY_ANYGLOB_ALL) || (leaf && (flags & SK_POLICY_ANYGLOB_LEAF));
}

/* What globs say of one component: bits, and the edge of a state that none of its names took. */
__noinline int eval_globs(struct sk_path_query *query, __u32 slot) {
    if (!query) return SK_PATH_ERR_READ;
    struct sk_policy policy = policy_open(query->policy_index);
    if (!policy.cells) return SK_PATH_ERR_POLICY;
    const struct sk_policy_head *head = policy_head(&policy);
    __u32 at = slot_index(slot);
    bool leaf = at == query->leaf_slot;
    if (wants_anyglob(head->flags, leaf)) {
        int glob = glob_run(&policy, query, at, head->anyglob_row);
        if (glob < 0) return glob;
        if (glob) query->bits |= entry_bits(policy_entry(&policy, edge_key(SK_HASH_GLOB + glob, SK_STATE_ANYGLOB)), leaf);
    }
    if (query->edge || !(query->meta & SK_META_GLOB)) return 0;
    __u64 start = policy_entry(&policy, edge_key(SK_HASH_GLOB, query->state));
    int glob = glob_run(&policy, query, at, entry_next(start));
    if (glob < 0) return glob;
    if (glob) query->edge = policy_entry(&policy, edge_key(SK_HASH_GLOB + glob, query->state));
    return 0;
}

/* One component. State, meta, bits and edge are in the query's memory, where the verifier takes them
 * for any number: so every component looks alike to it. */
static __always_inline int eval_step(const struct sk_policy *policy, struct sk_path_query *query, __u32 at) {
    __u32 flags = policy_head(policy)->flags;
    __u64 h = query->hash[at];
    bool leaf = at == query->leaf_slot;
    if (!h) return 0;
    if (flags & SK_POLICY_ANYNAME) query->bits |= entry_bits(policy_entry(policy, edge_key(h, SK_STATE_ANYNAME)), leaf);
    query->edge = query->meta & SK_META_EDGES ? policy_entry(policy, edge_key(h, query->state)) : 0;
    if (wants_anyglob(flags, leaf) || (query->meta & SK_META_GLOB)) {
        int rc = eval_globs(query, at);
        if (rc) return rc;
    }
    if (!query->edge && (query->meta & SK_META_STAR)) query->edge = policy_entry(policy, edge_key(SK_HASH_STAR, query->state));
    if (query->edge) {
        query->state = entry_next(query->edge);
        query->meta = entry_meta(query->edge);
    } else if (!(query->meta & SK_META_SELF)) {
        query->state = SK_STATE_DEAD;
        query->meta = 0;
    }
    return 0;
}

struct sk_eval {
    struct sk_policy policy;
    struct sk_path_query *query;
};

static int eval_steps(__u32 i, struct sk_eval *eval) {
    struct sk_path_query *query = eval->query;
    for (int k = 0; k < EVAL_STEPS; k++) {
        __u32 left = *(volatile __u32 *)&query->left;
        if (!left) return 1;
        query->left = left - 1;
        query->result = eval_step(&eval->policy, query, slot_index(left - 1));
        if (query->result) return 1;
    }
    return 0;
}

/* 0 and query->bits, or an SK_PATH_ERR_*. */
__noinline int path_eval(struct sk_path_query *query) {
    if (!query) return SK_PATH_ERR_READ;
    struct sk_eval eval = {.policy = policy_open(query->policy_index), .query = query};
    if (!eval.policy.cells) return SK_PATH_ERR_POLICY;
    query->state = SK_STATE_START;
    query->meta = policy_head(&eval.policy)->start_meta;
    query->bits = 0;
    query->left = query->slots;
    query->result = 0;
    bpf_loop(SK_PATH_SLOTS / EVAL_STEPS + 1, eval_steps, &eval, 0);
    query->leaf_meta = query->meta;
    query->bits = (query->bits | query->meta) & SK_VERDICT_MASK;
    return query->result;
}
