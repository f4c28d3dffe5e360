// SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause
/* Programs that a probe attaches for an instant, to see whether their verdict is obeyed:
 * attach succeeding proves nothing (a kernel with CONFIG_BPF_LSM but without "bpf" in its LSM
 * list attaches LSM programs and never runs them).
 *
 * They judge only tasks whose cgroup is exactly the probe's throw-away one. */
#define SK_KERNEL_TYPES
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "bpf/canary/canary.h"

#define EPERM 1
#define SIGKILL 9

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct skc_control);
} skc_control SEC(".maps");

static __always_inline struct skc_control *aimed_at_current(void) {
    __u32 zero = 0;
    struct skc_control *control = bpf_map_lookup_elem(&skc_control, &zero);
    if (!control || !control->cgroup_id) return 0;
    return bpf_get_current_cgroup_id() == control->cgroup_id ? control : 0;
}

SEC("lsm/file_open")
int BPF_PROG(skc_lsm, void *file, int ret) {
    if (ret) return ret;
    struct skc_control *control = aimed_at_current();
    if (!control) return 0;
    __sync_fetch_and_add(&control->lsm_hits, 1);
    return -EPERM;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(skc_exec) {
    struct skc_control *control = aimed_at_current();
    if (!control) return 0;
    __sync_fetch_and_add(&control->exec_hits, 1);
    bpf_send_signal(SIGKILL);
    return 0;
}

/* So long that the timer, or whoever sleeps on this CPU, comes while it runs. */
SEC("tp_btf/sys_exit")
int BPF_PROG(skc_hold) {
    struct skc_control *control = aimed_at_current();
    if (!control) return 0;
    __sync_fetch_and_add(&control->hold_hits, 1);
    for (int i = 0; i < 1000; i++) bpf_ktime_get_ns();
    return 0;
}

/* Attached to the throw-away cgroup itself, so it needs no aim. 0 = refuse. */
SEC("cgroup/connect4")
int skc_connect(struct bpf_sock_addr *ctx) {
    __u32 zero = 0;
    struct skc_control *control = bpf_map_lookup_elem(&skc_control, &zero);
    if (control) __sync_fetch_and_add(&control->connect_hits, 1);
    return 0;
}
