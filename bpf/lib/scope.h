/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Whose task is this? The label answers; where there is none, the task's cgroup. */
#pragma once
#include "bpf/lib/errors.h"

static __always_inline struct sk_config *config_get(void) {
    __u32 zero = 0;
    return bpf_map_lookup_elem(&config, &zero);
}

/* The id of a cgroup's ancestor; 0 = not readable. */
static __always_inline __u64 ancestor_id(struct cgroup *cgroup, __u32 level) {
    struct cgroup *ancestor = NULL;
    if (bpf_core_read(&ancestor, sizeof(ancestor), &cgroup->ancestors[level])) return 0;
    return BPF_CORE_READ(ancestor, kn, id);
}

/* The slot of the sandbox at or above this cgroup; 0 = none. `own_id` is that of the cgroup itself. */
static __always_inline __u32 slot_at(struct cgroup *cgroup, __u64 own_id, __u32 depth, __u64 levels) {
    for (int i = 0; i < SK_MAX_LEVELS; i++) {
        __u32 level = levels & 0xff;
        levels >>= 8;
        if (!level) break;
        if (level > depth) continue;
        __u64 id = level == depth ? own_id : ancestor_id(cgroup, level);
        __u32 *slot = id ? bpf_map_lookup_elem(&cgroups, &id) : NULL;
        if (slot) return *slot;
    }
    return 0;
}

/* For a cgroup that the verifier knows; and for one read from kernel memory. */
static __always_inline __u32 slot_of_cgroup(struct cgroup *cgroup, __u64 levels) {
    return slot_at(cgroup, cgroup->kn->id, cgroup->level, levels);
}
static __always_inline __u32 slot_of_kernel_cgroup(struct cgroup *cgroup, __u64 levels) {
    return slot_at(cgroup, BPF_CORE_READ(cgroup, kn, id), BPF_CORE_READ(cgroup, level), levels);
}

/* The slot of a label's sandbox; NULL when that is gone. A task that was moved out can outlive its
 * sandbox, and what it does must not be charged to the next one. */
static __always_inline struct sk_slot *slot_of_label(__u32 number, __u32 generation) {
    struct sk_slot *slot = bpf_map_lookup_elem(&slots, &number);
    if (!slot) return NULL;
    bool same = slot->generation == (generation & SK_GENERATION_MASK) && slot->state != SK_SLOT_FREE;
    return same ? slot : NULL;
}

/* A task's storage, made where there is none; NULL when there is no memory. */
static __always_inline struct sk_task *task_storage(struct task_struct *task) {
    struct sk_task *mine = bpf_task_storage_get(&tasks, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!mine) count_error(SK_ERROR_LABEL_STORAGE);
    return mine;
}

/* Labels a task, whatever it had before; NULL when there is no memory. */
static __always_inline struct sk_task *task_label(struct task_struct *task, __u32 slot, __u32 generation) {
    struct sk_task *mine = task_storage(task);
    if (!mine) return NULL;
    mine->label.generation = generation;
    mine->label.slot = slot;
    return mine;
}

/* What a task without a label is to the sandbox in whose cgroup it is: its parent's child, whose
 * birth was not seen; or, where nobody enters, one of its own; else one that came from outside. */
static __always_inline __u32 unlabelled_generation(struct task_struct *task, __u32 number, const struct sk_slot *slot) {
    if (slot->flags & SK_SLOT_CLOSED) return slot->generation;
    struct task_struct *parent = task->real_parent;
    struct sk_task *theirs = parent ? bpf_task_storage_get(&tasks, parent, NULL, 0) : NULL;
    bool child = theirs && theirs->label.slot == number && slot_of_label(number, theirs->label.generation);
    return child ? theirs->label.generation : slot->generation | SK_LABEL_ENTERED;
}

/* A task below a sandbox's cgroup that carries no label gets one now. */
static __always_inline struct sk_task *task_by_cgroup(struct task_struct *task) {
    struct sk_config *conf = config_get();
    if (!conf || !conf->live_slots) return NULL;
    __u32 number = slot_of_cgroup(task->cgroups->dfl_cgrp, conf->levels);
    struct sk_slot *slot = number ? bpf_map_lookup_elem(&slots, &number) : NULL;
    if (!slot) return NULL;
    struct sk_label label = {.slot = number, .generation = unlabelled_generation(task, number, slot)};
    struct sk_task *mine = task_storage(task);
    struct sk_state *state = bpf_map_lookup_elem(&states, &number);
    if (!mine || !state) {
        bpf_send_signal(9); /* an unlabelled task could not be judged */
        return mine;
    }
    /* The agent labels a sandbox's first task from outside, and may have done so since it was found without: its word stands. */
    __u64 word = (__u64)label.generation << 32 | label.slot;
    if (!__sync_val_compare_and_swap((__u64 *)&mine->label, 0, word)) __sync_fetch_and_add(&state->tasks, 1);
    return mine;
}

/* Dooms whoever shares the current task's descriptor table. Entries have no end of their own, and
 * the kernel gives an address out again within microseconds: so a table counts as doomed for its
 * sandbox only, and not once it is a new one (files_fresh). */
static __always_inline __u64 files_owner(__u32 slot, __u32 generation) {
    return (__u64)slot << 32 | (generation & SK_GENERATION_MASK);
}
static __always_inline void files_doom(__u32 slot, __u32 generation) {
    __u64 files = (__u64)BPF_CORE_READ(bpf_get_current_task_btf(), files);
    __u64 owner = files_owner(slot, generation);
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    bpf_map_update_elem(&doomed_files, &files, &owner, BPF_ANY);
    if (state) __sync_fetch_and_add(&state->dooms, 1);
}
static __always_inline bool files_doomed(__u64 files, __u32 slot, __u32 generation) {
    __u64 *owner = bpf_map_lookup_elem(&doomed_files, &files);
    return owner && *owner == files_owner(slot, generation);
}
/* At the birth of a task that shares no table: what is said of its address was of an earlier one. */
static __always_inline void files_fresh(struct task_struct *task) {
    __u64 files = (__u64)task->files;
    bpf_map_delete_elem(&doomed_files, &files);
}

/* The current task's label and scratch; NULL = in no sandbox. */
static __always_inline struct sk_task *task_current(void) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct sk_task *mine = bpf_task_storage_get(&tasks, task, NULL, 0);
    if (mine && mine->label.slot) return mine;
    return task_by_cgroup(task);
}
