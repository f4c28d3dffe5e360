/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/record.h"

/* Once for each process (the last thread), not for each thread. */
struct sk_exit {
    struct sk_head head;
    __u32 status; /* as wait(2): signal in the low 7 bits, exit code << 8 */
    __u32 pad;
};
