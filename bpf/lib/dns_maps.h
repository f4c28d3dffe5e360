/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What the DNS meter keeps. Zones and budgets outlive sandboxes: they belong to a session. */
#pragma once
#include "bpf/lib/maps.h"
#include "bpf/wire/dns_answer.h"
#include "bpf/wire/dns_scope.h"
#include "bpf/wire/dns.h"

/* Zone hash -> SK_DNS_SUFFIX_* and tier. 10,000 suffixes, and lists of an operator. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 262144);
    __type(key, __u64);
    __type(value, __u32);
} dns_known SEC(".maps") __weak;

/* 250 names for each of 4,096 sandboxes; one may have more. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 1 << 20);
    __type(key, struct sk_dns_rule_key);
    __type(value, struct sk_dns_rule);
} dns_rules SEC(".maps") __weak;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SK_MAX_SLOTS);
    __type(key, __u32);
    __type(value, struct sk_dns_binding);
} dns_slots SEC(".maps") __weak;

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SK_DNS_BUDGETS);
    __type(key, __u32);
    __type(value, struct sk_dns_budget);
} dns_budgets SEC(".maps") __weak;

/* A charged zone is never evicted: room for every zone of every budget id, made as it is needed. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, SK_DNS_BUDGETS * (SK_DNS_BUDGET_ZONES + 2));
    __type(key, struct sk_dns_zone_key);
    __type(value, struct sk_dns_zone);
} dns_zones SEC(".maps") __weak;

/* Room for 250 addresses of each sandbox; user space bounds what one may have. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 1 << 20);
    __type(key, struct sk_dns_pin_key);
    __type(value, struct sk_dns_pin);
} dns_pins SEC(".maps") __weak;

/* An evicted name is charged as a new one. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, struct sk_dns_name_key);
    __type(value, __u32);
} dns_names SEC(".maps") __weak;

/* Whom a query goes to. */
enum sk_dns_peer {
    SK_DNS_PEER_ANY = 0,       /* the connect programs have judged it, or nobody does */
    SK_DNS_PEER_RESOLVER = 1,  /* its answer is read */
    SK_DNS_PEER_LISTED = 2,    /* the network section lists it: its answer opens nothing */
    SK_DNS_PEER_STRANGER = 3,
    SK_DNS_PEER_NO_ROOM = 4,   /* no memory to remember the query */
};

#define SK_DNS_HASHES 16 /* more than SK_DNS_ZONE_LABELS, and a power of 2 */
/* One query that is being judged. */
struct sk_dns_work {
    __u32 busy;
    __u32 len;    /* bytes of msg */
    int fault;    /* enum sk_dns_fault; while the name is read, SK_DNS_MORE */
    __u32 code;   /* enum sk_code */
    struct sk_dns_head head;
    struct sk_dns_walk walk;
    struct sk_dns_query query;
    __u16 start[SK_DNS_MAX_LABELS]; /* of each label, in the name */
    __u32 labels;
    __u32 slot;
    __u32 generation; /* of the slot */
    __u64 hash;       /* of the labels read so far, from the right */
    __u64 hashes[SK_DNS_HASHES]; /* of the zone of so many labels; [0] of the root */
    __u8 tiers[SK_DNS_HASHES];   /* of the same zones, by the lists */
    __u32 suffix;     /* labels of the longest suffix, and of the longest without a provider's rules */
    __u32 icann;
    __u32 known_end;  /* an exception rule has spoken */
    __u32 rules;      /* SK_DNS_RULE_EXACT or _BELOW where the policy lists the name */
    __u32 tier;
    __u32 granted;    /* budget of tier GRANTED */
    /* the accounts: the zone's, the provider's */
    __u64 zone_key[2];
    __u32 zone_at[2];
    __u32 account_tier[2];
    __u32 charged[2];
    __u32 accounts;
    __u32 charged_total;
    __u32 spent;
    __u32 limit;
    __u8 server[16];
    __u16 family;
    __u16 pad;
    __u32 peer;       /* enum sk_dns_peer */
    /* The verifier does not follow that options end where their record does. */
    __u8 msg[SK_DNS_QUERY_BYTES + 256];
};

/* The kernel may preempt a program of this kind, and run it for another task on the same CPU: each
 * claims one of these. A sandbox has the same few wherever it runs, so that one whose threads are kept from
 * going on holds up those few sandboxes that share them, not all. */
#define SK_DNS_WORKS 16
#define SK_DNS_SANDBOX_WORKS 4 /* a power of 2 that divides SK_DNS_WORKS */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, SK_DNS_WORKS);
    __type(key, __u32);
    __type(value, struct sk_dns_work);
} dns_works SEC(".maps") __weak;
