/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* A compiled policy as the kernel reads it.
 *
 * Shape: 256-byte cells, the one value of a BPF ARRAY that is frozen before it is published, so
 * neither a sandbox nor a stray writer can change a verdict that is being taken. Indices below
 * count cells from 0.
 *
 *   cell 0                              struct sk_policy_head
 *   cell 1                              byte classes: class of each byte value, for globs
 *   [edge_cell, + (edge_mask+1)/4)      hash table: 4 buckets a cell, 4 entries a bucket
 *   [glob_cell, + glob_rows)            byte-DFA rows: 128 x __u16, row 0 unused
 *
 * One automaton over path components serves all operations: each state carries the allow
 * and deny bits of the patterns that end there. Patterns of the form two-stars-slash-NAME
 * stay outside it, as names looked up for each component, for inside they multiply states.
 * All integers are in the byte order of the host: the table never leaves it. */
#pragma once
#include "bpf/wire/base.h"

#define SK_POLICY_MAGIC 0x534b504fU /* "SKPO" */
#define SK_POLICY_ABI 1
#define SK_CELL_BYTES 256
#define SK_HEAD_CELL 0
#define SK_CLASS_CELL 1
#define SK_ENTRIES_PER_BUCKET 4
#define SK_BUCKETS_PER_CELL 4
#define SK_GLOB_CLASSES 128
/* Column of a glob row that holds the result at the end of the name. */
#define SK_GLOB_END (SK_GLOB_CLASSES - 1)
/* The kernel keeps a table as one value of a map, so that a verdict reads it without a call. Values
 * of one map are all of one size: 64 KiB holds shipped policies, 512 KiB 1,000 patterns, and 4 MiB is
 * the largest value that 6.1 takes (KMALLOC_MAX_SIZE). The compiler refuses a policy beyond it. */
#define SK_POLICY_CELLS_SMALL (1 << 8)
#define SK_POLICY_CELLS_MEDIUM (1 << 11)
#define SK_POLICY_CELLS_LARGE (1 << 14)
#define SK_POLICY_MAX_CELLS SK_POLICY_CELLS_LARGE
#define SK_GLOB_MAX_ROWS 16384
/* Path components plus mount crossings that a verdict looks at; deeper paths are denied.
 * Real trees stay under 16; the bound keeps the verifier's walk finite. */
#define SK_PATH_SLOTS 24

/* Operations of a path verdict. Deny bit = allow bit << SK_DENY_SHIFT; deny wins. */
#define SK_OP_READ 0x01
#define SK_OP_WRITE 0x02
#define SK_OP_EXEC 0x04
#define SK_OP_MAP 0x08  /* map as code: libraries and the ELF interpreter */
#define SK_OP_UNIX 0x10 /* connect to the unix socket bound at this path */
#define SK_OP_MASK 0xffU
#define SK_DENY_SHIFT 8
#define SK_VERDICT_MASK 0xffffU

/* Flags of a state, beside its verdict bits, in the same 32-bit meta word. */
#define SK_META_EDGES 0x10000U      /* has literal edges */
#define SK_META_STAR 0x20000U       /* default edge to another state, under SK_HASH_STAR */
#define SK_META_SELF 0x40000U       /* default edge to itself ("**") */
#define SK_META_GLOB 0x80000U       /* globs within a component leave this state */
/* A pattern with deny bits can match below this state and would cease to if the directory were
 * renamed. Patterns that begin with two stars count only once a name of theirs has been seen:
 * what matches under any ancestor still does after the ancestor's renaming. */
#define SK_META_DENY_BELOW 0x100000U
#define SK_META_VALID 0x80000000U   /* set in every entry, so that a stored value is never 0 */

/* Reserved component hashes and states; real hashes are secret, so these cannot be aimed at. */
#define SK_HASH_STAR 0x5354415253544152ULL
#define SK_HASH_GLOB 0x474c4f42474c4f42ULL
#define SK_STATE_DEAD 0U
#define SK_STATE_START 1U
#define SK_STATE_ANYNAME 0xfffffeU /* table of names of two-stars-slash-NAME patterns */
#define SK_STATE_ANYGLOB 0xffffffU /* the same for NAME with a glob in it */

/* sk_policy_head.flags */
#define SK_POLICY_ANYNAME 0x01U      /* names outside the automaton exist */
#define SK_POLICY_ANYGLOB_LEAF 0x02U /* a glob name that only the last component is tested for */
#define SK_POLICY_ANYGLOB_ALL 0x04U  /* a glob name that every component is tested for */
#define SK_POLICY_HAS_EXEC 0x10U     /* section present; an absent one is observed, not enforced */
#define SK_POLICY_HAS_FILES 0x20U
#define SK_POLICY_HAS_NETWORK 0x40U
#define SK_POLICY_HAS_UIDS 0x80U     /* network.uids present: uid classes are looked up */
#define SK_POLICY_HAS_NAMES 0x200U   /* network rules by name: pinned addresses are looked up */
#define SK_POLICY_HAS_TLS_NAMES 0x400U /* some of them with `tls_name: strict` */
#define SK_POLICY_HAS_DENIED 0x800U  /* single addresses are denied, whatever the rules allow */
#define SK_POLICY_DENY_ALL 0x100U    /* built-in profile of a sandbox without policy */

