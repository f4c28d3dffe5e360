/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The server name that a client of TLS asks for (SNI, RFC 6066 section 3), as far as `tls_name: strict` reads it. */
#pragma once
#include "bpf/wire/base.h"

/* RFC 8446: section 5.1 (record), 4 (handshake), 4.1.2 (ClientHello). */
#define SK_TLS_RECORD_HANDSHAKE 22
#define SK_TLS_CLIENT_HELLO 1
#define SK_TLS_HELLO_FIXED 44 /* record head 5, handshake head 4, version 2, random 32, length of the session id 1 */
#define SK_TLS_SESSION_BYTES 32
#define SK_TLS_EXTENSION_NAME 0
#define SK_TLS_EXTENSION_ECH 0xfe0d  /* encrypted ClientHello: the name outside is not the one that counts */
#define SK_TLS_EXTENSION_ESNI 0xffce /* its draft */
/* Browsers send some 20, with padding and GREASE. */
#define SK_TLS_EXTENSIONS 64
#define SK_TLS_NAME_BYTES 253 /* of a host name (RFC 1035 section 2.3.4, without the final dot's byte) */

/* Map `tls_socks`, by socket: one that was connected to an address which only `tls_name: strict` opens. */
enum sk_tls_state {
    SK_TLS_FREE = 0,    /* another address */
    SK_TLS_AWAITS = 1,  /* its first bytes have to be a ClientHello with a listed name */
    SK_TLS_PASSED = 2,
    SK_TLS_REFUSED = 3, /* nothing that it sends leaves */
};
struct sk_tls_sock {
    __u32 state;
    __u32 generation; /* of the slot that it was connected for */
    __u32 slot;
    __u32 pad;
};
