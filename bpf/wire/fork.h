/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/record.h"

/* A new process (threads are not recorded). head is the parent's. */
struct sk_fork {
    struct sk_head head;
    __u64 child_start_boot_ns;
    __u64 clone_flags;
    __u32 child_tgid;
    __u32 pad;
};
