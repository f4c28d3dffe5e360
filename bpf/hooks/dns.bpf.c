/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What a sandbox may ask of DNS, and how much its queries may say: docs/dns.md. The program sits where
 * those of net.bpf.c do. COVERAGE every UDP packet that a socket of the sandbox sends, also one of the
 * kernel's own for it; it follows the socket's cgroup. TCP is refused at connect, but to the stub.
 * ON_ERROR drop. */
#include "bpf/lib/dns_answer.h"

/* Until its record is read a query costs its worst case, and the next one may be refused for that. Does every account have room for
 * so many more of this kind, the reader's own look (some milliseconds) is soon enough: waking it costs the caller a microsecond. */
#define PLENTY 16

static __always_inline bool has_plenty(const struct sk_dns_work *work, const struct sk_dns_budget *amounts) {
    if (work->accounts != 1 || !amounts) return false;
    return work->limit >= work->spent && work->limit - work->spent >= (__u64)PLENTY * work->charged[0] &&
           amounts->total_budget >= amounts->total && amounts->total_budget - amounts->total >= (__u64)PLENTY * work->charged_total;
}

/* Read and judged, whether or not the task at work is the sandbox's. */
__noinline int dns_report(struct sk_case *c, struct sk_dns_work *work) {
    if (!c || !work) return 0;
    __u32 slot = c->slot;
    RECORD_BEGIN(dns, DNS, c);
    wake_ = 0;
    head_of_packet(&record->head, slot);
    __builtin_memcpy(record->server, work->server, sizeof(record->server));
    record->family = work->family;
    record->fault = work->fault;
    record->quiet = c->role;
    __u32 len = work->query.question.name.len;
    if (len <= SK_DNS_NAME_BYTES) {
        record->name_len = len;
        __builtin_memcpy(record->name, work->query.question.name.wire, sizeof(record->name));
    }
    if (!work->fault) {
        record->type = work->query.question.type;
        record->zone_at = work->accounts ? work->zone_at[0] : 0;
        record->tier = work->tier;
        record->zone_key[0] = work->zone_key[0];
        record->zone_key[1] = work->zone_key[1];
        record->charged[0] = work->charged[0];
        record->charged[1] = work->charged[1];
        record->charged_total = work->charged_total;
        record->spent = work->spent;
        record->limit = work->limit;
        struct sk_dns_binding *entry = bpf_map_lookup_elem(&dns_slots, &slot);
        __u32 budget = entry ? entry->budget : 0;
        struct sk_dns_budget *amounts = bpf_map_lookup_elem(&dns_budgets, &budget);
        record->budget = budget;
        record->generation = amounts ? amounts->generation : 0;
        if (!c->refuse && has_plenty(work, amounts)) wake_ = BPF_RB_NO_WAKEUP;
    }
    RECORD_END();
    return 0;
}

struct sk_dns_to {
    __u8 server[16];
    __u8 source[16];
    __u16 family;
    __u16 port;
    __u16 source_port;
    __u16 names; /* the socket speaks to resolvers: port 53 may have become another on the way */
};

/* The packet's UDP payload, if it is a query: its offset, 0 = another packet, or minus a fault. */
static __always_inline int udp_payload(struct __sk_buff *skb, int at, struct sk_dns_to *to) {
    struct udphdr_ {
        __u16 source, dest, len, check;
    } udp;
    if (bpf_skb_load_bytes(skb, at, &udp, sizeof(udp))) return 0; /* the kernel will not send it either */
    to->port = __builtin_bswap16(udp.dest);
    to->source_port = __builtin_bswap16(udp.source);
    if (to->port != SK_DNS_PORT && !to->names) return 0;
    if (skb->gso_segs > 1) return -SK_DNS_FAULT_SEGMENTS;
    /* What does not lie in the packet's own memory may be its sender's (MSG_ZEROCOPY, splice), who could change
     * it after this; no client's query is so long that the kernel puts it elsewhere. */
    if ((__u64)skb->data_end - (__u64)skb->data < skb->len) return -SK_DNS_FAULT_PAGES;
    if (__builtin_bswap16(udp.len) != skb->len - at) return -SK_DNS_FAULT_UDP_LENGTH;
    return at + sizeof(udp);
}

static __always_inline int payload4(struct __sk_buff *skb, struct sk_dns_to *to) {
    __u8 ip[20];
    if (bpf_skb_load_bytes(skb, 0, ip, sizeof(ip))) return 0;
    if (ip[9] != IPPROTO_UDP) return 0;
    if (((ip[6] & 0x3f) << 8) | ip[7]) return -SK_DNS_FAULT_FRAGMENT; /* more fragments, or an offset */
    __builtin_memcpy(to->server, ip + 16, 4);
    __builtin_memcpy(to->source, ip + 12, 4);
    to->family = AF_INET;
    return udp_payload(skb, (ip[0] & 0xf) * 4, to);
}

