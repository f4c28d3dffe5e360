/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* All structs of the wire as clang lays them out for BPF. An object's BTF holds types of
 * globals and arguments only, and records are neither: so each is named here once. */
#include "bpf/wire/dns.h"
#include "bpf/wire/dns_answer.h"
#include "bpf/wire/dns_zone.h"
#include "bpf/wire/escape.h"
#include "bpf/wire/exec.h"
#include "bpf/wire/exit.h"
#include "bpf/wire/file.h"
#include "bpf/wire/fork.h"
#include "bpf/wire/lifecycle.h"
#include "bpf/wire/net.h"
#include "bpf/wire/policy.h"
#include "bpf/wire/repeat.h"
#include "bpf/wire/slot.h"

#define X(number, NAME, stem) const struct sk_##stem *layout_##stem;
SK_KINDS(X)
#undef X
const union sk_cell *layout_cell;
const struct sk_label *layout_label;
const struct sk_slot *layout_slot;
const struct sk_state *layout_state;
const struct sk_config *layout_config;
const struct sk_dns_binding *layout_dns_binding;
const struct sk_dns_budget *layout_dns_budget;
const struct sk_dns_zone *layout_dns_zone;
const struct sk_dns_zone_key *layout_dns_zone_key;
const struct sk_dns_rule *layout_dns_rule;
const struct sk_dns_pin_key *layout_dns_pin_key;
const struct sk_dns_refund *layout_dns_refund;
const struct sk_dns_ask *layout_dns_ask;
const struct sk_dns_sock *layout_dns_sock;
const struct sk_dns_ports *layout_dns_ports;
const struct sk_dns_pinned_key *layout_dns_pinned_key;

char _license[] __attribute__((section("license"), used)) = "Dual BSD/GPL";
