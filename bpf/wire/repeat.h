/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/record.h"

/* Stands for `count` records of the same (sandbox, code) beyond the rate. Each took a
 * kernel_seq and raised sk_state.suppressed, which explains the gap. */
struct sk_repeat {
    struct sk_head head;
    __u64 count;
    __u64 first_boot_ns;
};
