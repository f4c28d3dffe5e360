/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/dns_message.h"
#include "bpf/wire/record.h"

/* A DNS query that was about to leave. What passed was charged in the worst case: who reads this gives
 * back what was too much (struct sk_dns_refund). */
struct sk_dns {
    struct sk_head head;
    __u8 server[16];   /* as in struct sk_net */
    __u64 zone_key[2]; /* charged: of its zone, and of the provider's zone above it; 0 = none */
    __u32 charged[2];  /* sixteenths of a bit, like all amounts here */
    __u32 charged_total;
    __u32 spent;       /* by the zone, with this one */
    __u32 limit;       /* of the zone; 0 = not charged */
    __u32 budget;      /* index of the budget id, and its generation */
    __u32 generation;
    __u16 family;
    __u16 type;        /* of the question */
    __u16 fault;       /* enum sk_dns_fault: why it is not canonical; 0 = it is */
    __u16 name_len;    /* bytes of `name` */
    __u16 zone_at;     /* where in it the zone begins */
    __u8 tier;         /* enum sk_dns_tier */
    __u8 quiet;        /* the policy records less: for the meter alone */
    __u8 name[256];    /* as on the wire, without compression; empty where it could not be read */
};

/* Context of the program dns_refund. */
struct sk_dns_refund {
    __u64 zone_key[2];
    __u32 amount[2];
    __u32 total;
    __u32 budget;
    __u32 generation;
    __u32 pad;
};
