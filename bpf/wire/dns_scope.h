/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Which addresses a name of the world may lead to: what the registry of RFC 6890 calls globally
 * reachable. Anything else behind a name is rebinding. */
#pragma once
#include "bpf/wire/base.h"

#define SK_DNS_IN4(address, prefix, bits) ((((address) ^ (prefix)) >> (32 - (bits))) == 0)

/* In host order. */
SK_INLINE int sk_dns_public4(__u32 address) {
    return !(SK_DNS_IN4(address, 0x00000000u, 8) || SK_DNS_IN4(address, 0x0a000000u, 8) ||
             SK_DNS_IN4(address, 0x64400000u, 10) || SK_DNS_IN4(address, 0x7f000000u, 8) ||
             SK_DNS_IN4(address, 0xa9fe0000u, 16) || SK_DNS_IN4(address, 0xac100000u, 12) ||
             SK_DNS_IN4(address, 0xc0000000u, 24) || SK_DNS_IN4(address, 0xc0586300u, 24) ||
             SK_DNS_IN4(address, 0xc0a80000u, 16) || SK_DNS_IN4(address, 0xc6120000u, 15) ||
             SK_DNS_IN4(address, 0xe0000000u, 3));
}

/* The first 8 bytes, in host order: global unicast is 2000::/3, without Teredo and 6to4, which hold an
 * IPv4 address. */
SK_INLINE int sk_dns_public6(__u64 hi) {
    return (hi >> 61) == 1 && (hi >> 32) != 0x20010000u && (hi >> 48) != 0x2002u;
}
