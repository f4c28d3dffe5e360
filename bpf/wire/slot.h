/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The state of a sandbox as the kernel keeps it, found by the slot number of a task's label. */
#pragma once
#include "bpf/wire/hash.h"
#include "bpf/wire/kinds.h"

/* Sandboxes on a node; slot 0 is never used, so a zeroed label means none. */
#define SK_MAX_SLOTS 4097
/* Compiled policies of one size at once: one for each sandbox, and as many again so that every one
 * of them can be swapped without waiting for the grace period of an index. */
#define SK_MAX_POLICIES 8192
/* A policy index is size * SK_MAX_POLICIES + place in the map of that size. */
enum sk_policy_size { SK_POLICY_SMALL = 0, SK_POLICY_MEDIUM = 1, SK_POLICY_LARGE = 2, SK_POLICY_SIZES = 3 };
#define SK_NO_POLICY (SK_POLICY_SIZES * SK_MAX_POLICIES)
/* Levels of the cgroup tree at which sandboxes are looked for by ancestor. Systemd's deepest
 * pod path has 6; beyond 24 the kernel itself refuses in practice. */
#define SK_MAX_CGROUP_LEVEL 24

/* Different levels at once; a node has one for launched sandboxes and two or three for pods. */
#define SK_MAX_LEVELS 8

/* Map `tasks`: task storage. Frozen at birth, inherited at task_newtask and nowhere else. */
struct sk_label {
    __u32 slot;       /* 1..SK_MAX_SLOTS-1 */
    __u32 generation; /* must equal the slot's, else the label is of a sandbox that is gone;
                         the two top bits say how the task came in */
};
/* Present when the cgroup was bound (a container runtime's init): judged from its next execve on,
 * by the policy, for that is how the sandbox starts. */
#define SK_LABEL_STARTING 0x40000000U
/* Came from outside later: its next execve falls under `entered:`. A task without a label below
 * the cgroup counts as such. */
#define SK_LABEL_ENTERED 0x80000000U
#define SK_LABEL_UNJUDGED (SK_LABEL_STARTING | SK_LABEL_ENTERED)
/* Dies at its next system call, or is refused by the next hook: born into a namespace that needs a
 * grant. */
#define SK_LABEL_DOOMED 0x20000000U
#define SK_GENERATION_MASK 0x1fffffffU

enum sk_slot_state { SK_SLOT_FREE = 0, SK_SLOT_LIVE = 1 };
/* Nobody enters from outside: a task below the cgroup without a label is one of the sandbox, whose
 * birth was not seen, and is judged. */
#define SK_SLOT_CLOSED 1U

/* Map `slots`: written by the agent, read by every verdict. */
struct sk_slot {
    __u64 cgroup_id;    /* of the sandbox's own cgroup */
    __u64 root_dentry;  /* kernel address of the dentry that is "/" inside: where paths start */
    __u32 generation;   /* 1..; grows each time the slot is used again */
    __u32 state;        /* enum sk_slot_state */
    __u32 policy_index; /* read once per verdict */
    __u32 cgroup_level; /* of cgroup_id, root = 0 */
    __u32 flags;        /* SK_SLOT_CLOSED */
    __u32 pad;
};

/* Map `states`: written by the kernel side; the agent zeroes it when it binds a slot. */
struct sk_state {
    __u64 seq;            /* next kernel_seq - 1 */
    __u64 lost;           /* records that found a full ring */
    __u64 suppressed;     /* records beyond the sandbox's rate, counted into `repeat` records */
    __u64 tokens_ns;      /* telemetry bucket: boot time up to which tokens are spent */
    __u64 condemned_ns;   /* boot time of the condemning violation; 0 = not condemned */
    __u32 condemned_code; /* enum sk_code of it */
    __s32 tasks;          /* labelled tasks alive */
    __u64 allowed[8];     /* per enum sk_section: operations that were allowed */
    __u64 violations[8];  /* per enum sk_section: DENY or worse, also when only observed */
    __u64 window_ns;      /* start of the violation-rate second */
    __u32 window_count;
    __u32 dooms;          /* descriptor tables of this sandbox in `doomed_files`, ever */
    __u64 dns_tokens_ns;  /* as tokens_ns, of the records that refunds are made from */
};

#define SK_CONFIG_ABI 1

/* Map `config`, one entry: what all programs must agree on, replaced whole. */
struct sk_config {
    struct sk_hash_keys keys;
    __u64 levels;      /* cgroup levels at which sandboxes are bound: one a byte, 0 = no more */
    __u32 live_slots;  /* 0 = every program returns at once */
    __u32 agent_tgid;  /* initial pid namespace; never judged */
    __u32 abi;
    __u32 pad;
};

/* Map `errors`: per-CPU counter by site. X(number, NAME): what failed. */
#define SK_ERROR_SITES(X)                                                     \
    X(0, LABEL_STORAGE)   /* task storage not to be had at birth */           \
    X(1, RING_LIFECYCLE)  /* ring full */                                     \
    X(2, RING_VIOLATIONS)                                                     \
    X(3, RING_TELEMETRY)                                                      \
    X(4, POLICY_MISSING)  /* a live slot without a policy: denied */          \
    X(5, WALK_RACE)       /* path changed while it was read, retries used up */ \
    X(6, WALK_DEEP)       /* more than SK_PATH_SLOTS */                       \
    X(7, WALK_UNREACHABLE) /* ended at a mount that hangs nowhere */          \
    X(8, WALK_READ)       /* kernel memory not readable */                    \
    X(9, SEND_SIGNAL)                                                         \
    X(10, ARGV_READ)                                                          \
    X(11, SLOT_STALE)     /* label of a generation that is gone */            \
    X(12, FD_READ)        /* the returned descriptor's file not found */ \
    X(13, DNS_WORK)       /* all places to judge a query in were taken: dropped */

enum sk_error_site {
#define X(number, NAME) SK_ERROR_##NAME = number,
    SK_ERROR_SITES(X)
#undef X
    SK_ERROR_COUNT = 32,
};
