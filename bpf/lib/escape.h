/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/lib/judge.h"
#include "bpf/lib/reserve.h"
#include "bpf/wire/escape.h"

int escape_report(struct sk_case *c, __u64 argument, __u32 target_tgid);

/* Bits of grants, any of which lifts the refusal of a capability. */
#define GRANT_BIT(NAME) (1ULL << SK_GRANT_##NAME)

/* A capability that a way out would need. Refused without a kill, for the kernel tries some
 * capabilities on its own account; `quiet`: it says that this is such a try. */
static __always_inline int escape_capability(int capability, __u64 grants, bool quiet) {
    struct sk_path_case *whole =
        case_open(SK_SECTION_ESCAPE, quiet ? SK_POWER_REFUSE_QUIET : SK_POWER_REFUSE_ONLY);
    if (!whole) return 0;
    struct sk_case *c = &whole->base;
    if (c->code != SK_CODE_OK) return -1; /* condemned, or without a policy */
    if (c->grants & grants) return 0;
    c->code = SK_CODE_ESCAPE;
    c->op = SK_ESCAPE_CAPABILITY;
    case_settle(c);
    if (c->ring) escape_report(c, capability, 0);
    return case_finish(c);
}

/* Refuses what needs a grant that the policy does not give. 0 or -EPERM. */
static __always_inline int escape_refuse(__u32 op, __u32 grant, __u64 argument, __u32 target_tgid) {
    struct sk_path_case *whole = case_open(SK_SECTION_ESCAPE, SK_POWER_REFUSE);
    if (!whole) return 0;
    struct sk_case *c = &whole->base;
    if (c->code == SK_CODE_OK) {
        if (case_granted(c, grant)) return 0;
        c->code = SK_CODE_ESCAPE;
    }
    c->op = op;
    case_settle(c);
    if (c->ring) escape_report(c, argument, target_tgid);
    return case_finish(c);
}