/* Sections, indices into violation[] and record[]. */
enum sk_section {
    SK_SECTION_EXEC = 0,
    SK_SECTION_FILES = 1,
    SK_SECTION_NETWORK = 2,
    SK_SECTION_ESCAPE = 3, /* everything that grants: speaks of */
    SK_SECTION_DNS = 4,
    SK_SECTION_ENTERED = 5,
    SK_SECTION_COUNT = 6,
    SK_SECTION_SLOTS = 8,
};

enum sk_record { SK_RECORD_VIOLATIONS = 0, SK_RECORD_FIRST = 1, SK_RECORD_ALL = 2 };
enum sk_mode { SK_MODE_ENFORCE = 0, SK_MODE_OBSERVE = 1 };

/* Grants, bits of sk_policy_head.grants. One row per name; the parser, the schema, explain
 * and the kernel read this list. X(bit, NAME, yaml name) */
#define SK_GRANTS(X)                                                          \
    X(0, IO_URING, "io_uring")                                                \
    X(1, BPF, "bpf")                                                          \
    X(2, PERF_EVENT, "perf_event")                                            \
    X(3, PTRACE, "ptrace") /* ptrace, process_vm_*, /proc/PID/mem, pidfd_getfd */ \
    X(4, MOUNT, "mount")   /* mount family and pivot_root */                  \
    X(5, CHROOT, "chroot")                                                    \
    X(6, SETNS, "setns")                                                      \
    X(7, USERNS, "userns") /* clone and unshare of user namespaces */         \
    X(8, MNTNS, "mntns")   /* clone and unshare of mount namespaces */        \
    X(9, USERFAULTFD, "userfaultfd")                                          \
    X(10, KEYCTL, "keyctl")                                                   \
    X(11, MODULE, "module")                                                   \
    X(12, KEXEC, "kexec")                                                     \
    X(13, MEMFD_EXEC, "memfd_exec") /* execute or map as code what has no path */ \
    X(14, RAW_SOCKET, "raw_socket")                                           \
    X(15, PACKET_SOCKET, "packet_socket")                                     \
    X(16, PING_SOCKET, "ping_socket")                                         \
    X(17, VSOCK, "vsock")                                                     \
    X(18, AF_ALG, "af_alg")                                                   \
    X(19, NETLINK, "netlink") /* netlink protocols other than route */        \
    X(20, SCTP, "sctp")                                                       \
    X(21, OTHER_SOCKET, "other_socket") /* any family, type, protocol left */ \
    X(22, SOCKET_RECEIVE, "socket_receive") /* sockets made outside, handed in */ \
    X(23, OPEN_BY_HANDLE, "open_by_handle")                                   \
    X(24, CGROUP_WRITE, "cgroup_write") /* cgroup.procs and kin */

enum sk_grant {
#define X(bit, NAME, yaml) SK_GRANT_##NAME = bit,
    SK_GRANTS(X)
#undef X
};

/* One network prefix length in use: the verdict tries each, so its cost grows with the
 * number of different lengths and not with the number of rules. */
struct sk_prefix {
    __u8 family; /* 4 or 6; IPv4-mapped addresses are judged as 4 */
    __u8 bits;   /* 0..32 or 0..128 */
};
/* Real policies use two or three lengths. More is refused by the compiler. */
#define SK_MAX_PREFIXES 24

struct sk_policy_head {
    __u32 magic;      /* SK_POLICY_MAGIC */
    __u32 abi;        /* SK_POLICY_ABI */
    __u64 id;         /* first 8 bytes, big-endian, of SHA-256 of the canonical document and of
                         what its symbolic links resolved to: equal ids, equal verdicts */
    __u64 grants;     /* bit per SK_GRANT_* */
    __u32 flags;      /* SK_POLICY_* */
    __u32 edge_cell;
    __u32 edge_mask;  /* buckets - 1; buckets are a power of two, at least 4 */
    __u32 glob_cell;
    __u32 glob_rows;
    __u32 start_meta; /* meta word of SK_STATE_START */
    __u32 anyglob_row; /* start row of the byte DFA over all any-globs; 0 = none */
    __u8 mode;        /* enum sk_mode */
    __u8 entered;     /* enum sk_verdict: DENY, OBSERVE or ALLOW (= enforce) */
    __u8 prefixes;    /* used rows of prefix[] */
    __u8 pad0;
    __u8 violation[SK_SECTION_SLOTS]; /* enum sk_verdict: DENY, KILL_PROCESS, KILL_SANDBOX */
    __u8 record[SK_SECTION_SLOTS];    /* enum sk_record */
    struct sk_prefix prefix[SK_MAX_PREFIXES];
    __u64 pad[17];
};

/* One entry of the hash table. key 0 = empty. */
struct sk_entry {
    __u64 key;
    __u32 next; /* next state, glob row, or leaf verdict bits */
    __u32 meta; /* SK_META_VALID always set */
};

union sk_cell {
    struct sk_policy_head head;
    __u8 classes[SK_CELL_BYTES];
    struct sk_entry bucket[SK_BUCKETS_PER_CELL][SK_ENTRIES_PER_BUCKET];
    __u16 row[SK_GLOB_CLASSES];
};

SK_STATIC_ASSERT(sizeof(struct sk_policy_head) == SK_CELL_BYTES, "head fills one cell");
SK_STATIC_ASSERT(sizeof(union sk_cell) == SK_CELL_BYTES, "cells are 256 bytes");
