/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The context of the program selftest_path: what it is asked, what it answers. */
#pragma once
#include "bpf/wire/base.h"

#define SK_SELFTEST_OWN_ROOT 0xffffffffU
#define SK_SELFTEST_PLACES 8

struct sk_selftest_call {
    __u32 fd;           /* in: the file to judge, in the caller's table */
    __u32 root_fd;      /* in: a directory that is "/", or SK_SELFTEST_OWN_ROOT */
    __u32 policy_index; /* in */
    __u32 bits;         /* out: allow and deny bits */
    __u32 leaf_meta;    /* out */
    __u32 slots;        /* out */
    __s32 rc;           /* out: of path_query; below 0 = the path cannot be told */
    __u32 place;        /* in: number of the calling thread, below SK_SELFTEST_PLACES */
};
