/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Answers as the kernel reads them for a sandbox without a stub: docs/dns.md. */
#pragma once
#include "bpf/wire/dns_zone.h"

/* Queries of one socket that wait for their answers. The C library has two, programs with an asynchronous
 * resolver some tens; beyond it the oldest is forgotten, and its answer opens nothing. */
#define SK_DNS_ASKS 32
/* No client waits longer. */
#define SK_DNS_ASK_NS (30ULL * 1000000000)
/* Records of an answer's first section: aliases, and more addresses than any name of the list of ranked zones has. */
#define SK_DNS_ANSWER_RECORDS 64
/* Aliases that one answer goes through: resolvers give up at 8 to 12. */
#define SK_DNS_ANSWER_CHAIN 8
/* Names in an answer that are not a pointer to the name that is looked for, and so are read. */
#define SK_DNS_ANSWER_NAMES 24
/* Parameters and addresses of one HTTPS or SVCB record: real ones have five or six of the one and eight of the
 * other. What stands behind them is not read. */
#define SK_DNS_HINT_STEPS 32
#define SK_DNS_SVCB_IPV4HINT 4
#define SK_DNS_SVCB_IPV6HINT 6
/* Rules that cover one name, and ports of one rule: each is a pin. */
#define SK_DNS_ANSWER_RULES 4
#define SK_DNS_RULE_PORTS 64
/* Addresses, by port, of one sandbox at once: as many as the agent allows the stub. */
#define SK_DNS_PINS 4096
/* Places in `dns_places` that are tried for one that is over. */
#define SK_DNS_PIN_TRIES 8
/* An address stays open for as long as the answer lives, at least so long: programs keep addresses longer than
 * they should (Antrea #6229), and a connection that lives is not looked at again. At most as long as the stub
 * keeps an answer. */
#define SK_DNS_PIN_LEAST_SECONDS 300
#define SK_DNS_PIN_GRACE_SECONDS 60
#define SK_DNS_PIN_MOST_SECONDS 86400

/* What became of an answer; index of the counters in `dns_answers`. Those below NO_ROOM and of no
 * question are delivered: the client refuses them itself, or needs to see them. */
#define SK_DNS_ANSWERS(X)                                                         \
    X(0, PINNED, "pinned")                                                        \
    X(1, EMPTY, "no address for the name that was asked")                         \
    X(2, NOT_LISTED, "no rule of the policy names it")                            \
    X(3, FORM, "no DNS message in one datagram")                                  \
    X(4, UNASKED, "no query waits for it")                                        \
    X(5, SOURCE, "from another address or port than the query went to")           \
    X(6, TRUNCATED, "truncated")                                                  \
    X(7, SCOPE, "an address that no name may lead to (rebinding)")                \
    X(8, BROKEN, "a record that cannot be read, or a chain without end: dropped") \
    X(9, LARGE, "more records or names than are read: dropped")                   \
    X(10, NO_ROOM, "no room for another pin: dropped")                            \
    X(11, NO_WORK, "no place to read it in: dropped")                             \
    X(12, FORGOTTEN, "a query forgotten for a newer one")                         \
    X(13, NO_MEMORY, "no memory to remember a query or a verdict: refused")       \
    X(14, SELF, "a packet of the sandbox in the name of its resolver: refused")

enum sk_dns_answer_end {
#define X(number, NAME, text) SK_DNS_ANSWER_##NAME = number,
    SK_DNS_ANSWERS(X)
#undef X
        SK_DNS_ANSWER_COUNT = 16,
};

/* A query that has left. */
struct sk_dns_ask {
    __u64 name;              /* zone hash of the whole name */
    __u64 asked_ns;          /* boot time; 0 = answered, or never asked */
    __u64 owner;             /* slot << 32 | generation */
    struct sk_dns_server to; /* as in the packet: another program may have changed what was asked for */
    __u16 id;
    __u16 type;
    __u16 port;
    __u8 family;
    __u8 pad;
};

/* To whom the calls of one socket have spoken. */
#define SK_DNS_SOCK_RESOLVER 0x1U /* port 53 of a resolver */
#define SK_DNS_SOCK_LISTED 0x2U   /* something else that the policy's network section lists */
#define SK_DNS_SOCK_OTHER 0x4U    /* something that no section lists */

/* Map `dns_socks`, in each UDP socket of a sandbox without a stub that has spoken to port 53: all that it
 * sends from then on is judged as DNS. */
struct sk_dns_sock {
    __u64 owner;
    __u32 calls; /* SK_DNS_SOCK_* */
    __u32 next;  /* place of the next query */
    struct sk_dns_ask ask[SK_DNS_ASKS];
};

/* Map `dns_ports`: which ports a rule by name opens, for the name (`exact`) and those below it. A port 0
 * stands for all. Key: struct sk_dns_rule_key. */
struct sk_dns_port_list {
    __u64 tls; /* bit i: port[i] is opened by `tls_name: strict` alone */
    __u16 count;
    __u16 port[SK_DNS_RULE_PORTS];
    __u16 pad[3];
};
struct sk_dns_ports {
    struct sk_dns_port_list exact, below;
};

/* Map `dns_places`: the pins that the kernel made for a sandbox, in a ring. Value: struct sk_dns_pin_key. */
struct sk_dns_pinned_key {
    __u32 slot;
    __u32 generation;
    __u32 place; /* below SK_DNS_PINS */
    __u32 pad;
};