static __always_inline int payload6(struct __sk_buff *skb, struct sk_dns_to *to) {
    __u8 ip[40];
    if (bpf_skb_load_bytes(skb, 0, ip, sizeof(ip))) return 0;
    __u8 next = ip[6];
    if (next == 0 || next == 43 || next == 44 || next == 60) return -SK_DNS_FAULT_EXTENSION;
    if (next != IPPROTO_UDP) return 0;
    __builtin_memcpy(to->server, ip + 24, 16);
    __builtin_memcpy(to->source, ip + 8, 16);
    to->family = AF_INET6;
    return udp_payload(skb, sizeof(ip), to);
}

/* Fault or code of a query whose payload is at `at`. */
static __always_inline void query_judge(struct __sk_buff *skb, struct sk_dns_work *work, __u32 at) {
    __u32 slot = work->slot, len = skb->len - at;
    struct sk_dns_binding *entry = bpf_map_lookup_elem(&dns_slots, &slot);
    work->code = SK_CODE_DNS_NOT_ALLOWED;
    work->fault = SK_DNS_FAULT_SHORT;
    if (len < SK_DNS_HEAD_BYTES) return;
    work->fault = SK_DNS_FAULT_LONG;
    if (len > SK_DNS_QUERY_BYTES) return;
    work->len = len;
    if (bpf_skb_load_bytes(skb, at, work->msg, len)) return;
    work->fault = dns_read(work);
    if (work->fault) return;
    if (!entry || entry->generation != work->generation) return;
    work->code = SK_CODE_DNS_SERVER;
    if (work->peer == SK_DNS_PEER_STRANGER) return;
    work->code = SK_CODE_DNS_NO_ROOM;
    if (work->peer == SK_DNS_PEER_NO_ROOM) return;
    work->code = SK_CODE_DNS_NOT_ALLOWED;
    dns_zones_of(work, entry->rules);
    if (entry->mode == SK_DNS_CLOSED || (entry->mode == SK_DNS_ALLOWLIST && !work->rules)) return;
    work->code = dns_charge(work, entry->budget);
}

static __always_inline int query_settle(struct sk_dns_work *work, __u32 slot, __u32 generation) {
    struct sk_case c = {};
    case_fill(&c, slot, generation, SK_SECTION_DNS, SK_POWER_REFUSE);
    c.by = SK_BACKEND_CGROUP;
    if (c.code == SK_CODE_OK) c.code = work->fault ? SK_CODE_DNS_FORM : work->code;
    c.path_hash = work->fault ? 0 : work->hash;
    struct sk_dns_binding *entry = bpf_map_lookup_elem(&dns_slots, &slot);
    if (entry && entry->generation == generation && entry->mode == SK_DNS_OBSERVE) c.flags |= SK_RECORD_OBSERVE;
    case_settle(&c);
    bool charged = (work->charged[0] | work->charged[1]) && work->limit != SK_DNS_UNLIMITED;
    if (!c.ring && c.code == SK_CODE_OK && charged) {
        /* The charge is the worst case until somebody reads this. */
        c.role = 1;
        refund_settle(&c);
    }
    if (c.ring) dns_report(&c, work);
    return c.refuse ? 0 : 1;
}

static __always_inline struct sk_dns_server server_of(const __u8 *bytes, __u32 family) {
    struct sk_dns_server server = {.lo = sk_dns_u32(bytes)};
    if (family == AF_INET) return server;
    server.hi = (__u64)sk_dns_u32(bytes) << 32 | sk_dns_u32(bytes + 4);
    server.lo = (__u64)sk_dns_u32(bytes + 8) << 32 | sk_dns_u32(bytes + 12);
    return server;
}

static __always_inline struct sk_dns_sock *socket_memory(struct __sk_buff *skb, __u64 flags) {
    struct bpf_sock *sk = skb->sk;
    if (sk) sk = bpf_sk_fullsock(sk);
    return sk ? bpf_sk_storage_get(&dns_socks, sk, NULL, flags) : NULL;
}

/* Who can give itself the resolver's address must not answer itself. Apart, as is what follows: what is
 * inlined here and there together has more stack than a program may. */
static __noinline int in_its_name(const struct sk_dns_binding *binding, const struct sk_dns_to *to) {
    struct sk_dns_server source = server_of(to->source, to->family);
    if (!resolver_of(binding, &source)) return 0;
    answer_count(SK_DNS_ANSWER_SELF);
    return 1;
}

/* By the packet's own address; or, where a program of an ancestor cgroup has put another into it, by all
 * that the socket's calls have asked for. */
static __noinline __u32 peer_of(const struct sk_dns_binding *binding, const struct sk_dns_sock *sock, const struct sk_dns_to *to,
                                __u64 owner) {
    struct sk_dns_server server = server_of(to->server, to->family);
    if (to->port == SK_DNS_PORT && resolver_of(binding, &server)) return SK_DNS_PEER_RESOLVER;
    if (!sock || sock->owner != owner) return SK_DNS_PEER_STRANGER;
    __u32 calls = *(volatile __u32 *)&sock->calls;
    if (calls == SK_DNS_SOCK_RESOLVER) return SK_DNS_PEER_RESOLVER;
    return calls & SK_DNS_SOCK_LISTED && !(calls & SK_DNS_SOCK_OTHER) ? SK_DNS_PEER_LISTED : SK_DNS_PEER_STRANGER;
}

