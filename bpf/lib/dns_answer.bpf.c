/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Question, chain and addresses of one answer, and their pins. Nothing is pinned before all of the answer
 * section has been read. Aliases are followed in the order of the records, which is that of every resolver;
 * an answer that has them in another opens nothing of what comes too early. */
#include "bpf/lib/dns_answer.h"

struct sk_dns_answer_loop {
    struct __sk_buff *skb;
    struct sk_dns_answer *work;
};

#define NAME_STEPS (2 * SK_DNS_MAX_LABELS) /* labels, and as many pointers */

/* One label, or one pointer. `done`: 1 at the end, 2 on a fault. */
static int label_step(__u32 i __attribute__((unused)), struct sk_dns_answer_loop *loop) {
    struct sk_dns_answer *work = loop->work;
    __u32 pos = work->pos;
    __u8 at[2] = {};
    work->done = 2;
    if (pos >= work->len || bpf_skb_load_bytes(loop->skb, work->base + pos, at, 1)) return 1;
    __u32 len = at[0];
    if ((len & 0xc0) == 0xc0) {
        if (bpf_skb_load_bytes(loop->skb, work->base + pos, at, 2)) return 1;
        __u32 target = sk_dns_u16(at) & 0x3fff;
        if (target >= work->lowest || ++work->hops > SK_DNS_HOPS) return 1;
        if (!work->after) work->after = pos + 2;
        work->lowest = work->pos = target;
        work->done = 0;
        return 0;
    }
    if (len & 0xc0 || work->bytes + len + (len ? 2 : 1) > SK_DNS_NAME_BYTES) return 1;
    if (!len) {
        if (!work->after) work->after = pos + 1;
        work->done = 1;
        return 1;
    }
    __u32 labels = work->labels;
    if (labels >= SK_DNS_MAX_LABELS) return 1;
    work->start[labels & (SK_DNS_MAX_LABELS - 1)] = pos;
    work->labels = labels + 1;
    work->bytes += len + 1;
    work->pos = pos + 1 + len;
    work->done = 0;
    return 0;
}

static __always_inline void rule_match(struct sk_dns_answer *work, __u32 labels) {
    struct sk_dns_rule_key key = {.zone = work->hash, .slot = work->slot, .generation = work->generation};
    struct sk_dns_ports *ports = bpf_map_lookup_elem(&dns_ports, &key);
    bool exact = labels == work->labels;
    if (!ports || !(exact ? ports->exact.count : ports->below.count)) return;
    __u32 n = work->rules;
    if (n >= SK_DNS_ANSWER_RULES) return;
    work->rule[n & (SK_DNS_ANSWER_RULES - 1)] = key.zone;
    work->exact[n & (SK_DNS_ANSWER_RULES - 1)] = exact;
    work->rules = n + 1;
}

/* The (i+1)th label from the right. */
static int hash_step(__u32 i, struct sk_dns_answer_loop *loop) {
    struct sk_dns_answer *work = loop->work;
    __u32 labels = work->labels;
    if (i >= labels) return 1;
    __u32 start = work->base + work->start[(labels - 1 - i) & (SK_DNS_MAX_LABELS - 1)];
    if (bpf_skb_load_bytes(loop->skb, start, work->label, 1)) return 1;
    /* 1 to 63, as label_step found it; so put that the verifier sees it is not 0. */
    __u32 len = ((work->label[0] - 1) & 63) + 1;
    if (bpf_skb_load_bytes(loop->skb, start + 1, work->label, len)) return 1;
    work->hash = sk_dns_zone_label((const void *)&keys, work->hash, work->label, len);
    if (work->match) rule_match(work, i + 1);
    return 0;
}

/* The hash of the name at `at`; 0 = it cannot be read, or there were too many. */
__noinline int answer_name(struct __sk_buff *skb, struct sk_dns_answer *work, __u32 at) {
    if (!skb || !work) return 0;
    struct sk_dns_answer_loop loop = {.skb = skb, .work = work};
    work->pos = work->lowest = at;
    work->after = work->bytes = work->labels = work->hops = 0;
    work->done = 2;
    bpf_loop(NAME_STEPS, label_step, &loop, 0);
    if (work->done != 1) return 0;
    work->hash = sk_dns_zone_start((const void *)&keys);
    bpf_loop(SK_DNS_MAX_LABELS, hash_step, &loop, 0);
    return 1;
}

