/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Form, zone and charge of one query. Each step is a function of its own, so that the verifier goes
 * through it once. */
#include "bpf/lib/dns.h"

/* What the lists say of one zone above the name: the rules of the Public Suffix List, as
 * userspace/dns/suffix_list.cc reads them. `labels` of the zone, 1 for the top-level domain. */
static __always_inline void zone_known(struct sk_dns_work *work, __u32 labels) {
    __u64 hash = work->hash;
    __u32 *value = bpf_map_lookup_elem(&dns_known, &hash);
    if (labels == 1) work->suffix = work->icann = 1; /* the implicit rule "*" */
    if (!value) return;
    __u32 flags = *value, tier = flags >> SK_DNS_TIER_SHIFT;
    if (tier) work->tier = tier - 1;
    if (work->known_end) return;
    if (flags & SK_DNS_EXCEPTION) {
        work->suffix = work->icann = labels - 1;
        work->known_end = 1;
        return;
    }
    if (flags & SK_DNS_SUFFIX_ICANN) work->suffix = work->icann = labels;
    if (flags & SK_DNS_SUFFIX_PRIVATE) work->suffix = labels;
    if (labels == work->labels) return;
    if (flags & SK_DNS_WILDCARD_ICANN) work->suffix = work->icann = labels + 1;
    if (flags & SK_DNS_WILDCARD_PRIVATE) work->suffix = labels + 1;
}

static __always_inline void zone_rule(struct sk_dns_work *work, __u32 labels) {
    struct sk_dns_rule_key key = {.zone = work->hash, .slot = work->slot, .generation = work->generation};
    struct sk_dns_rule *rule = bpf_map_lookup_elem(&dns_rules, &key);
    if (!rule) return;
    __u32 here = labels == work->labels ? SK_DNS_RULE_EXACT : SK_DNS_RULE_BELOW;
    work->rules |= rule->flags & (here | here << SK_DNS_RULE_TLS_SHIFT);
    if (!(rule->flags & SK_DNS_RULE_TIER)) return;
    work->tier = rule->tier;
    work->granted = rule->budget;
}

struct sk_dns_loop {
    struct sk_dns_work *work;
    __u32 rules;
};

/* The (i+1)th label from the right. */
static int zone_step(__u32 i, struct sk_dns_loop *loop) {
    struct sk_dns_work *work = loop->work;
    __u32 labels = work->labels;
    if (i >= labels) return 1;
    __u32 start = work->start[(labels - 1 - i) & (SK_DNS_MAX_LABELS - 1)] & 0xff;
    /* Words are read whole, up to 64 bytes beyond the name's array: there the rest of the work lies. */
    const __u8 *label = work->query.question.name.wire + start;
    work->hash = sk_dns_zone_label((const void *)&keys, work->hash, label + 1, *label & 63);
    if (i >= SK_DNS_ZONE_LABELS) {
        if (loop->rules && i + 1 == labels) zone_rule(work, labels);
        return 0;
    }
    work->hashes[(i + 1) & (SK_DNS_HASHES - 1)] = work->hash;
    zone_known(work, i + 1);
    work->tiers[(i + 1) & (SK_DNS_HASHES - 1)] = work->tier;
    if (loop->rules) zone_rule(work, i + 1);
    return 0;
}

static int label_step(__u32 i, struct sk_dns_loop *loop) {
    struct sk_dns_work *work = loop->work;
    __u32 at = work->walk.pos & 0xff;
    __u32 len = work->query.question.name.wire[at];
    if (!len || i >= SK_DNS_MAX_LABELS - 1) return 1;
    work->start[i & (SK_DNS_MAX_LABELS - 1)] = at;
    work->labels = i + 1;
    work->walk.pos = at + 1 + len;
    return 0;
}

/* A label of a name as most clients write it. Anything else ends the walk: name_step reads it, and says what is wrong. */
static int plain_step(__u32 i, struct sk_dns_loop *loop) {
    struct sk_dns_work *work = loop->work;
    __u32 at = work->walk.pos & 0xff;
    /* Words are read whole, as in zone_step. */
    const __u8 *label = work->query.question.name.wire + at;
    __u32 len = *label;
    work->labels = i;
    if (!len) work->fault = SK_DNS_OK;
    if (!len || len > SK_DNS_LABEL_BYTES || at + len + 2 > SK_DNS_NAME_BYTES || i >= SK_DNS_MAX_LABELS - 1) return 1;
    if (!sk_dns_is_lower_label(label + 1, len)) return 1;
    keep(i);
    work->start[i & (SK_DNS_MAX_LABELS - 1)] = at;
    work->walk.pos = at + 1 + len;
    return 0;
}

