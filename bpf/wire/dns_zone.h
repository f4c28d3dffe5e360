/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Zones and budgets as the kernel keeps them; docs/dns.md says what they are for.
 *
 * A zone is known by a hash, label by label from the right: that of "a.example.com" starts as that of
 * "example.com" does, so one walk over a name meets all zones above it. */
#pragma once
#include "bpf/wire/load.h"
#include "bpf/wire/dns_budget.h"
#include "bpf/wire/hash.h"

/* Zones of lists and policies have at most so many labels: the Public Suffix List needs 6, and each
 * is a look-up for every query. */
#define SK_DNS_ZONE_LABELS 8
#define SK_DNS_MAX_LABELS 128
/* Resolvers pinned for one sandbox: resolv.conf takes 3 (MAXNS). */
#define SK_DNS_RESOLVERS 4
/* Budget ids at once: one for each sandbox. Id 0 is none. */
#define SK_DNS_BUDGETS 4097
/* Zones of one budget id with a record of their own: at some 90 bytes each 14 KiB. The others share one.
 * Those of no list have fewer, so that a flood of them leaves room for the others. */
#define SK_DNS_BUDGET_ZONES 160
#define SK_DNS_BUDGET_UNRANKED 128
/* Key of that one, and of both trees of reverse look-ups. */
#define SK_DNS_ZONE_OVERFLOW 1
#define SK_DNS_ZONE_REVERSE 2
#define SK_DNS_UNLIMITED 0xffffffffU

/* Value of map `dns_known`, by zone hash: what suffix list and lists of zones say of it. */
#define SK_DNS_SUFFIX_ICANN 0x01U
#define SK_DNS_SUFFIX_PRIVATE 0x02U
#define SK_DNS_WILDCARD_ICANN 0x04U
#define SK_DNS_WILDCARD_PRIVATE 0x08U
#define SK_DNS_EXCEPTION 0x10U
#define SK_DNS_TIER_SHIFT 8 /* enum sk_dns_tier + 1; 0 = no list has it */

#define SK_DNS_TIERS(X)          \
    X(0, UNRANKED, "unranked")   \
    X(1, RANKED, "ranked")       \
    X(2, GRANTED, "granted")     \
    X(3, INTERNAL, "internal")   \
    X(4, PROVIDER, "provider")   \
    X(5, REVERSE, "reverse")

enum sk_dns_tier {
#define X(number, NAME, text) SK_DNS_TIER_##NAME = number,
    SK_DNS_TIERS(X)
#undef X
};

/* Map `dns_rules`: what the policy of a sandbox says of a name, and of all names below it. */
struct sk_dns_rule_key {
    __u64 zone;
    __u32 slot;
    __u32 generation;
};
#define SK_DNS_RULE_EXACT 0x01U
#define SK_DNS_RULE_BELOW 0x02U
#define SK_DNS_RULE_TIER 0x04U /* `tier` and `budget` hold from here down */
/* As EXACT and BELOW, for a server name of TLS: a rule with `tls_name: strict`. */
#define SK_DNS_RULE_TLS_SHIFT 3
#define SK_DNS_RULE_TLS_EXACT (SK_DNS_RULE_EXACT << SK_DNS_RULE_TLS_SHIFT)
#define SK_DNS_RULE_TLS_BELOW (SK_DNS_RULE_BELOW << SK_DNS_RULE_TLS_SHIFT)
struct sk_dns_rule {
    __u32 flags;
    __u32 tier;
    __u32 budget; /* sixteenths of a bit */
    __u32 pad;
};

/* By the policy's dns.mode. */
enum sk_dns_mode {
    SK_DNS_CLOSED = 0,    /* nothing is asked */
    SK_DNS_ALLOWLIST = 1, /* names with a rule, metered */
    SK_DNS_OPEN = 2,      /* all names, metered */
    SK_DNS_OBSERVE = 3,   /* as open, and nothing is refused */
};