/* Is the name at `at` the one whose records count? 1, 0, or below 0 where it cannot be read. Almost every
 * record names it by one pointer to where it stands. */
static __always_inline int owner_match(struct __sk_buff *skb, struct sk_dns_answer *work, __u32 at) {
    __u8 two[2];
    if (at + 2 > work->len || bpf_skb_load_bytes(skb, work->base + at, two, 2)) return -SK_DNS_ANSWER_BROKEN;
    if (two[0] >= 0xc0 && (sk_dns_u16(two) & 0x3fff) == work->target_at) {
        work->after = at + 2;
        return 1;
    }
    if (++work->names > SK_DNS_ANSWER_NAMES) return -SK_DNS_ANSWER_LARGE;
    if (!answer_name(skb, work, at)) return -SK_DNS_ANSWER_BROKEN;
    return work->hash == work->target;
}

/* One address of 4 or 16 bytes; 0 = it is not in the packet. */
__noinline int address_keep(struct __sk_buff *skb, struct sk_dns_answer *work, __u32 data, __u32 bytes,
                            __u32 ttl_s) {
    if (!skb || !work) return 0;
    struct sk_dns_found found = {.ttl_s = ttl_s, .family = AF_INET};
    __u8 at[16];
    bool public;
    if (bytes == 4) {
        if (bpf_skb_load_bytes(skb, work->base + data, at, 4)) return 0;
        found.address.lo = sk_dns_u32(at);
        public = sk_dns_public4(found.address.lo);
    } else {
        if (bpf_skb_load_bytes(skb, work->base + data, at, 16)) return 0;
        found.address.hi = (__u64)sk_dns_u32(at) << 32 | sk_dns_u32(at + 4);
        found.address.lo = (__u64)sk_dns_u32(at + 8) << 32 | sk_dns_u32(at + 12);
        found.family = AF_INET6;
        public = sk_dns_public6(found.address.hi);
    }
    __u32 n = work->found;
    if (!public) {
        work->private ++;
    } else if (n < SK_DNS_ANSWER_RECORDS) {
        work->address[n & (SK_DNS_ANSWER_RECORDS - 1)] = found;
        work->found = n + 1;
    }
    return 1;
}

/* One parameter of a service, or the next address of a hint (RFC 9460 section 2.2). What stands behind the
 * first fault is not read: whoever takes it all the same finds its addresses closed. */
static int hint_step(__u32 i __attribute__((unused)), struct sk_dns_answer_loop *loop) {
    struct sk_dns_answer *work = loop->work;
    __u32 at = work->hint_at;
    if (work->hint_left) {
        __u32 bytes = work->hint_bytes;
        if (work->hint_left < bytes || !address_keep(loop->skb, work, at, bytes, work->hint_ttl_s)) return 1;
        work->hint_left -= bytes;
        work->hint_at = at + bytes;
        return 0;
    }
    __u8 head[4];
    if (at + sizeof(head) > work->hint_end ||
        bpf_skb_load_bytes(loop->skb, work->base + at, head, sizeof(head)))
        return 1;
    __u32 key = sk_dns_u16(head), len = sk_dns_u16(head + 2);
    at += sizeof(head);
    if (at + len > work->hint_end) return 1;
    work->hint_at = at;
    work->hint_bytes = key == SK_DNS_SVCB_IPV4HINT ? 4 : 16;
    if (key == SK_DNS_SVCB_IPV4HINT || key == SK_DNS_SVCB_IPV6HINT)
        work->hint_left = len;
    else
        work->hint_at = at + len;
    return 0;
}

/* The hints of an HTTPS or SVCB record: an enum sk_dns_answer_end. */
__noinline int hints_keep(struct __sk_buff *skb, struct sk_dns_answer *work, __u32 data, __u32 len,
                          __u32 ttl_s) {
    if (!skb || !work) return 0;
    struct sk_dns_answer_loop loop = {.skb = skb, .work = work};
    if (++work->names > SK_DNS_ANSWER_NAMES) return SK_DNS_ANSWER_LARGE;
    /* A priority, and the name of the service. */
    if (len < 3 || !answer_name(skb, work, data + 2) || work->after > data + len) return SK_DNS_ANSWER_BROKEN;
    work->hint_at = work->after;
    work->hint_end = data + len;
    work->hint_left = 0;
    work->hint_ttl_s = ttl_s;
    bpf_loop(SK_DNS_HINT_STEPS, hint_step, &loop, 0);
    return SK_DNS_ANSWER_PINNED;
}

