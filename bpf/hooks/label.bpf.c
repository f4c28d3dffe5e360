/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Identity: a task belongs to its sandbox from birth to death. */
#include "bpf/lib/label.h"

__noinline int fork_report(struct sk_case *c, __u64 child_start, __u32 child_tgid, __u64 flags) {
    if (!c) return 0;
    c->ring = SK_RING_TELEMETRY;
    RECORD_BEGIN(fork, FORK, c);
    record->child_start_boot_ns = child_start;
    record->clone_flags = flags;
    record->child_tgid = child_tgid;
    RECORD_END();
    return 0;
}

/* The lifecycle ring is apart from the others: a flood there cannot hide the end of a sandbox. */
__noinline int lifecycle_report(struct sk_case *c, __u32 op) {
    if (!c) return 0;
    __u32 slot = c->slot;
    __u64 seq = take_seq(slot);
    struct sk_lifecycle *record = bpf_ringbuf_reserve(&lifecycle_ring, sizeof(*record), 0);
    if (!record) {
        count_lost(slot, SK_ERROR_RING_LIFECYCLE);
        return 0;
    }
    zero_memory(record, sizeof(*record));
    head_case(&record->head, c, seq, SK_KIND_LIFECYCLE, sizeof(*record));
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    record->op = op;
    record->tasks = state ? state->tasks : 0;
    bpf_ringbuf_submit(record, 0);
    return 0;
}

__noinline int exit_report(struct sk_case *c, __u32 status) {
    if (!c) return 0;
    c->ring = SK_RING_TELEMETRY;
    RECORD_BEGIN(exit, EXIT, c);
    record->status = status;
    RECORD_END();
    return 0;
}

/* FIRES once for each new task, threads and io_uring workers included, as the parent, before the
 * child runs. SOURCE kernel_clone -> copy_process, create_io_thread -> copy_process. COVERAGE all
 * tasks, but where tracepoints may be preempted: task_by_cgroup makes up for those. ON_ERROR no
 * storage: parent killed, sandbox condemned. */
SEC("tp_btf/task_newtask")
int BPF_PROG(label_newtask, struct task_struct *task, __u64 clone_flags) {
    return label_inherit(task, clone_flags);
}

/* FIRES once for each thread that ends, as that thread. SOURCE do_exit. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(label_exit, struct task_struct *task) { return label_leave(task); }

/* The same where tracepoints may be preempted: docs/adr/0006-preempted-tracepoints.md. */
SEC("tp/sched/sched_process_exit")
int label_exit_tp(void *ctx) { return label_leave(bpf_get_current_task_btf()); }

/* FIRES once for each write to cgroup.procs or cgroup.threads that moves something, as the
 * writer. COVERAGE not CLONE_INTO_CGROUP, which label_newtask sees. SOURCE cgroup_attach_task. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(label_attach, struct cgroup *dst, const char *path, struct task_struct *task, bool group) {
    return label_moved(dst, task);
}

/* Not a hook: the agent reads it with a pid set on the link, to learn the address of the dentry
 * that is "/" to that task. 8 bytes a task. */
SEC("iter/task")
int task_root(struct bpf_iter__task *ctx) { return label_root(ctx); }

/* Not a hook: the agent reads it to label every task below the cgroup that it has just bound. */
SEC("iter/task")
int label_present(struct bpf_iter__task *ctx) { return label_starting(ctx); }