static int name_step(__u32 i __attribute__((unused)), struct sk_dns_loop *loop) {
    struct sk_dns_work *work = loop->work;
    struct sk_dns_walk walk = work->walk;
    __u32 len = work->len;
    int fault = SK_DNS_FAULT_NAME_CUT;
    if (len <= SK_DNS_QUERY_BYTES && walk.pos < SK_DNS_QUERY_BYTES)
        fault = sk_dns_name_step(work->msg, len, &walk, &work->query.question.name);
    work->walk = walk;
    work->fault = fault;
    return fault != SK_DNS_MORE;
}

__noinline int dns_labels(struct sk_dns_work *work) {
    if (!work) return 0;
    struct sk_dns_loop loop = {.work = work};
    work->labels = 0;
    work->walk.pos = 0;
    bpf_loop(SK_DNS_MAX_LABELS, label_step, &loop, 0);
    return 0;
}

/* Whether the whole name is of such labels; name, labels and where they begin are set then. */
__noinline int dns_read_plain(struct sk_dns_work *work) {
    if (!work) return 0;
    struct sk_dns_loop loop = {.work = work};
    struct sk_dns_name *name = &work->query.question.name;
    __builtin_memcpy(name->wire, work->msg + SK_DNS_HEAD_BYTES, sizeof(name->wire));
    work->walk.pos = 0;
    work->fault = SK_DNS_MORE;
    bpf_loop(SK_DNS_MAX_LABELS, plain_step, &loop, 0);
    __u32 bytes = (work->walk.pos & 0xff) + 1;
    if (work->fault != SK_DNS_OK || SK_DNS_HEAD_BYTES + bytes > work->len) return 0;
    name->len = bytes;
    name->labels = work->labels;
    work->walk.pos = SK_DNS_HEAD_BYTES + bytes;
    return 1;
}

__noinline int dns_read(struct sk_dns_work *work) {
    if (!work) return 0;
    struct sk_dns_loop loop = {.work = work};
    struct sk_dns_name *name = &work->query.question.name;
    __u32 len = work->len;
    name->len = name->labels = name->hops = name->upper = name->odd = 0;
    work->labels = 0;
    if (len > SK_DNS_QUERY_BYTES) return SK_DNS_FAULT_LONG;
    int fault = sk_dns_read_head(work->msg, len, &work->head);
    if (!fault) fault = sk_dns_check_query_head(&work->head);
    if (fault) return fault;
    if (!dns_read_plain(work)) {
        work->walk.pos = work->walk.lowest = SK_DNS_HEAD_BYTES;
        work->walk.end = work->walk.left = 0;
        work->fault = SK_DNS_FAULT_POINTER_CHAIN;
        bpf_loop(SK_DNS_NAME_STEPS, name_step, &loop, 0);
        if (name->hops || work->fault == SK_DNS_FAULT_POINTER_FORWARD) return SK_DNS_FAULT_POINTER;
        if (work->fault) return work->fault;
        __u32 end = work->walk.pos;
        dns_labels(work);
        work->walk.pos = end;
    }
    __u32 at = work->walk.pos;
    if (at > SK_DNS_QUERY_BYTES) return SK_DNS_FAULT_NAME_CUT;
    return sk_dns_check_query_rest(work->msg, len, at, &work->head, SK_DNS_ALLOW_UPPER, &work->query);
}

static __always_inline void account_add(struct sk_dns_work *work, __u64 key, __u32 labels, __u32 tier) {
    __u32 i = work->accounts & 1;
    work->zone_key[i] = key;
    work->account_tier[i] = tier;
    /* Where the zone begins in the name. That of the root begins at its end. */
    __u32 at = work->query.question.name.len - 1;
    if (labels) at = work->start[(work->labels - labels) & (SK_DNS_MAX_LABELS - 1)];
    work->zone_at[i] = at;
    work->accounts = i + 1;
}

/* The zones that the query is charged to: userspace/dns/meter.cc opens the same. */
__noinline int dns_zones_of(struct sk_dns_work *work, __u32 rules) {
    if (!work) return 0;
    struct sk_dns_loop loop = {.work = work, .rules = rules};
    work->hash = sk_dns_zone_start((const void *)&keys);
    work->hashes[0] = work->hash;
    work->suffix = work->icann = work->known_end = work->rules = work->tier = work->granted = 0;
    work->accounts = 0;
    work->zone_key[1] = 0;
    bpf_loop(SK_DNS_MAX_LABELS, zone_step, &loop, 0);
    __u32 tier = work->tier;
    if (tier == SK_DNS_TIER_INTERNAL || tier == SK_DNS_TIER_PROVIDER) return 0;
    if (tier == SK_DNS_TIER_REVERSE) {
        account_add(work, SK_DNS_ZONE_REVERSE, 2, tier);
        return 0;
    }
    /* One label below the suffix; of a name that is a suffix itself that above it, or the root. */
    __u32 icann = work->labels > work->icann ? work->icann + 1 : 0;
    __u32 zone = work->labels > work->suffix ? work->suffix + 1 : icann;
    if (zone > SK_DNS_ZONE_LABELS) zone = 0;
    account_add(work, sk_dns_zone_key_of(work->hashes[zone & (SK_DNS_HASHES - 1)]), zone, tier);
    if (icann && icann < zone && tier != SK_DNS_TIER_GRANTED)
        account_add(work, sk_dns_zone_key_of(work->hashes[icann & (SK_DNS_HASHES - 1)]), icann,
                    work->tiers[icann & (SK_DNS_HASHES - 1)]);
    return 0;
}