static __always_inline bool type_hints(__u32 type) {
    return type == SK_DNS_TYPE_HTTPS || type == SK_DNS_TYPE_SVCB;
}

/* What a record of the type that was asked for says. */
static __always_inline int data_keep(struct __sk_buff *skb, struct sk_dns_answer *work, __u32 data, __u32 len,
                                     __u32 ttl_s) {
    if (type_hints(work->type)) return hints_keep(skb, work, data, len, ttl_s);
    if (len != (work->type == SK_DNS_TYPE_A ? 4 : 16)) return SK_DNS_ANSWER_BROKEN;
    return address_keep(skb, work, data, len, ttl_s) ? SK_DNS_ANSWER_PINNED : SK_DNS_ANSWER_BROKEN;
}

/* From here on the records of another name count. */
static __always_inline int alias_follow(struct __sk_buff *skb, struct sk_dns_answer *work, __u32 data,
                                        __u32 len, __u32 ttl_s) {
    if (++work->chain > SK_DNS_ANSWER_CHAIN) return SK_DNS_ANSWER_BROKEN;
    if (++work->names > SK_DNS_ANSWER_NAMES) return SK_DNS_ANSWER_LARGE;
    if (!answer_name(skb, work, data) || work->after != data + len) return SK_DNS_ANSWER_BROKEN;
    work->target = work->hash;
    work->target_at = data;
    if (ttl_s < work->ttl_s) work->ttl_s = ttl_s;
    return SK_DNS_ANSWER_PINNED;
}

static int record_step(__u32 i __attribute__((unused)), struct sk_dns_answer_loop *loop) {
    struct sk_dns_answer *work = loop->work;
    struct __sk_buff *skb = loop->skb;
    if (!work->left) return 1;
    work->left--;
    int ours = owner_match(skb, work, work->at);
    if (ours < 0) {
        work->end = -ours;
        return 1;
    }
    __u32 at = work->after;
    __u8 head[10];
    work->end = SK_DNS_ANSWER_BROKEN;
    if (at + 10 > work->len || bpf_skb_load_bytes(skb, work->base + at, head, 10)) return 1;
    __u32 type = sk_dns_u16(head), ttl_s = sk_dns_ttl(sk_dns_u32(head + 4)), len = sk_dns_u16(head + 8);
    at += 10;
    if (at + len > work->len) return 1;
    work->at = at + len;
    work->end = SK_DNS_ANSWER_PINNED;
    if (!ours || sk_dns_u16(head + 2) != SK_DNS_CLASS_IN) return 0;
    if (type == work->type) work->end = data_keep(skb, work, at, len, ttl_s);
    if (type == SK_DNS_TYPE_CNAME && !work->found && !work->private)
        work->end = alias_follow(skb, work, at, len, ttl_s);
    return work->end != SK_DNS_ANSWER_PINNED;
}

/* The answer section; what it has for the name lies in `address`. */
__noinline int answer_records(struct __sk_buff *skb, struct sk_dns_answer *work) {
    if (!skb || !work) return 0;
    struct sk_dns_answer_loop loop = {.skb = skb, .work = work};
    if (work->head.answers > SK_DNS_ANSWER_RECORDS) return SK_DNS_ANSWER_LARGE;
    work->left = work->head.answers;
    work->target_at = SK_DNS_HEAD_BYTES;
    work->target = work->name;
    work->chain = work->found = work->private = work->names = 0;
    work->ttl_s = SK_DNS_PIN_MOST_SECONDS;
    work->end = SK_DNS_ANSWER_PINNED;
    bpf_loop(SK_DNS_ANSWER_RECORDS, record_step, &loop, 0);
    if (work->end != SK_DNS_ANSWER_PINNED) return work->end;
    if (!work->found) return work->private ? SK_DNS_ANSWER_SCOPE : SK_DNS_ANSWER_EMPTY;
    return SK_DNS_ANSWER_PINNED;
}

