/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What is fixed at load, and the one word that the agent sets for an iterator. */
#include "bpf/lib/maps.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const volatile struct sk_hash_keys keys = {};
const volatile __u8 backend = 0;
const volatile __u8 program_set = 0;
const volatile __u8 cgroup_signal = 0;
__u32 present_slot = 0;
