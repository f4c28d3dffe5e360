/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/lib/escape.h"
#include "bpf/wire/exit.h"
#include "bpf/wire/fork.h"
#include "bpf/wire/lifecycle.h"

#ifndef CLONE_FILES
#define CLONE_FILES 0x00000400
#endif
#define CLONE_NEWNS 0x00020000
#define CLONE_NEWUSER 0x10000000
#ifndef CLONE_THREAD
#define CLONE_THREAD 0x00010000
#endif

static __always_inline void condemn(__u32 slot, __u32 code) {
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    if (state) condemn_state(state, code);
}

/* The case of a labelled current task, for records that judge nothing. */
static __always_inline struct sk_case *label_current(void) {
    struct sk_task *mine = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0);
    if (!mine || !mine->label.slot) return NULL;
    struct sk_path_case *whole = case_load(SK_SECTION_EXEC, SK_POWER_SEE);
    if (!whole) return NULL;
    struct sk_case *c = &whole->base;
    c->code = SK_CODE_OK;
    c->verdict = SK_VERDICT_ALLOW;
    c->outcome = SK_OUTCOME_DONE;
    c->lock = SK_LOCK_NONE;
    return c;
}

static __always_inline __u32 exec_record_level(const struct sk_case *c) {
    struct sk_policy policy = policy_open(c->policy_index);
    const struct sk_policy_head *head = policy_head(&policy);
    return head ? head->record[SK_SECTION_EXEC] : SK_RECORD_VIOLATIONS;
}

int fork_report(struct sk_case *c, __u64 child_start, __u32 child_tgid, __u64 flags);
int lifecycle_report(struct sk_case *c, __u32 op);
/* Condemns the case's sandbox and tells. False: its policy only observes, so it is told alone. True
 * also where the sandbox is gone: the task has none, and should die. */
static __always_inline bool condemn_for(struct sk_case *c, __u32 code) {
    if (case_stale(c)) return true;
    bool observe = c->flags & SK_RECORD_OBSERVE;
    if (!observe) condemn(c->slot, code);
    c->code = code;
    c->section = SK_SECTION_ESCAPE;
    c->verdict = SK_VERDICT_KILL_SANDBOX;
    c->outcome = observe ? SK_OUTCOME_DONE : SK_OUTCOME_KILLED_AFTER;
    c->lock = SK_LOCK_BPF;
    lifecycle_report(c, SK_LIFECYCLE_CONDEMNED);
    return !observe;
}

/* A birth into a new user or mount namespace. Under `lsm` it was refused before; here parent and
 * child die, neither having come back from the call. */
static __always_inline void label_namespaces(struct sk_case *c, struct task_struct *task, __u64 clone_flags) {
    bool user = clone_flags & CLONE_NEWUSER, mount = clone_flags & CLONE_NEWNS;
    if (backend != SK_BACKEND_SIGNAL || c->entered || !(user || mount)) return;
    if (case_granted(c, user ? SK_GRANT_USERNS : SK_GRANT_MNTNS)) return;
    c->section = SK_SECTION_ESCAPE;
    c->power = SK_POWER_KILL_AFTER;
    c->code = SK_CODE_ESCAPE;
    c->lock = SK_LOCK_BPF;
    c->op = user ? SK_ESCAPE_UNSHARE_USER : SK_ESCAPE_UNSHARE_MOUNT;
    case_settle(c);
    if (c->ring) escape_report(c, clone_flags, 0);
    struct sk_task *child = c->kill ? bpf_task_storage_get(&tasks, task, NULL, 0) : NULL;
    if (child) child->label.generation |= SK_LABEL_DOOMED;
    case_finish(c);
}

