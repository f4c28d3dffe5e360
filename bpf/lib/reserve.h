/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* A record: sequence number first, then the reserve, so that a lost record shows as a gap. */
#pragma once
#include "bpf/lib/judge.h"

static __always_inline void head_task(struct sk_head *head) {
    struct task_struct *task = bpf_get_current_task_btf();
    head->boot_ns = bpf_ktime_get_boot_ns();
    head->start_boot_ns = task->group_leader->start_boottime;
    head->cgroup_id = task->cgroups->dfl_cgrp->kn->id;
    head->tgid = task->tgid;
    head->tid = task->pid;
    head->uid = task->cred->euid.val;
    if (head->tid != head->tgid) head->flags |= SK_RECORD_THREAD;
    bpf_probe_read_kernel(head->comm, sizeof(head->comm), task->comm);
}

static __always_inline void head_case(struct sk_head *head, const struct sk_case *c, __u64 seq,
                                      __u16 kind, __u16 bytes) {
    head->kernel_seq = seq;
    head->policy_id = c->policy_id;
    head->slot = c->slot;
    head->generation = c->generation;
    head->code = c->code;
    head->kind = kind;
    head->bytes = bytes;
    head->abi = SK_RECORD_ABI;
    head->verdict = c->verdict;
    head->outcome = c->outcome;
    head->lock = c->lock;
    head->backend = c->by;
    head->section = c->section;
    head->flags = c->flags | ((c->entered & SK_LABEL_ENTERED) ? SK_RECORD_ENTERED : 0);
    head->program_set = program_set;
    head_task(head);
}

static __always_inline __u64 take_seq(__u32 slot) {
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    return state ? __sync_fetch_and_add(&state->seq, 1) + 1 : 0;
}

static __always_inline void count_lost(__u32 slot, __u32 site) {
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    if (state) __sync_fetch_and_add(&state->lost, 1);
    count_error(site);
}

/* Zeroes memory of any size in one call: a failed kernel read clears its target. */
#define zero_memory(pointer, size) bpf_probe_read_kernel(pointer, size, NULL)

/* Declares `record`, of type `struct sk_<stem>`, reserved in the ring that the case chose, with
 * its head filled; returns from the calling function when the ring is full. */
#define RECORD_BEGIN(stem, KIND, c)                                                         \
    __u64 seq_ = take_seq((c)->slot);                                                       \
    struct sk_##stem *record =                                                              \
        (c)->ring == SK_RING_VIOLATION                                                      \
            ? bpf_ringbuf_reserve(&violation_ring, sizeof(struct sk_##stem), 0)             \
            : bpf_ringbuf_reserve(&telemetry_ring, sizeof(struct sk_##stem), 0);            \
    /* Telemetry: its reader looks every few milliseconds, and waking it costs the caller a microsecond. */ \
    __u64 wake_ = (c)->ring == SK_RING_VIOLATION ? 0 : BPF_RB_NO_WAKEUP;              \
    if (!record) {                                                                          \
        count_lost((c)->slot, (c)->ring == SK_RING_VIOLATION ? SK_ERROR_RING_VIOLATIONS     \
                                                             : SK_ERROR_RING_TELEMETRY);    \
        return 0;                                                                           \
    }                                                                                       \
    zero_memory(record, sizeof(*record));                                                   \
    head_case(&record->head, c, seq_, SK_KIND_##KIND, sizeof(struct sk_##stem))

#define RECORD_END() bpf_ringbuf_submit(record, wake_)

static __always_inline void path_fill(struct sk_path *out, struct sk_path_case *c) {
    struct dentry *dentry = (struct dentry *)c->query.dentry;
    struct inode *inode = BPF_CORE_READ(dentry, d_inode);
    out->inode = BPF_CORE_READ(inode, i_ino);
    out->device = BPF_CORE_READ(inode, i_sb, s_dev);
    if (inode && !BPF_CORE_READ(inode, i_nlink)) out->flags |= SK_PATH_DELETED;
    path_record(out, &c->query);
}