/* The answer will be read for this query. */
static __noinline void ask_keep(struct sk_dns_sock *sock, const struct sk_dns_work *work, const struct sk_dns_to *to) {
    struct sk_dns_ask *ask = &sock->ask[__sync_fetch_and_add(&sock->next, 1) & (SK_DNS_ASKS - 1)];
    __u64 now = bpf_ktime_get_boot_ns(), before = __sync_lock_test_and_set(&ask->asked_ns, 0);
    if (before && now - before < SK_DNS_ASK_NS) answer_count(SK_DNS_ANSWER_FORGOTTEN);
    ask->name = work->hash;
    ask->owner = dns_owner(work->slot, work->generation);
    ask->to = server_of(to->server, to->family);
    ask->id = work->head.id;
    ask->type = work->query.question.type;
    ask->port = to->port;
    ask->family = to->family;
    __sync_lock_test_and_set(&ask->asked_ns, now); /* last: from here on it is seen */
}

/* 1 = the packet leaves. */
static __always_inline int packet_judge(struct __sk_buff *skb, __u32 slot, __u32 generation) {
    struct sk_dns_binding *binding = answers_of(slot, generation);
    struct sk_dns_sock *sock = binding ? socket_memory(skb, 0) : NULL;
    struct sk_dns_to to = {.names = sock != NULL};
    int at = 0;
    if (skb->protocol == __builtin_bswap16(ETH_P_IP)) at = payload4(skb, &to);
    if (skb->protocol == __builtin_bswap16(ETH_P_IPV6)) at = payload6(skb, &to);
    if (binding && to.source_port == SK_DNS_PORT && in_its_name(binding, &to)) return 0;
    if (!at) return 1;
    struct sk_dns_work *work = work_claim(slot);
    if (!work) {
        count_error(SK_ERROR_DNS_WORK);
        return 0;
    }
    work_begin(work, slot, generation);
    __builtin_memcpy(work->server, to.server, sizeof(work->server));
    work->family = to.family;
    if (binding) work->peer = peer_of(binding, sock, &to, dns_owner(slot, generation));
    if (work->peer == SK_DNS_PEER_RESOLVER && !sock) sock = socket_memory(skb, BPF_SK_STORAGE_GET_F_CREATE);
    if (work->peer == SK_DNS_PEER_RESOLVER && !sock) {
        answer_count(SK_DNS_ANSWER_NO_MEMORY);
        work->peer = SK_DNS_PEER_NO_ROOM;
    }
    if (at > 0) query_judge(skb, work, at);
    if (at < 0) work->fault = -at;
    int allowed = query_settle(work, slot, generation);
    if (allowed && sock && work->peer == SK_DNS_PEER_RESOLVER && !work->fault) ask_keep(sock, work, &to);
    work_release(work);
    return allowed;
}

/* FIRES for each packet of a socket in the cgroup, before it is cut to fragments. SOURCE
 * ip_finish_output, ip6_finish_output, ip_mc_output. */
SEC("cgroup_skb/egress")
int dns_egress(struct __sk_buff *skb) {
    struct sk_config *conf = config_get();
    if (!conf || !conf->live_slots) return 1;
    __u64 levels = conf->levels;
    __u32 *number = NULL;
    for (int i = 0; i < SK_MAX_LEVELS && !number; i++) {
        __u64 id = levels & 0xff ? bpf_skb_ancestor_cgroup_id(skb, levels & 0xff) : 0;
        if (id) number = bpf_map_lookup_elem(&cgroups, &id);
        levels >>= 8;
    }
    if (!number) return 1;
    __u32 slot = *number;
    struct sk_slot *entry = bpf_map_lookup_elem(&slots, &slot);
    return entry ? packet_judge(skb, slot, entry->generation) : 1;
}

#define REFUND_TRIES 16 /* against queries on other CPUs; one that is not given back makes it dearer, never cheaper */

/* Never below nothing: a new day may have spent less than what is given back of the old one. */
static __always_inline void give_back(__u32 *spent, __u32 amount) {
    for (int i = 0; i < REFUND_TRIES; i++) {
        __u32 before = *(volatile __u32 *)spent;
        if (before < amount || __sync_val_compare_and_swap(spent, before, before - amount) == before) return;
    }
}

/* Not a hook: gives back what the true length of a query did not need. */
SEC("syscall")
int dns_refund(struct sk_dns_refund *refund) {
    __u32 number = refund->budget;
    struct sk_dns_budget *budget = bpf_map_lookup_elem(&dns_budgets, &number);
    if (!budget || budget->generation != refund->generation) return -1;
    give_back(&budget->total, refund->total);
    for (int i = 0; i < 2; i++) {
        struct sk_dns_zone_key key = {.zone = refund->zone_key[i], .budget = number, .generation = refund->generation};
        struct sk_dns_zone *zone = key.zone ? bpf_map_lookup_elem(&dns_zones, &key) : NULL;
        if (zone) give_back(&zone->spent, refund->amount[i]);
    }
    return 0;
}
