/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#include "bpf/lib/reserve.h"
#include "bpf/wire/repeat.h"

static __always_inline bool never_kills(const struct sk_case *c) {
    return c->power == SK_POWER_REFUSE_ONLY || c->power == SK_POWER_REFUSE_QUIET;
}

/* What the policy says of a violation in this section. A section that is absent, and a policy in
 * mode observe, report what would have been refused. A sandbox that is condemned or has no
 * policy is past such choices. */
static __always_inline void settle_verdict(struct sk_case *c, const struct sk_policy_head *head) {
    if (!head || c->code == SK_CODE_CONDEMNED || c->code == SK_CODE_NO_POLICY) {
        c->flags &= ~SK_RECORD_OBSERVE;
        c->verdict = c->code == SK_CODE_CONDEMNED ? SK_VERDICT_KILL_PROCESS : SK_VERDICT_DENY;
        return;
    }
    c->verdict = head->violation[c->section & (SK_SECTION_SLOTS - 1)];
    if (c->verdict < SK_VERDICT_DENY || never_kills(c)) c->verdict = SK_VERDICT_DENY;
    bool absent = (c->section == SK_SECTION_EXEC && !(head->flags & SK_POLICY_HAS_EXEC)) ||
                  (c->section == SK_SECTION_FILES && !(head->flags & SK_POLICY_HAS_FILES)) ||
                  (c->section == SK_SECTION_NETWORK && !(head->flags & SK_POLICY_HAS_NETWORK) &&
                   c->code != SK_CODE_ADDRESS_DENIED); /* denied to this one by name */
    if (absent || head->mode == SK_MODE_OBSERVE) c->flags |= SK_RECORD_OBSERVE;
    else if (c->power == SK_POWER_KILL_ALL) c->verdict = SK_VERDICT_KILL_SANDBOX;
}

static __always_inline void settle_power(struct sk_case *c) {
    c->outcome = SK_OUTCOME_DONE;
    if (c->flags & SK_RECORD_OBSERVE) return;
    bool lethal = c->verdict >= SK_VERDICT_KILL_PROCESS;
    if (c->power == SK_POWER_SEE) {
        c->outcome = SK_OUTCOME_SEEN;
    } else if (c->power == SK_POWER_REFUSE || never_kills(c)) {
        c->outcome = SK_OUTCOME_PREVENTED;
        c->refuse = 1;
        c->kill = lethal;
    } else {
        /* Where a refusal is not to be had, deny means kill: never silently weaker. */
        c->outcome = c->power == SK_POWER_KILL ? SK_OUTCOME_PREVENTED : SK_OUTCOME_KILLED_AFTER;
        c->kill = 1;
    }
}

/* Whether this is what condemns the sandbox. */
static __always_inline bool settle_condemn(struct sk_case *c, struct sk_state *state) {
    if (c->verdict != SK_VERDICT_KILL_SANDBOX || c->power == SK_POWER_SEE) return false;
    if (c->flags & SK_RECORD_OBSERVE) return false;
    return condemn_state(state, c->code);
}

/* Whoever shares the descriptor table of a killed opener holds the descriptor too. */
static __always_inline void settle_doom(struct sk_case *c) {
    if (c->outcome != SK_OUTCOME_KILLED_AFTER) return;
    files_doom(c->slot, c->generation);
}

/* One record for those that the last second held back. */
__noinline int repeat_report(struct sk_case *c, __u64 count, __u64 first_boot_ns) {
    if (!c) return 0;
    c->ring = SK_RING_VIOLATION;
    RECORD_BEGIN(repeat, REPEAT, c);
    record->count = count;
    record->first_boot_ns = first_boot_ns;
    RECORD_END();
    return 0;
}

/* A record that is held back takes its number all the same: a gap is explained by this count, or it
 * is a loss. */
static __always_inline void suppress(struct sk_state *state) {
    __sync_fetch_and_add(&state->seq, 1);
    __sync_fetch_and_add(&state->suppressed, 1);
}

static __always_inline void rate_renew(struct sk_case *c, struct sk_rate *rate, __u64 now) {
    __u64 held_back = rate->suppressed, since = rate->window_ns;
    rate->window_ns = now;
    rate->count = 0;
    rate->suppressed = 0;
    if (held_back) repeat_report(c, held_back, since);
}

static __always_inline bool violation_rate(struct sk_case *c, struct sk_state *state) {
    struct sk_rate_key key = {.slot = c->slot, .generation = c->generation, .code = c->code};
    __u64 now = bpf_ktime_get_boot_ns();
    struct sk_rate *rate = bpf_map_lookup_elem(&rates, &key);
    if (!rate) {
        struct sk_rate fresh = {.window_ns = now, .count = 1};
        bpf_map_update_elem(&rates, &key, &fresh, BPF_ANY);
        return true;
    }
    if (now - rate->window_ns > 1000000000ULL) rate_renew(c, rate, now);
    if (__sync_fetch_and_add(&rate->count, 1) < SK_VIOLATIONS_PER_SECOND) return true;
    __sync_fetch_and_add(&rate->suppressed, 1);
    suppress(state);
    return false;
}

