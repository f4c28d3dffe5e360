/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* One operation that is being judged. Lives in the storage of the task that does it, beside its
 * label: 400 bytes are too many for a stack of 512 shared by a chain of calls, a per-CPU map is
 * unsafe where the kernel preempts, and a task does one thing at a time. */
#pragma once
#include "bpf/lib/compat.h"
#include "bpf/wire/policy.h"
#include "bpf/wire/record.h"
#include "bpf/wire/slot.h"

/* What is asked for and found. */
struct sk_path_query {
    __u64 dentry;      /* in: kernel address of the leaf */
    __u64 mnt;         /* in: kernel address of its vfsmount */
    __u64 root_dentry; /* in: where the sandbox's paths start */
    __u32 policy_index; /* in */
    __u32 bits;        /* out: allow and deny bits, SK_VERDICT_MASK */
    __u32 leaf_meta;   /* out: meta word of the state the whole path ends in */
    __u32 slots;       /* components and mount crossings; 0 of hash = a crossing */
    __u64 fingerprint; /* of the sequence counts of the first walk */
    __u64 path_hash;   /* of all components */
    /* Cursor of the loops over the levels. In this memory and not on the stack: what is read back
     * from here is a number to the verifier, so that every level looks alike to it. */
    __u64 at_dentry;
    __u64 at_mnt;
    __u64 at_top;      /* root dentry of at_mnt */
    __u64 at_print;    /* fingerprint so far */
    __u64 leaf_magic;  /* set by path_leaf: of the file system, and the inode's link count (1 if none) */
    __u32 leaf_nlink;
    __u32 race;
    __u32 any_root;    /* in: the path may also start at the root of the mounts, where that is not the sandbox's */
    __u32 pad3;
    __u32 leaf_slot;   /* of the leaf's name: not 0 where the leaf is the root of a mount */
    int result;        /* of the loop: SK_PATH_ERR_*, 0 */
    __u64 hash[SK_PATH_SLOTS];
    __u64 name[SK_PATH_SLOTS]; /* kernel addresses of the names' bytes, for globs */
    __u8 len[SK_PATH_SLOTS];
    /* of the automaton between two components */
    __u32 state;
    __u32 meta;
    __u32 left; /* components not yet eaten; the leaf's is slot 0 */
    __u32 row;  /* of the byte DFA, and the length of the name that it eats */
    __u32 name_len;
    __u32 pad2;
    __u64 edge; /* entry of the table that the component takes; 0 = none */
};

/* What the hook can do about the operation that it sees. */
enum sk_power {
    SK_POWER_REFUSE = 1,     /* its return value refuses */
    SK_POWER_KILL = 2,       /* cannot refuse, but a signal comes before the effect (exec) */
    SK_POWER_KILL_AFTER = 3, /* the effect has happened; a signal comes before the next instruction */
    SK_POWER_SEE = 4,        /* can only report */
    SK_POWER_KILL_ALL = 6,  /* as KILL_AFTER, but what the caller got may be in other hands: the whole sandbox dies */
    SK_POWER_REFUSE_ONLY = 5, /* refuses, and never kills: the kernel asks this on its own account too */
    SK_POWER_REFUSE_QUIET = 7, /* the same, and it says that it does: no violation, no record */
};

enum sk_ring { SK_RING_NONE = 0, SK_RING_TELEMETRY = 1, SK_RING_VIOLATION = 2 };

struct sk_case {
    __u64 policy_id;
    __u64 grants;
    __u64 root_dentry;  /* where the sandbox's paths start */
    __u64 path_hash;    /* tells objects apart for `record: first` */
    __u32 policy_index; /* read once per verdict */
    __u32 slot;
    __u32 generation;
    __u32 entered; /* SK_LABEL_STARTING, SK_LABEL_ENTERED or 0 */
    __u32 code;    /* enum sk_code; set by the subject between open and settle */
    __u32 op;      /* of the subject: part of `record: first` and of the record */
    __u8 section;
    __u8 power;    /* enum sk_power */
    __u8 by;       /* enum sk_backend that judges */
    __u8 role;     /* of the subject: enum sk_exec_role */
    __u8 entered_rule; /* sk_policy_head.entered */
    __u8 verdict;  /* the rest is set by settle */
    __u8 outcome;
    __u8 lock;
    __u8 flags;    /* SK_RECORD_* */
    __u8 ring;     /* enum sk_ring; NONE = no record */
    __u8 refuse;   /* return -EPERM */
    __u8 kill;     /* SIGKILL the caller */
};

/* A case about an object that has a path. */
struct sk_path_case {
    struct sk_case base;
    struct sk_path_query query;
};

/* Value of the map `tasks`. The label comes first: the agent writes it through a pidfd. */
struct sk_task {
    struct sk_label label;
    __u64 cgroup; /* kernel address of the cgroup in which the task was last found at home */
    __u64 files;  /* kernel address of its descriptor table at the end of its last call; 0 = none yet */
    __u64 judged; /* kernel address of the object that its call was judged for, on its way */
    struct sk_path_case scratch;
};
