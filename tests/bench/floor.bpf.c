/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The price of any program at the end of system calls: it does nothing. Figures inside a sandbox stand on it. */
#include "bpf/lib/kernel_types.h"

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/sys_exit")
int bench_floor(void *context) { return 0; }