static __always_inline int label_inherit(struct task_struct *task, __u64 clone_flags) {
    struct sk_case *c = label_current();
    if (!c) return 0;
    struct sk_task *child = task_label(task, c->slot, c->generation | c->entered);
    if (!child) {
        if (!case_stale(c)) condemn(c->slot, SK_CODE_NO_STORAGE); /* also in mode observe: an unlabelled task is not seen */
        condemn_for(c, SK_CODE_NO_STORAGE);
        bpf_send_signal(9);
        return 0;
    }
    if (!(clone_flags & CLONE_FILES)) {
        files_fresh(task);
        /* The copy of a doomed table holds the descriptor too; the parent dies at the end of this call. */
        if (case_doomed(c)) child->label.generation |= SK_LABEL_DOOMED;
    }
    if (case_stale(c)) {
        bpf_send_signal(9);
        return 0;
    }
    __u32 slot = c->slot;
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    if (state) __sync_fetch_and_add(&state->tasks, 1);
    struct sk_config *conf = config_get();
    if (conf && slot_of_cgroup(task->cgroups->dfl_cgrp, conf->levels) != slot) {
        if (condemn_for(c, SK_CODE_LEFT_CGROUP)) bpf_send_signal(9);
        return 0;
    }
    if (!(clone_flags & CLONE_THREAD) && exec_record_level(c) != SK_RECORD_VIOLATIONS)
        fork_report(c, task->start_boottime, task->tgid, clone_flags);
    label_namespaces(c, task, clone_flags);
    return 0;
}

int exit_report(struct sk_case *c, __u32 status);
static __always_inline int label_leave(struct task_struct *task) {
    struct sk_case *c = label_current();
    if (!c || case_stale(c)) return 0;
    __u32 slot = c->slot;
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    if (task->signal->live.counter == 0 && exec_record_level(c) != SK_RECORD_VIOLATIONS)
        exit_report(c, task->exit_code);
    if (state && __sync_fetch_and_add(&state->tasks, -1) == 1) lifecycle_report(c, SK_LIFECYCLE_EMPTY);
    return 0;
}

/* A labelled task in a cgroup outside is out of sight of the cgroup programs: its sandbox is
 * condemned, whoever moved it. Only the unified hierarchy counts, which has number 0. */
static __always_inline int label_moved(struct cgroup *dst, struct task_struct *task) {
    struct sk_task *theirs = bpf_task_storage_get(&tasks, task, NULL, 0);
    if (!theirs || !theirs->label.slot || dst->root->hierarchy_id != 0) return 0;
    struct sk_config *conf = config_get();
    if (!conf || slot_of_cgroup(dst, conf->levels) == theirs->label.slot) return 0;
    struct sk_case c = {};
    case_fill(&c, theirs->label.slot, theirs->label.generation, SK_SECTION_ESCAPE, SK_POWER_KILL_AFTER);
    if (!condemn_for(&c, SK_CODE_LEFT_CGROUP)) return 0;
    struct sk_task *mine = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), NULL, 0);
    if (mine && mine->label.slot == c.slot) bpf_send_signal(9);
    return 0;
}

static __always_inline int label_root(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;
    if (!task) return 0;
    struct fs_struct *fs = task->fs;
    __u64 address = fs ? (__u64)fs->root.dentry : 0;
    bpf_seq_write(ctx->meta->seq, &address, sizeof(address));
    return 0;
}

extern __u32 present_slot; /* slot that label_present works for; set by the agent */

static __always_inline int label_starting(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;
    struct sk_config *conf = config_get();
    __u32 slot = present_slot;
    if (!task || !conf || slot_of_cgroup(task->cgroups->dfl_cgrp, conf->levels) != slot) return 0;
    struct sk_slot *entry = bpf_map_lookup_elem(&slots, &slot);
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    if (!entry || !state || bpf_task_storage_get(&tasks, task, NULL, 0)) return 0;
    if (!task_label(task, slot, entry->generation | SK_LABEL_STARTING)) return 0;
    __sync_fetch_and_add(&state->tasks, 1);
    bpf_seq_write(ctx->meta->seq, &slot, sizeof(slot));
    return 0;
}
