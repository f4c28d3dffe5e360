/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Reading a compiled policy: bpf/wire/policy.h has its shape. */
#pragma once
#include "bpf/lib/errors.h"

/* `last` is a constant in each of the three branches of policy_open: what the verifier needs to know
 * of the value's size. */
struct sk_policy {
    const union sk_cell *cells; /* NULL = no policy at this index */
    __u64 last;                 /* cells - 1; 64 bits, so that a copy of it is still a constant */
};

/* The different comments keep clang from joining the three look-ups: of an instruction that is
 * reached with more than one map, the verifier makes an indirect call. */
#define policy_from(map, size)                                          \
    ({                                                                  \
        void *inner_ = bpf_map_lookup_elem(&map, &place);               \
        asm volatile("# " #map);                                        \
        policy.cells = inner_ ? bpf_map_lookup_elem(inner_, &zero) : NULL; \
        asm volatile("# " #map);                                        \
        policy.last = (size)-1;                                         \
    })

static __always_inline struct sk_policy policy_open(__u32 index) {
    struct sk_policy policy = {};
    __u32 zero = 0, place = index & (SK_MAX_POLICIES - 1);
    switch (index / SK_MAX_POLICIES) {
        case SK_POLICY_SMALL: policy_from(policies_small, SK_POLICY_CELLS_SMALL); break;
        case SK_POLICY_MEDIUM: policy_from(policies_medium, SK_POLICY_CELLS_MEDIUM); break;
        case SK_POLICY_LARGE: policy_from(policies_large, SK_POLICY_CELLS_LARGE); break;
    }
    return policy;
}

static __always_inline const struct sk_policy_head *policy_head(const struct sk_policy *policy) {
    return &policy->cells[SK_HEAD_CELL].head;
}

/* Masked, not checked: the compiler made the index. */
static __always_inline const union sk_cell *policy_cell(const struct sk_policy *policy, __u32 index) {
    return &policy->cells[index & policy->last];
}

static __always_inline __u64 edge_key(__u64 h, __u32 state) {
    return sk_edge_key((const void *)&keys, h, state);
}

/* All ones when the two are equal, else 0: without a branch, which BPF makes of every comparison. */
static __always_inline __u64 mask_equal(__u64 a, __u64 b) {
    __u64 differ = a ^ b;
    differ |= -differ;
    keep(differ);
    return ~(__u64)((__s64)differ >> 63);
}

/* The entry under a key as meta << 32 | next, 0 on a miss. By value and without a branch: the verifier
 * then follows one state from here, not one for each of the four places. */
static __always_inline __u64 policy_entry(const struct sk_policy *policy, __u64 key) {
    const struct sk_policy_head *head = policy_head(policy);
    __u32 bucket = sk_bucket(key) & head->edge_mask;
    const struct sk_entry *entries =
        policy_cell(policy, head->edge_cell + bucket / SK_BUCKETS_PER_CELL)->bucket[bucket % SK_BUCKETS_PER_CELL];
    __u64 found = 0;
    for (int i = 0; i < SK_ENTRIES_PER_BUCKET; i++)
        found |= *(__u64 *)&entries[i].next & mask_equal(entries[i].key, key);
    return found;
}
#define entry_next(entry) ((__u32)(entry))
#define entry_meta(entry) ((__u32)((entry) >> 32))