static __always_inline struct sk_dns_zone *zone_record(struct sk_dns_budget *budget, struct sk_dns_zone_key *key, __u32 tier) {
    struct sk_dns_zone *zone = bpf_map_lookup_elem(&dns_zones, key);
    if (zone) return zone;
    __u32 room = tier == SK_DNS_TIER_UNRANKED ? SK_DNS_BUDGET_UNRANKED : SK_DNS_BUDGET_ZONES;
    if (key->zone > SK_DNS_ZONE_REVERSE && budget->zones >= room) {
        key->zone = SK_DNS_ZONE_OVERFLOW;
        zone = bpf_map_lookup_elem(&dns_zones, key);
        if (zone) return zone;
    }
    struct sk_dns_zone fresh = {};
    if (!bpf_map_update_elem(&dns_zones, key, &fresh, BPF_NOEXIST)) __sync_fetch_and_add(&budget->zones, 1);
    return bpf_map_lookup_elem(&dns_zones, key);
}

static __always_inline __u32 limit_of(const struct sk_dns_budget *budget, __u32 tier, __u32 granted) {
    if (tier == SK_DNS_TIER_RANKED) return budget->ranked_budget;
    if (tier == SK_DNS_TIER_GRANTED) return granted;
    if (tier == SK_DNS_TIER_REVERSE) return budget->reverse_budget;
    return budget->zone_budget;
}

/* A ranked zone's budget is of a day. */
static __always_inline void zone_day(struct sk_dns_zone *zone, const struct sk_dns_budget *budget, __u64 now) {
    __u16 day = (now - budget->epoch_ns) / (24ULL * 3600 * 1000000000);
    if (day <= zone->day) return;
    zone->day = day;
    zone->spent = 0;
    zone->blocked = 0;
}

#define SPEND_TRIES 4 /* against queries on other CPUs */

static __always_inline bool spend(__u32 *spent, __u32 limit, __u32 charge) {
    if (limit == SK_DNS_UNLIMITED) return true;
    if (charge > limit) return false;
    for (int i = 0; i < SPEND_TRIES; i++) {
        __u32 was = *(volatile __u32 *)spent;
        if (was > limit - charge) return false;
        if (__sync_val_compare_and_swap(spent, was, was + charge) == was) return true;
    }
    /* Taken before it is known to suffice: two queries at once cannot both have the last of it. */
    __u32 before = __sync_fetch_and_add(spent, charge);
    if (before <= limit - charge) return true;
    __sync_fetch_and_add(spent, -charge);
    return false;
}

static __always_inline void unspend(__u32 *spent, __u32 limit, __u32 charge) {
    if (limit != SK_DNS_UNLIMITED) __sync_fetch_and_add(spent, -charge);
}

static __always_inline bool name_seen(struct sk_dns_work *work, __u32 account, __u32 budget, __u32 generation) {
    struct sk_dns_name_key key = {.name = work->hash, .budget = budget, .type = work->query.question.type,
                                  .account = account, .generation = generation};
    /* Case is more to say than the hash can tell. */
    return !work->query.question.name.upper && bpf_map_lookup_elem(&dns_names, &key);
}

static __always_inline void name_keep(struct sk_dns_work *work, __u32 account, __u32 budget, __u32 generation,
                                      struct sk_dns_zone *zone) {
    struct sk_dns_name_key key = {.name = work->hash, .budget = budget, .type = work->query.question.type,
                                  .account = account, .generation = generation};
    __u32 one = 1;
    if (work->query.question.name.upper || bpf_map_update_elem(&dns_names, &key, &one, BPF_NOEXIST)) return;
    __sync_fetch_and_add(&zone->names, 1);
}

/* Their branches, multiplied by those of their callers, are more than the verifier goes through. */
__noinline __u32 dns_charge_gap(__u64 gap_ns) { return sk_dns_charge_gap(gap_ns); }
__noinline __u32 dns_charge_repeat(__u32 names) { return sk_dns_charge_repeat(names); }
__noinline __u32 dns_charge_new(__u32 chars, __u32 upper, __u32 type) { return sk_dns_charge_new(chars, upper, type); }

