/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* From a kernel object to what the policy says of its path.
 *
 *   walk   leaf -> root over dentries and mounts; hashes each component; notes each sequence count
 *   eval   root -> leaf through the automaton, over the hashes
 *   recheck  walks again; equal sequence counts prove that the path existed at one instant
 *
 * Nothing is cached, so nothing has to be invalidated. The open file pins its ancestors; a rename
 * anywhere above changes a sequence count and the verdict starts again, at most
 * SK_PATH_RETRIES times, then it is deny. Mounts are not covered by this check: mount,
 * umount and pivot_root are refused to sandboxes. */
#pragma once
#include "bpf/lib/errors.h"
#include "bpf/wire/record.h"

/* 0.2 to 0.4 % of opens raced under a rename loop on the other CPU (measured): three tries
 * leave 1e-8. */
#define SK_PATH_RETRIES 3

/* Results below 0 of path_query: the path cannot be told, which means deny. */
enum {
    SK_PATH_ERR_RACE = -1,
    SK_PATH_ERR_DEEP = -2,
    SK_PATH_ERR_UNREACHABLE = -3,
    SK_PATH_ERR_READ = -4,
    SK_PATH_ERR_POLICY = -5,
};

/* Global functions, so that each is verified once and not once for each hook.
 * path_query: 0 and query->bits, or an SK_PATH_ERR_*. */
int path_query(struct sk_path_query *query);
int path_eval(struct sk_path_query *query);
__u64 file_of_fd(__u32 fd);
/* What a verdict needs of an open file. */
struct sk_file_view {
    __u64 mnt;
    __u64 dentry;
    __u32 mode;  /* f_mode */
    __u32 flags; /* f_flags */
    __u32 kind;  /* i_mode & S_IFMT */
    __u32 pad;
};
/* Of a descriptor of the current task; below 0 = there is none. */
int fd_view(struct sk_file_view *out, __u32 fd);
/* What a verdict needs of a socket. */
struct sk_socket_view {
    __u64 sk;
    __u64 cgroup; /* in which it was made */
    __u16 family;
    __u16 type;
    __u16 protocol;
    __u16 pad;
};
/* Of a descriptor of the current task; below 0 = it is none of a socket. */
int fd_socket(struct sk_socket_view *out, __u32 fd);
/* Sets query->leaf_magic and leaf_nlink. */
int path_leaf(struct sk_path_query *query);
/* The hash of up to 255 bytes of kernel memory; 0 when they cannot be read. */
__u64 hash_long(__u64 name, __u32 len);
/* Writes the components, leaf first, for a record. */
int path_record(struct sk_path *out, struct sk_path_query *query);

/* An index that the verifier believes in; values out of range become 0. */
#define SK_STRING_(x) #x
#define SK_STRING(x) SK_STRING_(x)
#define slot_index(x)                                                                      \
    ({                                                                                     \
        __u64 index_ = (__u32)(x);                                                         \
        asm volatile("if %0 < " SK_STRING(SK_PATH_SLOTS) " goto +1; %0 = 0;" : "+r"(index_)); \
        index_;                                                                            \
    })
#define compiler_barrier() asm volatile("" ::: "memory")
