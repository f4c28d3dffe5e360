/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/base.h"

enum sk_slot_op {
    SK_SLOT_CONDEMN = 1,   /* argument: enum sk_code */
    SK_SLOT_ADD_TASKS = 2, /* argument: labelled tasks that came */
};

/* Context of the program slot_call; its result is 0, or -1 when the generation is gone. */
struct sk_slot_call {
    __u32 slot;
    __u32 generation;
    __u32 op;
    __u32 argument;
};
