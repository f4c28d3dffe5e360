/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/record.h"

enum sk_lifecycle_op {
    SK_LIFECYCLE_CONDEMNED = 1, /* by no call that a record tells of: a task left the cgroup, ...; head.code says which */
    SK_LIFECYCLE_ENTERED = 2,   /* a task came in from outside */
    SK_LIFECYCLE_EMPTY = 3,     /* the sandbox's last labelled task has gone */
};

struct sk_lifecycle {
    struct sk_head head;
    __u32 op;    /* enum sk_lifecycle_op */
    __u32 tasks; /* labelled tasks alive at that moment */
};
