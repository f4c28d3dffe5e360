/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Reading a compiled policy: bpf/wire/policy.h has its shape. */
#pragma once
#include "bpf/lib/errors.h"

/* The few numbers of the head that a look-up needs, copied once. */
struct sk_policy_view {
    __u32 flags;
    __u32 edge_cell;
    __u32 edge_mask;
    __u32 glob_cell;
    __u32 start_meta;
    __u32 anyglob_row;
};

static __always_inline union sk_cell *policy_cell(void *policy, __u32 index) {
    return bpf_map_lookup_elem(policy, &index);
}

static __always_inline void *policy_map(__u32 index) { return bpf_map_lookup_elem(&policies, &index); }

static __always_inline struct sk_policy_head *policy_head(void *policy) {
    union sk_cell *cell = policy_cell(policy, SK_HEAD_CELL);
    return cell ? &cell->head : NULL;
}

/* The map of a policy, NULL when there is none at this index. */
static __always_inline void *policy_open(__u32 index, struct sk_policy_view *view) {
    void *policy = policy_map(index);
    if (!policy) return NULL;
    struct sk_policy_head *head = policy_head(policy);
    if (!head) return NULL;
    view->flags = head->flags;
    view->edge_cell = head->edge_cell;
    view->edge_mask = head->edge_mask;
    view->glob_cell = head->glob_cell;
    view->start_meta = head->start_meta;
    view->anyglob_row = head->anyglob_row;
    return policy;
}

static __always_inline __u64 edge_key(__u64 h, __u32 state) {
    return (h ^ ((__u64)state * SK_EDGE_SPREAD)) * keys.k1;
}

/* The entry under a key as meta << 32 | next, 0 on a miss. By value and without an early exit: the
 * verifier then follows one state from here, not one for each of the four places. */
static __always_inline __u64 policy_entry(void *policy, const struct sk_policy_view *view, __u64 key) {
    __u32 bucket = sk_bucket(key) & view->edge_mask;
    union sk_cell *cell = policy_cell(policy, view->edge_cell + bucket / SK_BUCKETS_PER_CELL);
    if (!cell) return 0;
    struct sk_entry *entries = cell->bucket[bucket % SK_BUCKETS_PER_CELL];
    __u64 found = 0;
    for (int i = 0; i < SK_ENTRIES_PER_BUCKET; i++)
        if (entries[i].key == key) found = *(__u64 *)&entries[i].next;
    return found;
}
#define entry_next(entry) ((__u32)(entry))
#define entry_meta(entry) ((__u32)((entry) >> 32))
