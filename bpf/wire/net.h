/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/record.h"

#define SK_UNIX_PATH_BYTES 112 /* sun_path is 108 */

#define SK_NET_OPS(X)          \
    X(1, CONNECT, "connect")   \
    X(2, SEND, "send")         \
    X(3, BIND, "bind")         \
    X(4, LISTEN, "listen")     \
    X(5, SOCKET, "socket")     \
    X(6, RECEIVE, "receive-fd") \
    X(7, PACKET, "packet")

enum sk_net_op {
#define X(number, NAME, text) SK_NET_##NAME = number,
    SK_NET_OPS(X)
#undef X
};

struct sk_net {
    struct sk_head head;
    __u64 cookie;     /* socket cookie; 0 where the hook has none */
    __u8 address[16]; /* network order; IPv4 in the first 4 bytes; mapped ones are shown as IPv4 */
    __u32 op;         /* enum sk_net_op */
    __u16 family;     /* AF_* of the address, 2 for a mapped one */
    __u16 type;       /* SOCK_* */
    __u16 protocol;   /* IPPROTO_* */
    __u16 port;       /* host order */
    __u8 unix_len;    /* bytes of unix_path */
    __u8 mapped;      /* address was ::ffff:0:0/96 */
    __u16 pad[5];
    char unix_path[SK_UNIX_PATH_BYTES]; /* abstract names start with a NUL byte. Of another family: a server name of TLS, cut */
};
