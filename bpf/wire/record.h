/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The head of every record in a ring, and the parts that records share.
 * Multi-byte fields are in host order unless said; a record is 8-aligned. */
#pragma once
#include "bpf/wire/kinds.h"

#define SK_RECORD_ABI 1

struct sk_head {
    __u64 boot_ns;       /* CLOCK_BOOTTIME when the verdict was taken */
    __u64 kernel_seq;    /* per sandbox, taken before the reserve: a lost record is a gap */
    __u64 policy_id;     /* sk_policy_head.id that judged; 0 = none */
    __u64 start_boot_ns; /* start of the thread group's leader: (tgid, start) is the process */
    __u64 cgroup_id;     /* of the task at that moment */
    __u32 slot;          /* sandbox slot; its label's generation follows */
    __u32 generation;
    __u32 tgid;          /* in the initial pid namespace */
    __u32 tid;
    __u32 uid;           /* effective, initial user namespace */
    __u32 code;          /* enum sk_code */
    __u16 kind;          /* enum sk_kind */
    __u16 bytes;         /* size of the whole record */
    __u8 abi;            /* SK_RECORD_ABI */
    __u8 verdict;        /* enum sk_verdict: what the policy says */
    __u8 outcome;        /* enum sk_outcome: what became of the operation */
    __u8 lock;           /* enum sk_lock */
    __u8 backend;        /* enum sk_backend */
    __u8 section;        /* enum sk_section */
    __u8 flags;          /* SK_RECORD_* */
    __u8 program_set;    /* low byte of the attached set's id: two sets overlap in an upgrade */
    __u32 pad;
    char comm[16];       /* chosen by the sandbox; may lack a final NUL */
};

#define SK_RECORD_ENTERED 0x01   /* the task came from outside and is judged as entered */
#define SK_RECORD_THREAD 0x02    /* tid != tgid at the verdict */
#define SK_RECORD_UNVERIFIED 0x04 /* the path is as the caller wrote it, not kernel-resolved */
#define SK_RECORD_OBSERVE 0x08   /* mode: observe: would have been refused */

SK_STATIC_ASSERT(sizeof(struct sk_head) == 96, "no holes");

/* A path, by the walk of dentries from the object to the sandbox's root: components leaf
 * first, each a length byte and its bytes, no separators. User space turns it round. */
#define SK_PATH_BYTES 1024
#define SK_PATH_TRUNCATED 0x01   /* more components or bytes than fit */
#define SK_PATH_UNREACHABLE 0x02 /* ended at a mount that hangs nowhere: memfd, lazy umount */
#define SK_PATH_DELETED 0x04     /* link count 0 */
#define SK_PATH_ASWRITTEN 0x08   /* bytes hold one string as the caller wrote it */

struct sk_path {
    __u64 inode;
    __u32 device;    /* dev_t of the super block, kernel encoding: major << 20 | minor */
    __u16 bytes_len; /* used bytes */
    __u8 components;
    __u8 flags;      /* SK_PATH_* */
    __u8 bytes[SK_PATH_BYTES];
};
SK_STATIC_ASSERT(sizeof(struct sk_path) == 1040, "no holes");
