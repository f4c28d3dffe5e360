/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Opens the addresses of names that a sandbox without a stub has asked for, before the caller can read the
 * answer: docs/dns.md. */
#include "bpf/lib/dns_answer.h"

/* Offset of the UDP payload of a packet that a socket is about to receive, and who sent it; 0 = none. */
static __always_inline __u32 answer_payload(struct __sk_buff *skb, struct sk_dns_answer *work) {
    __u8 ip[40];
    __u32 at = 0;
    if (skb->gso_segs > 1) return 0;
    if (skb->protocol == __builtin_bswap16(ETH_P_IP)) {
        if (bpf_skb_load_bytes(skb, 0, ip, 20) || ip[9] != IPPROTO_UDP) return 0;
        at = (ip[0] & 0xf) * 4;
        work->from.address.hi = 0;
        work->from.address.lo = sk_dns_u32(ip + 12);
        work->from.family = AF_INET;
    } else {
        if (bpf_skb_load_bytes(skb, 0, ip, 40) || ip[6] != IPPROTO_UDP) return 0;
        at = sizeof(ip);
        work->from.address.hi = (__u64)sk_dns_u32(ip + 8) << 32 | sk_dns_u32(ip + 12);
        work->from.address.lo = (__u64)sk_dns_u32(ip + 16) << 32 | sk_dns_u32(ip + 20);
        work->from.family = AF_INET6;
    }
    __u8 udp[8];
    if (bpf_skb_load_bytes(skb, at, udp, sizeof(udp)) || sk_dns_u16(udp + 4) != skb->len - at) return 0;
    work->from.port = sk_dns_u16(udp);
    return at + sizeof(udp);
}

static __always_inline struct sk_dns_answer *answer_claim(void) {
    for (__u32 i = 0; i < SK_DNS_ANSWER_WORKS; i++) {
        __u32 key = i;
        struct sk_dns_answer *work = bpf_map_lookup_elem(&dns_readers, &key);
        if (work && __sync_val_compare_and_swap(&work->busy, 0, 1) == 0) return work;
    }
    return NULL;
}

/* Would the caller be refused where it goes with such an answer? Under `mode: observe` it is not. */
static __always_inline bool answer_enforced(const struct sk_dns_answer *work) {
    struct sk_slot *slot = slot_of_label(work->slot, work->generation);
    struct sk_policy policy = policy_open(slot ? *(volatile __u32 *)&slot->policy_index : SK_NO_POLICY);
    return !policy.cells || policy_head(&policy)->mode != SK_MODE_OBSERVE;
}

/* FIRES for each packet before it comes to a socket of the cgroup; a socket that never asked for a name has
 * no storage, and costs that look-up. COVERAGE UDP. ON_ERROR the address stays closed; an answer that was
 * asked for and cannot be pinned is dropped, so that the caller asks again instead of breaking the policy.
 * SOURCE sk_filter_trim_cap. */
SEC("cgroup_skb/ingress")
int dns_ingress(struct __sk_buff *skb) {
    struct bpf_sock *sk = skb->sk;
    if (!sk) return 1;
    sk = bpf_sk_fullsock(sk);
    if (!sk) return 1;
    struct sk_dns_sock *sock = bpf_sk_storage_get(&dns_socks, sk, NULL, 0);
    if (!sock) return 1;
    struct sk_dns_answer *work = answer_claim();
    if (!work) {
        answer_count(SK_DNS_ANSWER_NO_WORK);
        return 0;
    }
    work->base = answer_payload(skb, work);
    work->len = skb->len - work->base;
    work->now = bpf_ktime_get_boot_ns();
    __u32 end = work->base ? answer_read(skb, work, sock) : SK_DNS_ANSWER_FORM;
    if (end == SK_DNS_ANSWER_PINNED) end = answer_pin(work);
    answer_count(end);
    bool drop = end == SK_DNS_ANSWER_BROKEN || end == SK_DNS_ANSWER_LARGE || end == SK_DNS_ANSWER_NO_ROOM;
    if (drop) drop = answer_enforced(work);
    __sync_lock_test_and_set(&work->busy, 0);
    return drop ? 0 : 1;
}
