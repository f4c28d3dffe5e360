/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* From the bytes of a query to its zones and its charge: docs/dns.md. */
#pragma once
#include "bpf/lib/dns_maps.h"
#include "bpf/lib/net.h"

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

/* Fault of msg, read up to its end. */
int dns_read(struct sk_dns_work *work);
/* Where the labels of a name that was read begin. */
int dns_labels(struct sk_dns_work *work);
/* The accounts of a query that was read; `rules`: the policy has some. */
int dns_zones_of(struct sk_dns_work *work, __u32 rules);
/* Takes the worst case from every account, or from none. An enum sk_code. */
int dns_charge(struct sk_dns_work *work, __u32 number);

static __always_inline struct sk_dns_work *work_claim(__u32 slot) {
    for (__u32 i = 0; i < SK_DNS_SANDBOX_WORKS; i++) {
        __u32 key = (slot * SK_DNS_SANDBOX_WORKS + i) & (SK_DNS_WORKS - 1);
        struct sk_dns_work *work = bpf_map_lookup_elem(&dns_works, &key);
        if (work && __sync_val_compare_and_swap(&work->busy, 0, 1) == 0) return work;
    }
    return NULL;
}

/* Nothing of the query before, which may have been another sandbox's. */
static __always_inline void work_begin(struct sk_dns_work *work, __u32 slot, __u32 generation) {
    work->slot = slot;
    work->generation = generation;
    work->accounts = work->tier = work->limit = work->spent = 0;
    work->charged[0] = work->charged[1] = work->charged_total = 0;
    work->zone_key[0] = work->zone_key[1] = 0;
    work->query.question.name.len = 0;
    work->hash = 0;
    work->peer = SK_DNS_PEER_ANY;
}

static __always_inline void work_release(struct sk_dns_work *work) { __sync_lock_test_and_set(&work->busy, 0); }