static __always_inline __u32 worst_case(struct sk_dns_work *work, __u32 i, bool seen, const struct sk_dns_zone *zone,
                                        const struct sk_dns_budget *budget, __u64 zone_key, __u64 now) {
    __u64 last = zone->last_ns ? zone->last_ns : budget->epoch_ns;
    __u32 gap = dns_charge_gap(now > last ? now - last : 0);
    if (seen) return dns_charge_repeat(zone->names) + gap;
    __u32 at = work->zone_at[i & 1];
    /* A zone without a record of its own says itself with each name. */
    if (zone_key == SK_DNS_ZONE_OVERFLOW || at > SK_DNS_NAME_BYTES) at = work->query.question.name.len - 1;
    return dns_charge_new(at ? at - 1 : 0, work->query.question.name.upper, work->query.question.type) + gap;
}

__noinline int dns_charge(struct sk_dns_work *work, __u32 number) {
    if (!work) return 0;
    struct sk_dns_budget *budget = bpf_map_lookup_elem(&dns_budgets, &number);
    if (!budget) return SK_CODE_DNS_NOT_ALLOWED;
    const __u64 now = bpf_ktime_get_boot_ns();
    const __u32 generation = budget->generation;
    work->charged[0] = work->charged[1] = work->charged_total = work->spent = work->limit = 0;
    if (!work->accounts) return SK_CODE_OK;
    struct sk_dns_zone_key key[2] = {{.zone = work->zone_key[0], .budget = number, .generation = generation},
                                     {.zone = work->zone_key[1], .budget = number, .generation = generation}};
    struct sk_dns_zone *zone = zone_record(budget, &key[0], work->account_tier[0]);
    struct sk_dns_zone *above = work->accounts > 1 ? zone_record(budget, &key[1], work->account_tier[1]) : NULL;
    if (!zone || (work->accounts > 1 && !above)) return SK_CODE_DNS_NO_ROOM;
    work->zone_key[0] = key[0].zone;
    work->zone_key[1] = key[1].zone;
    if (key[0].zone == SK_DNS_ZONE_OVERFLOW) work->account_tier[0] = SK_DNS_TIER_UNRANKED;
    __u32 tier = work->account_tier[0];
    if (tier == SK_DNS_TIER_RANKED) zone_day(zone, budget, now);
    __u32 tier_above = key[1].zone == SK_DNS_ZONE_OVERFLOW ? SK_DNS_TIER_UNRANKED : work->account_tier[1];
    if (above && tier_above == SK_DNS_TIER_RANKED) zone_day(above, budget, now);
    __u32 limit = limit_of(budget, tier, work->granted), limit_above = limit_of(budget, tier_above, work->granted);
    work->limit = limit;
    work->spent = zone->spent;
    if (zone->blocked || (above && above->blocked)) return SK_CODE_DNS_ZONE_BLOCKED;
    if (tier != SK_DNS_TIER_GRANTED && work->zone_at[0] > SK_DNS_SUBDOMAIN_CHARS + 1) return SK_CODE_DNS_NAME_LONG;

    bool seen = name_seen(work, 0, number, generation), seen_above = above && name_seen(work, 1, number, generation);
    __u32 charge = worst_case(work, 0, seen, zone, budget, key[0].zone, now);
    __u32 charge_above = above ? worst_case(work, 1, seen_above, above, budget, key[1].zone, now) : 0;
    __u32 of_total = 0;
    if (tier == SK_DNS_TIER_UNRANKED) {
        of_total = charge;
        /* Which zone it is, at its first query. */
        if (!zone->last_ns && key[0].zone != SK_DNS_ZONE_OVERFLOW)
            of_total += dns_charge_new(work->query.question.name.len - work->zone_at[0], 0, SK_DNS_TYPE_A);
    }
    if (!spend(&zone->spent, limit, charge)) {
        zone->blocked = 1;
        return SK_CODE_DNS_ZONE_BUDGET;
    }
    if (above && !spend(&above->spent, limit_above, charge_above)) {
        above->blocked = 1;
        unspend(&zone->spent, limit, charge);
        return SK_CODE_DNS_ZONE_BUDGET;
    }
    if (!spend(&budget->total, budget->total_budget, of_total)) {
        unspend(&zone->spent, limit, charge);
        if (above) unspend(&above->spent, limit_above, charge_above);
        return SK_CODE_DNS_TOTAL_BUDGET;
    }
    zone->last_ns = now;
    if (!seen) name_keep(work, 0, number, generation, zone);
    if (above) {
        above->last_ns = now;
        if (!seen_above) name_keep(work, 1, number, generation, above);
    }
    work->charged[0] = charge;
    work->charged[1] = charge_above;
    work->charged_total = of_total;
    work->spent = zone->spent;
    return SK_CODE_OK;
}