/* Did it come from where the query went? That is the packet's address, or the resolver's where the network
 * gave the packet another on its way out and back. */
static __always_inline bool from_there(const struct sk_dns_answer *work, const struct sk_dns_ask *ask,
                                       const struct sk_dns_binding *binding) {
    const struct sk_dns_from *from = &work->from;
    if (from->port == SK_DNS_PORT && resolver_of(binding, &from->address)) return true;
    return from->port == ask->port && from->family == ask->family && from->address.hi == ask->to.hi &&
           from->address.lo == ask->to.lo;
}

/* The query that the answer is for; it is answered from here on. */
static __always_inline int ask_find(struct sk_dns_answer *work, struct sk_dns_sock *sock) {
    int end = SK_DNS_ANSWER_UNASKED;
    for (__u32 i = 0; i < SK_DNS_ASKS; i++) {
        struct sk_dns_ask *ask = &sock->ask[i];
        __u64 asked_ns = *(volatile __u64 *)&ask->asked_ns;
        if (!asked_ns || ask->id != work->head.id || ask->type != work->type || ask->name != work->name)
            continue;
        if (work->now - asked_ns > SK_DNS_ASK_NS) continue;
        __u32 slot = ask->owner >> 32, generation = ask->owner;
        struct sk_dns_binding *binding = answers_of(slot, generation);
        if (!binding) continue;
        if (!from_there(work, ask, binding)) {
            end = SK_DNS_ANSWER_SOURCE;
            continue;
        }
        if (__sync_val_compare_and_swap(&ask->asked_ns, asked_ns, 0) != asked_ns) continue;
        work->slot = slot;
        work->generation = generation;
        return SK_DNS_ANSWER_PINNED;
    }
    return end;
}

__noinline int answer_read(struct __sk_buff *skb, struct sk_dns_answer *work, struct sk_dns_sock *sock) {
    if (!skb || !work || !sock) return 0;
    __u8 bytes[SK_DNS_HEAD_BYTES], kind[4];
    struct sk_dns_head *head = &work->head;
    if (work->len < SK_DNS_HEAD_BYTES || bpf_skb_load_bytes(skb, work->base, bytes, sizeof(bytes)))
        return SK_DNS_ANSWER_FORM;
    sk_dns_read_head(bytes, sizeof(bytes), head);
    if (!(head->flags & SK_DNS_QR) || head->flags & SK_DNS_OPCODE || head->questions != 1)
        return SK_DNS_ANSWER_FORM;
    work->match = 0;
    if (!answer_name(skb, work, SK_DNS_HEAD_BYTES)) return SK_DNS_ANSWER_FORM;
    __u32 at = work->after;
    if (at + 4 > work->len || bpf_skb_load_bytes(skb, work->base + at, kind, 4)) return SK_DNS_ANSWER_FORM;
    if (sk_dns_u16(kind + 2) != SK_DNS_CLASS_IN) return SK_DNS_ANSWER_FORM;
    work->type = sk_dns_u16(kind);
    work->name = work->hash;
    work->at = at + 4;
    int end = ask_find(work, sock);
    if (end) return end;
    if (head->flags & SK_DNS_TC) return SK_DNS_ANSWER_TRUNCATED;
    if (head->flags & SK_DNS_RCODE || !head->answers) return SK_DNS_ANSWER_EMPTY;
    if (work->type != SK_DNS_TYPE_A && work->type != SK_DNS_TYPE_AAAA && !type_hints(work->type))
        return SK_DNS_ANSWER_EMPTY;
    /* Once more, for the rules: only now it is known that somebody asked. */
    work->match = 1;
    work->rules = 0;
    answer_name(skb, work, SK_DNS_HEAD_BYTES);
    work->match = 0;
    if (!work->rules) return SK_DNS_ANSWER_NOT_LISTED;
    return answer_records(skb, work);
}

