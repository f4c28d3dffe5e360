/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* From the bytes of an answer to pins, for sandboxes that have no stub: docs/dns.md. Apart from the
 * reading of queries: that one is for a copy of the packet, as its sender may be hostile in every byte and
 * each fault is told by name; here a name is read in its place, a label a step, and a fault is a fault. */
#pragma once
#include "bpf/lib/dns.h"

/* Of each UDP socket that has asked; gone with it, and no other sandbox's sockets can push it out. 1.6 KiB,
 * within the socket's own bound for such memory (net.core.optmem_max, 20 KiB by default on 6.1). */
struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct sk_dns_sock);
} dns_socks SEC(".maps") __weak;

/* Made as needed: 16 rules by name for each of 4,096 sandboxes, some 350 bytes each. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 65536);
    __type(key, struct sk_dns_rule_key);
    __type(value, struct sk_dns_ports);
} dns_ports SEC(".maps") __weak;

/* As many as `dns_pins`, made as needed: some 100 bytes each, at most 400 KiB a sandbox. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 1 << 20);
    __type(key, struct sk_dns_pinned_key);
    __type(value, struct sk_dns_pin_key);
} dns_places SEC(".maps") __weak;

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, SK_DNS_ANSWER_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} dns_answers SEC(".maps") __weak;

struct sk_dns_found {
    struct sk_dns_server address;
    __u32 ttl_s;
    __u32 family;
};

/* One answer that is being read. */
struct sk_dns_answer {
    __u32 busy;
    __u32 base; /* of the message in the packet, and its bytes */
    __u32 len;
    __u32 end; /* enum sk_dns_answer_end */
    struct sk_dns_head head;
    /* the name that is being read */
    __u32 pos;
    __u32 lowest; /* a pointer has to go to before here */
    __u32 after;  /* the name where it began; 0 until the first pointer */
    __u32 bytes;
    __u32 labels;
    __u32 hops;
    __u32 done;
    __u32 names; /* read so far */
    __u64 hash;
    __u16 start[SK_DNS_MAX_LABELS]; /* of each label, in the message */
    __u8 label[SK_DNS_LABEL_BYTES + 1]; /* the one that is hashed; whole words of it are read */
    /* the question, and what was asked */
    __u64 name;
    __u32 slot;
    __u32 generation;
    __u32 type;
    /* the rules that cover it: zones, and whether for the name itself */
    __u32 match; /* look rules up while the name is read */
    __u32 rules;
    __u64 rule[SK_DNS_ANSWER_RULES];
    __u32 exact[SK_DNS_ANSWER_RULES];
    /* the records */
    __u32 at;
    __u32 left;
    __u32 target_at; /* the name whose records count, and where it stands */
    __u64 target;
    __u32 chain;
    __u32 ttl_s; /* least of the chain */
    __u32 found;
    __u32 private; /* addresses that were left out */
    /* the parameters of a service */
    __u32 hint_at;
    __u32 hint_end;
    __u32 hint_left;  /* bytes of addresses */
    __u32 hint_bytes; /* of one */
    __u32 hint_ttl_s;
    struct sk_dns_found address[SK_DNS_ANSWER_RECORDS];
    /* the pin that is being made */
    struct sk_dns_pin_key key;
    __u64 until_ns;
    __u64 tls; /* not 0: by a rule with `tls_name: strict` */
    __u64 now;
    struct sk_dns_from {
        struct sk_dns_server address;
        __u16 family;
        __u16 port;
        __u32 pad;
    } from;
};

/* Answers come in softirqs, of which one runs at a time on a CPU; the second place is for a kernel that
 * preempts them. 2.2 KiB each. */
#define SK_DNS_ANSWER_WORKS 2
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, SK_DNS_ANSWER_WORKS);
    __type(key, __u32);
    __type(value, struct sk_dns_answer);
} dns_readers SEC(".maps") __weak;

/* What becomes of the packet's answer: enum sk_dns_answer_end; addresses are in `work`. */
int answer_read(struct __sk_buff *skb, struct sk_dns_answer *work, struct sk_dns_sock *sock);
/* Makes the pins. */
int answer_pin(struct sk_dns_answer *work);

static __always_inline void answer_count(__u32 end) {
    __u64 *count = bpf_map_lookup_elem(&dns_answers, &end);
    if (count) *count += 1;
}

static __always_inline __u64 dns_owner(__u32 slot, __u32 generation) {
    return (__u64)slot << 32 | (generation & SK_GENERATION_MASK);
}

static __always_inline bool resolver_of(const struct sk_dns_binding *binding,
                                        const struct sk_dns_server *address) {
    for (int i = 0; i < SK_DNS_RESOLVERS; i++) {
        if (i < binding->servers && binding->server[i].hi == address->hi &&
            binding->server[i].lo == address->lo)
            return true;
    }
    return false;
}

/* The binding of a sandbox whose answers are read here. */
static __always_inline struct sk_dns_binding *answers_of(__u32 slot, __u32 generation) {
    struct sk_dns_binding *binding = bpf_map_lookup_elem(&dns_slots, &slot);
    return binding && binding->answers && binding->generation == generation ? binding : NULL;
}

/* At connect and sendmsg: whom a UDP socket speaks to, by the address that the caller wrote. A program of
 * an ancestor cgroup may write another into the packet (load balancing at the socket); those run after us. */
static __always_inline void dns_note(struct bpf_sock_addr *ctx, const struct sk_case *c,
                                     const struct sk_address *address, bool listed) {
    if (address->stream) return;
    struct sk_dns_binding *binding = answers_of(c->slot, c->generation);
    if (!binding || !ctx->sk) return;
    bool names = address->port == SK_DNS_PORT;
    struct sk_dns_sock *sock =
        bpf_sk_storage_get(&dns_socks, ctx->sk, NULL, names ? BPF_SK_STORAGE_GET_F_CREATE : 0);
    if (!sock) {
        if (names) answer_count(SK_DNS_ANSWER_NO_MEMORY); /* the packet is judged by its own address */
        return;
    }
    struct sk_dns_server server = {.hi = address->hi, .lo = address->lo};
    __u32 call = listed ? SK_DNS_SOCK_LISTED : SK_DNS_SOCK_OTHER;
    if (names && resolver_of(binding, &server)) call = SK_DNS_SOCK_RESOLVER;
    if (!sock->owner) sock->owner = dns_owner(c->slot, c->generation);
    __sync_fetch_and_or(&sock->calls, call);
}
