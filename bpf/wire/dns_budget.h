/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What a query is charged before anybody knows what it really says: the worst case.
 *
 * Unit: 1/16 bit. The charges form a code: over all queries that can follow one another,
 * 2^-charge sums to at most 1 (userspace/dns/charge_test.cc adds it up), so no sender, whatever
 * its encoding, gets more bits to the zone's name server than it was charged for. User space
 * refunds the difference to the true code length, which belongs to the same sum. */
#pragma once
#include "bpf/wire/dns_message.h"

#define SK_DNS_BIT 16u /* one bit in units of a charge */
#define SK_DNS_BYTE (8 * SK_DNS_BIT)

/* 38 letters, digits, hyphen, underscore, and dots: 5.285 bits a character. */
#define SK_DNS_CHARGE_CHAR 85u
/* With upper case 64 of them: 6.01 bits. */
#define SK_DNS_CHARGE_CHAR_UPPER 101u
/* How many characters there are, and which code this is: 6.5 bits a name. */
#define SK_DNS_CHARGE_NAME 104u
/* The type: A and AAAA 1.75 bits, those of sk_dns_type 5.5, the other 65,000 20 bits. */
#define SK_DNS_CHARGE_TYPE_USUAL 28u
#define SK_DNS_CHARGE_TYPE_LISTED 88u
#define SK_DNS_CHARGE_TYPE_OTHER 320u
/* A name seen before says which of them it is, and that it is one. */
#define SK_DNS_CHARGE_REPEAT (8 * SK_DNS_BIT)
#define SK_DNS_CHARGE_REPEAT_CLASS (4 * SK_DNS_BIT)

/* Longest subdomain, dots included, for a zone without a grant: 97 could hold 64 bytes. */
#define SK_DNS_SUBDOMAIN_CHARS 96u

/* Moments are told apart to 17 ms: what is finer is lost on the way through a resolver. A shift,
 * as a BPF program divides slowly. */
#define SK_DNS_QUANTUM_SHIFT 24
/* Pauses of [2^k, 2^(k+1)) quanta form class k; those shorter than a quantum are one class. */
#define SK_DNS_GAP_CLASSES 15u
#define SK_DNS_CHARGE_GAP_BURST (1 * SK_DNS_BIT)
#define SK_DNS_CHARGE_GAP_CLASS (5 * SK_DNS_BIT)

/* Smallest k with 2^k >= n; 0 for n = 0. */
SK_INLINE __u32 sk_dns_ceil_log2(__u32 n) {
    __u32 bits = 0;
    for (int i = 0; i < 32; i++) {
        if (((__u64)1 << bits) >= n) break;
        bits++;
    }
    return bits;
}

SK_INLINE __u32 sk_dns_floor_log2(__u64 n) {
    __u32 bits = 0;
    for (int i = 32; i; i >>= 1) {
        if (n >> i) {
            n >>= i;
            bits += (__u32)i;
        }
    }
    return bits;
}

SK_INLINE __u32 sk_dns_charge_type(__u32 type) {
    switch (type) {
        case SK_DNS_TYPE_A:
        case SK_DNS_TYPE_AAAA:
            return SK_DNS_CHARGE_TYPE_USUAL;
        case SK_DNS_TYPE_NS:
        case SK_DNS_TYPE_CNAME:
        case SK_DNS_TYPE_SOA:
        case SK_DNS_TYPE_NULL:
        case SK_DNS_TYPE_PTR:
        case SK_DNS_TYPE_MX:
        case SK_DNS_TYPE_TXT:
        case SK_DNS_TYPE_KEY:
        case SK_DNS_TYPE_SRV:
        case SK_DNS_TYPE_NAPTR:
        case SK_DNS_TYPE_SVCB:
        case SK_DNS_TYPE_HTTPS:
        case SK_DNS_TYPE_ANY:
        case SK_DNS_TYPE_CAA:
            return SK_DNS_CHARGE_TYPE_LISTED;
        default:
            return SK_DNS_CHARGE_TYPE_OTHER;
    }
}

/* A (name, type) not seen before under its zone. `chars` counts the subdomain, dots included,
 * without the dot before the zone; 0 for the zone itself. */
SK_INLINE __u32 sk_dns_charge_new(__u32 chars, int upper, __u32 type) {
    return SK_DNS_CHARGE_NAME + sk_dns_charge_type(type) +
           chars * (upper ? SK_DNS_CHARGE_CHAR_UPPER : SK_DNS_CHARGE_CHAR);
}

/* One of `names` (name, type) pairs seen before. */
SK_INLINE __u32 sk_dns_charge_repeat(__u32 names) {
    const __u32 which = sk_dns_ceil_log2(names) * SK_DNS_BIT + SK_DNS_CHARGE_REPEAT_CLASS;
    return which > SK_DNS_CHARGE_REPEAT ? which : SK_DNS_CHARGE_REPEAT;
}

/* What the moment says, given the time of the zone's last query that was sent on. Added to either
 * of the charges above. Longer pauses name one moment of more, however slow the sender. */
SK_INLINE __u32 sk_dns_charge_gap(__u64 gap_ns) {
    const __u64 quanta = gap_ns >> SK_DNS_QUANTUM_SHIFT;
    if (!quanta) return SK_DNS_CHARGE_GAP_BURST;
    const __u32 k = sk_dns_floor_log2(quanta);
    const __u32 beyond = k < SK_DNS_GAP_CLASSES ? 0 : k - SK_DNS_GAP_CLASSES + 1;
    return SK_DNS_CHARGE_GAP_CLASS + (k + beyond) * SK_DNS_BIT;
}
