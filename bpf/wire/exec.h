/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/record.h"

#define SK_ARGV_BYTES 1024

enum sk_exec_role {
    SK_EXEC_PROGRAM = 0,     /* the file given to execve */
    SK_EXEC_INTERPRETER = 1, /* what its #! line names */
    SK_EXEC_MAPPED = 2,      /* mapped as code: ld.so PROGRAM, a library, mprotect */
};

struct sk_exec {
    struct sk_head head;
    struct sk_path path;
    __u64 parent_start_boot_ns; /* 0 when the parent is unknown */
    __u32 parent_tgid;
    __u32 old_tid;    /* tid of the thread that called execve */
    __u16 argv_len;   /* bytes used in argv; 0 for a refused exec: the new image never was */
    __u8 argv_truncated;
    __u8 role;        /* enum sk_exec_role */
    __u32 argc;
    char argv[SK_ARGV_BYTES]; /* NUL-separated, from the new program's memory: unverified */
};