static __always_inline bool token(struct sk_state *state, __u64 *bucket, __u64 each_ns, __u64 burst_ns) {
    __u64 now = bpf_ktime_get_boot_ns(), spent = *bucket;
    if (spent > now + burst_ns) {
        suppress(state);
        return false;
    }
    *bucket = (spent < now ? now : spent) + each_ns;
    return true;
}

static __always_inline bool telemetry_token(struct sk_state *state) {
    return token(state, &state->tokens_ns, SK_TELEMETRY_NS, SK_TELEMETRY_BURST_NS);
}

__noinline int refund_settle(struct sk_case *c) {
    if (!c) return 0;
    __u32 slot = c->slot;
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    if (!state || case_stale(c)) return 0;
    if (token(state, &state->dns_tokens_ns, SK_REFUND_NS, SK_REFUND_BURST_NS)) c->ring = SK_RING_TELEMETRY;
    return 0;
}

static __always_inline bool first_seen(struct sk_case *c) {
    struct sk_first_key key = {
        .path_hash = c->path_hash ^ ((__u64)c->op << 56),
        .slot = c->slot,
        .generation = c->generation,
    };
    __u64 one = 1, *count = bpf_map_lookup_elem(&firsts, &key);
    if (count) {
        *count += 1;
        return false;
    }
    bpf_map_update_elem(&firsts, &key, &one, BPF_ANY);
    return true;
}

static __always_inline void settle_allowed(struct sk_case *c, const struct sk_policy_head *head,
                                           struct sk_state *state) {
    c->verdict = SK_VERDICT_ALLOW;
    c->outcome = SK_OUTCOME_DONE;
    c->lock = SK_LOCK_NONE;
    __sync_fetch_and_add(&state->allowed[c->section & (SK_SECTION_SLOTS - 1)], 1);
    __u8 level = head ? head->record[c->section & (SK_SECTION_SLOTS - 1)] : SK_RECORD_VIOLATIONS;
    if (level == SK_RECORD_VIOLATIONS) return;
    if (level == SK_RECORD_FIRST && !first_seen(c)) return;
    if (telemetry_token(state)) c->ring = SK_RING_TELEMETRY;
}

/* Verdict, outcome, counters and condemnation of a case whose code is set. Global, so that the
 * verifier goes through it once. */
__noinline int case_settle(struct sk_case *c) {
    if (!c) return 0;
    c->refuse = 0;
    c->kill = 0;
    c->ring = SK_RING_NONE;
    __u32 slot = c->slot;
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    struct sk_policy policy = policy_open(c->policy_index);
    const struct sk_policy_head *head = policy_head(&policy);
    if (!state || case_stale(c)) {
        c->refuse = 1;
        c->kill = 1;
        return 0;
    }
    if (c->code == SK_CODE_OK) {
        settle_allowed(c, head, state);
        return 0;
    }
    settle_verdict(c, head);
    settle_power(c);
    bool condemned = settle_condemn(c, state);
    settle_doom(c);
    if (c->power == SK_POWER_REFUSE_QUIET) return 0;
    __sync_fetch_and_add(&state->violations[c->section & (SK_SECTION_SLOTS - 1)], 1);
    /* What condemns is told at once, whatever the second has held: the kill waits for it. */
    c->ring = condemned || violation_rate(c, state) ? SK_RING_VIOLATION : SK_RING_NONE;
    return 0;
}

__noinline int refused_settle(struct sk_case *c) {
    if (!c) return 0;
    __u32 slot = c->slot;
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    c->ring = SK_RING_NONE;
    c->refuse = 0;
    c->kill = 0;
    if (!state || case_stale(c)) return 0;
    __sync_fetch_and_add(&state->violations[c->section & (SK_SECTION_SLOTS - 1)], 1);
    c->ring = violation_rate(c, state) ? SK_RING_VIOLATION : SK_RING_NONE;
    return 0;
}

__noinline int seen_settle(struct sk_case *c) {
    if (!c) return 0;
    __u32 slot = c->slot;
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    c->verdict = SK_VERDICT_OBSERVE;
    c->outcome = SK_OUTCOME_SEEN;
    c->lock = SK_LOCK_NONE;
    c->refuse = 0;
    c->kill = 0;
    c->ring = state && !case_stale(c) && telemetry_token(state) ? SK_RING_TELEMETRY : SK_RING_NONE;
    return 0;
}