struct sk_dns_server {
    __u64 hi, lo; /* as in struct sk_address: IPv4 in lo, host order */
};

/* Map `dns_slots`, by slot. Of another generation than the slot's: closed. */
struct sk_dns_binding {
    __u32 generation;
    __u32 budget; /* index in `dns_budgets` */
    __u8 mode;    /* enum sk_dns_mode */
    __u8 servers;
    __u8 tcp;     /* servers are the agent's stub, which meters what comes by TCP */
    __u8 rules;   /* there are entries in `dns_rules` */
    __u8 answers; /* no stub: the kernel reads what the servers answer, and pins (bpf/wire/dns_answer.h) */
    __u8 pad[3];
    __u32 pinned; /* the kernel's: next place in `dns_places` */
    __u32 pad2;
    struct sk_dns_server server[SK_DNS_RESOLVERS]; /* port 53 */
};

/* Map `dns_budgets`. Amounts are in sixteenths of a bit. */
struct sk_dns_budget {
    __u64 epoch_ns; /* boot time of its beginning: where the first pause of a zone starts */
    __u32 generation;
    __u32 zones; /* records in `dns_zones` */
    __u32 total; /* spent by all unranked zones */
    __u32 total_budget;
    __u32 zone_budget;
    __u32 ranked_budget; /* a day */
    __u32 reverse_budget;
    __u32 pad;
};

/* Map `dns_zones`. */
struct sk_dns_zone_key {
    __u64 zone;
    __u32 budget;
    __u32 generation; /* of the budget */
};
struct sk_dns_zone {
    __u64 last_ns; /* boot time of the last query that passed; 0 = none has */
    __u32 spent;
    __u32 names; /* (name, type) pairs seen */
    __u16 day;   /* of a ranked zone, since the epoch: which one `spent` is of */
    __u8 blocked;
    __u8 pad[5];
};

/* Map `dns_names`: a (name, type) that was asked. Evicted, it is charged as a new one. */
struct sk_dns_name_key {
    __u64 name; /* the zone hash of the whole name */
    __u32 budget;
    __u16 type;
    __u16 account; /* 0 the zone, 1 that of the provider above it */
    __u32 generation;
    __u32 pad;
};

/* Map `dns_pins`: an address that answered a name which the policy lists. */
struct sk_dns_pin_key {
    __u64 hi, lo; /* as in struct sk_dns_server */
    __u32 slot;
    __u32 generation;
    __u32 port; /* 0 = any */
    __u32 family;
};
struct sk_dns_pin {
    __u64 until_ns;       /* boot time */
    __u64 plain_until_ns; /* until then whatever is said there; after that by TLS, for a listed name */
};

/* Eight characters of a name in lower case. Only letters, digits, hyphen and underscore come here: of
 * those the underscore alone changes otherwise, and into what is none of them. */
SK_INLINE __u64 sk_dns_fold(__u64 word) { return word | 0x2020202020202020ULL; }

SK_INLINE __u64 sk_dns_zone_start(const struct sk_hash_keys *keys) { return sk_key_start(keys, SK_KEY_DNS); }

/* The hash of `label`.zone. `label` needs 64 readable bytes, of which `len` (1..63) count. */
SK_INLINE __u64 sk_dns_zone_label(const struct sk_hash_keys *keys, __u64 zone, const __u8 *label, __u32 len) {
    __u64 h = sk_hash_word(keys, zone, len);
    for (__u32 i = 0; i < 8; i++) {
        if (8 * i >= len) break;
        __u64 word = sk_dns_fold(sk_load8(label + 8 * i));
        const __u32 left = len - 8 * i;
        if (left < 8) word &= ((__u64)1 << (8 * left)) - 1;
        h = sk_hash_word(keys, h, word);
    }
    return h;
}

/* Moves 1 and 2 out of the way of the two keys above. */
SK_INLINE __u64 sk_dns_zone_key_of(__u64 hash) { return hash > SK_DNS_ZONE_REVERSE ? hash : hash + 4; }
