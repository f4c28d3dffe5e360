/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/lib/dns.h"
#include "bpf/wire/tls.h"

struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct sk_tls_sock);
} tls_socks SEC(".maps") __weak;

#define SK_LISTED_PLAIN 1 /* whatever is said there */
#define SK_LISTED_TLS 2   /* by names under `tls_name: strict` alone */

/* At a connect that the policy allows. False = it cannot be watched, and is refused. The kernel holds the socket's lock,
 * and comes here only while it is not connected: what the socket sends belongs to the last of these calls. */
static __always_inline bool tls_note(struct bpf_sock_addr *ctx, const struct sk_case *c, int listed) {
    struct bpf_sock *sk = ctx->sk;
    if (!sk) return listed != SK_LISTED_TLS;
    struct sk_tls_sock *watched = bpf_sk_storage_get(&tls_socks, sk, NULL, listed == SK_LISTED_TLS ? BPF_SK_STORAGE_GET_F_CREATE : 0);
    if (!watched) return listed != SK_LISTED_TLS;
    watched->slot = c->slot;
    watched->generation = c->generation;
    watched->state = listed == SK_LISTED_TLS ? SK_TLS_AWAITS : SK_TLS_FREE;
    return true;
}
