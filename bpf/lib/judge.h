/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* From "the policy does not list it" to what happens: verdict, record, refusal, signal.
 *
 *   struct sk_path_case *c = case_open(SK_SECTION_FILES, SK_POWER_REFUSE);
 *   if (!c) return 0;                           in no sandbox, or not judged
 *   c->base.code = ...;                         SK_CODE_OK or the reason
 *   case_settle(&c->base);                      verdict, counters, condemnation
 *   if (c->base.ring) <subject>_report(c, ...); record
 *   return case_finish(&c->base);               signal; 0 or -EPERM
 */
#pragma once
#include "bpf/lib/path.h"
#include "bpf/lib/policy.h"
#include "bpf/lib/scope.h"

/* Records of one sandbox and second: beyond it telemetry waits for its bucket, and violations of
 * one code become one counted record. Chosen so that 16 flooding sandboxes stay below the rate at
 * which one reader thread empties a ring (measured: 400,000 records a second). */
#define SK_TELEMETRY_NS 50000ULL     /* 20,000 a second */
#define SK_TELEMETRY_BURST_NS 100000000ULL /* 2,000 at once */
#define SK_VIOLATIONS_PER_SECOND 100
/* Of queries that have passed and may cost less than they were charged: a bucket of their own, so that what a
 * sandbox does with files does not make its names dearer. Beyond it the charge stays. */
#define SK_REFUND_NS 500000ULL        /* 2,000 a second */
#define SK_REFUND_BURST_NS 500000000ULL /* 1,000 at once */

int case_settle(struct sk_case *c);
/* The same for a refusal by another lock: counted and rated, nothing else. */
int refused_settle(struct sk_case *c);
/* A ring for the record of a query that passed, within the rate. */
int refund_settle(struct sk_case *c);
/* The same for what can only be reported: told at every record level, within the rate. */
int seen_settle(struct sk_case *c);

/* Slot, policy and condemnation. A label of a sandbox that is gone, or a slot that is not live,
 * leaves no policy: everything denied. */
static __always_inline void case_slot(struct sk_case *c) {
    __u32 number = c->slot;
    struct sk_slot *slot = slot_of_label(number, c->generation);
    struct sk_state *state = bpf_map_lookup_elem(&states, &number);
    c->policy_index = SK_NO_POLICY;
    c->root_dentry = 0;
    if (!state || !slot) {
        count_error(SK_ERROR_SLOT_STALE);
    } else {
        c->policy_index = *(volatile __u32 *)&slot->policy_index;
        c->root_dentry = slot->root_dentry;
        if (state->condemned_ns) c->code = SK_CODE_CONDEMNED;
    }
}

static __always_inline void case_policy(struct sk_case *c) {
    struct sk_policy policy = policy_open(c->policy_index);
    const struct sk_policy_head *head = policy_head(&policy);
    if (!head) {
        count_error(SK_ERROR_POLICY_MISSING);
        c->policy_id = 0;
        c->grants = 0;
        if (c->code == SK_CODE_OK) c->code = SK_CODE_NO_POLICY;
        return;
    }
    c->policy_id = head->id;
    c->grants = head->grants;
    if (head->mode == SK_MODE_OBSERVE) c->flags |= SK_RECORD_OBSERVE;
    c->entered_rule = head->entered;
}

/* The label is of a sandbox that is gone: whoever carries it is refused and dies, and nothing is
 * written to the slot, which may be another's. */
static __always_inline bool case_stale(const struct sk_case *c) { return c->policy_index == SK_NO_POLICY; }

/* Fills a case for the sandbox that a label names. */
static __always_inline void case_fill(struct sk_case *c, __u32 slot, __u32 generation, __u8 section, __u8 power) {
    c->slot = slot;
    c->generation = generation & SK_GENERATION_MASK;
    c->entered = generation & SK_LABEL_UNJUDGED;
    c->path_hash = 0;
    c->section = section;
    c->power = power;
    c->code = SK_CODE_OK;
    c->op = 0;
    c->role = 0;
    c->flags = 0;
    c->ring = SK_RING_NONE;
    c->by = backend;
    c->lock = SK_LOCK_BPF;
    if (generation & SK_LABEL_DOOMED) c->code = SK_CODE_CONDEMNED;
    case_slot(c);
    case_policy(c);
}

static __always_inline bool case_doomed(const struct sk_case *c) {
    __u32 slot = c->slot;
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    return state && state->dooms && files_doomed((__u64)bpf_get_current_task_btf()->files, slot, c->generation);
}

/* The current task's case, with slot, policy and grants; NULL = in no sandbox. */
static __always_inline struct sk_path_case *case_load(__u8 section, __u8 power) {
    struct sk_task *mine = task_current();
    if (!mine) return NULL;
    struct sk_path_case *c = &mine->scratch;
    case_fill(&c->base, mine->label.slot, mine->label.generation, section, power);
    /* A cgroup program that may send no signal (before 6.18) has marked it: it dies here, or under
     * `signal` at the end of its call. */
    if (backend == SK_BACKEND_LSM && !cgroup_signal && case_doomed(&c->base)) c->base.code = SK_CODE_CONDEMNED;
    return c;
}

/* The same, but a task that came from outside is not judged before its next execve. */
static __always_inline struct sk_path_case *case_open(__u8 section, __u8 power) {
    struct sk_path_case *c = case_load(section, power);
    return c && (!c->base.entered || c->base.code != SK_CODE_OK) ? c : NULL;
}

/* The first condemnation counts: its time and its reason stay. Whether it is this one. */
static __always_inline bool condemn_state(struct sk_state *state, __u32 code) {
    if (__sync_val_compare_and_swap(&state->condemned_ns, 0, bpf_ktime_get_boot_ns()) != 0) return false;
    state->condemned_code = code;
    return true;
}

static __always_inline bool case_granted(const struct sk_case *c, __u32 grant) {
    return c->grants & (1ULL << grant);
}

/* The result of an LSM program, where paths join before its end: clang may keep it in half a stack
 * slot, and the verifier (SINCE 6.12: "R0 should have been in [-4095, 0]") then knows nothing of it. */
static __always_inline int lsm_result(int ret) {
    keep(ret);
    return ret ? -1 /* -EPERM */ : 0;
}

/* Signals the caller as settled; the result of an LSM hook. */
static __always_inline int case_finish(struct sk_case *c) {
    if (c->kill) count_err(SK_ERROR_SEND_SIGNAL, bpf_send_signal(9));
    return c->refuse ? -1 /* -EPERM */ : 0;
}