/* A place in the sandbox's ring: one that is free, or whose pin is over. */
static __always_inline bool pin_place(struct sk_dns_binding *binding, struct sk_dns_answer *work,
                                      const struct sk_dns_pin_key *key) {
    for (int i = 0; i < SK_DNS_PIN_TRIES; i++) {
        __u32 place = __sync_fetch_and_add(&binding->pinned, 1) & (SK_DNS_PINS - 1);
        struct sk_dns_pinned_key at = {.slot = work->slot, .generation = work->generation, .place = place};
        struct sk_dns_pin_key *old = bpf_map_lookup_elem(&dns_places, &at);
        if (!old) return !bpf_map_update_elem(&dns_places, &at, key, BPF_NOEXIST);
        struct sk_dns_pin *pin = bpf_map_lookup_elem(&dns_pins, old);
        if (pin && pin->until_ns > work->now) continue;
        bpf_map_delete_elem(&dns_pins, old); /* it may be gone already */
        return !bpf_map_update_elem(&dns_places, &at, key, BPF_ANY);
    }
    return false;
}

/* `key` until `until_ns`. */
__noinline int pin_make(struct sk_dns_answer *work) {
    if (!work) return 0;
    struct sk_dns_pin_key key = work->key; /* 6.1 takes keys from the stack and from maps alone */
    struct sk_dns_pin *pin = bpf_map_lookup_elem(&dns_pins, &key);
    if (pin) {
        if (pin->until_ns < work->until_ns) pin->until_ns = work->until_ns;
        if (!work->tls && pin->plain_until_ns < work->until_ns) pin->plain_until_ns = work->until_ns;
        return 1;
    }
    struct sk_dns_binding *binding = answers_of(work->slot, work->generation);
    if (!binding || !pin_place(binding, work, &key)) return 0;
    struct sk_dns_pin fresh = {.until_ns = work->until_ns, .plain_until_ns = work->tls ? 0 : work->until_ns};
    return !bpf_map_update_elem(&dns_pins, &key, &fresh, BPF_ANY);
}

struct sk_dns_port_loop {
    struct sk_dns_answer *work;
    struct sk_dns_port_list *list;
};

static int port_step(__u32 i, struct sk_dns_port_loop *loop) {
    if (i >= loop->list->count || i >= SK_DNS_RULE_PORTS) return 1;
    loop->work->key.port = loop->list->port[i & (SK_DNS_RULE_PORTS - 1)];
    loop->work->tls = loop->list->tls & (1ULL << (i & (SK_DNS_RULE_PORTS - 1)));
    if (pin_make(loop->work)) return 0;
    loop->work->end = SK_DNS_ANSWER_NO_ROOM;
    return 1;
}

static int address_step(__u32 i, struct sk_dns_answer_loop *loop) {
    struct sk_dns_answer *work = loop->work;
    if (i >= work->found) return 1;
    const struct sk_dns_found *found = &work->address[i & (SK_DNS_ANSWER_RECORDS - 1)];
    __u64 ttl_s = found->ttl_s < work->ttl_s ? found->ttl_s : work->ttl_s;
    if (ttl_s < SK_DNS_PIN_LEAST_SECONDS) ttl_s = SK_DNS_PIN_LEAST_SECONDS;
    work->until_ns = work->now + (ttl_s + SK_DNS_PIN_GRACE_SECONDS) * 1000000000ULL;
    work->key.hi = found->address.hi;
    work->key.lo = found->address.lo;
    work->key.family = found->family;
    for (__u32 n = 0; n < SK_DNS_ANSWER_RULES; n++) {
        if (n >= work->rules) break;
        struct sk_dns_rule_key key = {
            .zone = work->rule[n], .slot = work->slot, .generation = work->generation};
        struct sk_dns_ports *ports = bpf_map_lookup_elem(&dns_ports, &key);
        if (!ports) continue;
        struct sk_dns_port_loop each = {.work = work, .list = work->exact[n] ? &ports->exact : &ports->below};
        bpf_loop(SK_DNS_RULE_PORTS, port_step, &each, 0);
    }
    return work->end != SK_DNS_ANSWER_PINNED;
}

__noinline int answer_pin(struct sk_dns_answer *work) {
    if (!work) return 0;
    struct sk_dns_answer_loop loop = {.work = work};
    work->key.slot = work->slot;
    work->key.generation = work->generation;
    work->end = SK_DNS_ANSWER_PINNED;
    bpf_loop(SK_DNS_ANSWER_RECORDS, address_step, &loop, 0);
    return work->end;
}
