/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What the canary programs and userspace/kernel/probe_canary.cc share. */
#pragma once
#include "bpf/wire/base.h"

/* Map `skc_control`, one entry. */
struct skc_control {
    __u64 cgroup_id; /* of the throw-away cgroup; 0 matches nothing */
    __u64 lsm_hits;  /* times each program saw a task of that cgroup */
    __u64 exec_hits;
    __u64 connect_hits;
    __u64 hold_hits;
};
