/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The one hash of names and keys, computed by the policy compiler and by the kernel.
 *
 * A sandbox chooses its file names, so the hash is keyed by three secret numbers drawn once
 * per boot and kept with the pinned maps. Two multiplications with a byte swap between them
 * a word: a single multiply-xorshift can be made to collide through its top bit even under a
 * secret key. Full 64-bit keys are compared on look-up. */
#pragma once
#include "bpf/wire/base.h"

struct sk_hash_keys {
    __u64 k1;   /* odd */
    __u64 k2;   /* odd */
    __u64 seed;
};

#define SK_EDGE_SPREAD 0xff51afd7ed558ccdULL

SK_INLINE __u64 sk_hash_word(const struct sk_hash_keys *keys, __u64 h, __u64 word) {
    return __builtin_bswap64((h ^ word) * keys->k1) * keys->k2;
}

/* Start value for a string of len bytes; then one sk_hash_word for each 8 bytes, little-endian,
 * the last padded with zero bytes. An empty string has no word. */
SK_INLINE __u64 sk_hash_start(const struct sk_hash_keys *keys, __u32 len) {
    return keys->seed + len;
}

/* Key of the edge that leaves `state` under component hash `h`. */
SK_INLINE __u64 sk_edge_key(const struct sk_hash_keys *keys, __u64 h, __u32 state) {
    return (h ^ ((__u64)state * SK_EDGE_SPREAD)) * keys->k1;
}

/* Bucket of a key, before masking. */
SK_INLINE __u32 sk_bucket(__u64 key) { return (__u32)(key >> 48); }

/* Domains keep the keys of different tables apart in the one hash table of a policy. */
enum sk_key_domain {
    SK_KEY_NET = 0x4e455431,      /* words: uid class, direction<<16|prefix index, addr hi, addr lo, port */
    SK_KEY_UID = 0x55494431,      /* words: uid. next = uid class */
    SK_KEY_LOOPBACK = 0x4c4f4f50, /* words: port (0 = any) */
    SK_KEY_UNIX = 0x554e4958,     /* words: abstract (0|1), string hash by sk_hash_start/word */
    SK_KEY_BIND = 0x42494e44,     /* words: port (0 = any). next = enum sk_bind_scope */
    SK_KEY_DNS = 0x444e5331,      /* words: per label from the right, its length and its bytes */
};

/* Addresses on which a port of SK_KEY_BIND may be bound. */
enum sk_bind_scope { SK_BIND_LOOPBACK = 0, SK_BIND_ANY = 1 };

SK_INLINE __u64 sk_key_start(const struct sk_hash_keys *keys, __u32 domain) {
    return sk_hash_word(keys, keys->seed, domain);
}

/* Address words of a network key, masked to the prefix: IPv4 as hi = 0, lo = address in host
 * order; IPv6 as two words in host order (hi = first 8 bytes read big-endian). Port in host
 * order, 0 = any port. `prefix` is the index into sk_policy_head.prefix, `uid_class` 0 for the
 * rules that hold for every uid. */
#define SK_NET_DENIED 0xffffffffU /* in the place of uid_class: a denied address; prefix = family 4 or 6, port 0 */
SK_INLINE __u64 sk_net_key(const struct sk_hash_keys *keys, __u32 uid_class, __u32 prefix,
                           __u64 hi, __u64 lo, __u32 port) {
    __u64 h = sk_key_start(keys, SK_KEY_NET);
    h = sk_hash_word(keys, h, ((__u64)uid_class << 32) | prefix);
    h = sk_hash_word(keys, h, hi);
    h = sk_hash_word(keys, h, lo);
    return sk_hash_word(keys, h, port);
}

/* Key of a one-word table: SK_KEY_UID, SK_KEY_LOOPBACK, SK_KEY_BIND. */
SK_INLINE __u64 sk_word_key(const struct sk_hash_keys *keys, __u32 domain, __u64 word) {
    return sk_hash_word(keys, sk_key_start(keys, domain), word);
}

SK_INLINE __u64 sk_unix_key(const struct sk_hash_keys *keys, __u32 abstract, __u64 string_hash) {
    __u64 h = sk_hash_word(keys, sk_key_start(keys, SK_KEY_UNIX), abstract);
    return sk_hash_word(keys, h, string_hash);
}
