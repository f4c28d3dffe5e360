/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/wire/record.h"

/* X(number, NAME, text, op): op = SK_OP_* that the policy is asked for. */
#define SK_FILE_OPS(X)                  \
    X(1, OPEN_READ, "open-read")        \
    X(2, OPEN_WRITE, "open-write")      \
    X(3, CREATE, "create")              \
    X(4, TRUNCATE, "truncate")          \
    X(5, UNLINK, "unlink")              \
    X(6, RENAME, "rename")              \
    X(7, LINK, "link")                  \
    X(8, SYMLINK, "symlink")            \
    X(9, MKNOD, "mknod")                \
    X(10, MKDIR, "mkdir")               \
    X(11, RMDIR, "rmdir")               \
    X(12, CHMOD, "chmod")               \
    X(13, CHOWN, "chown")               \
    X(14, SETXATTR, "setxattr")         \
    X(15, UTIMES, "utimes")             \
    X(16, HANDLE, "open-by-handle")     \
    X(17, READDIR, "open-directory")

enum sk_file_op {
#define X(number, NAME, text) SK_FILE_##NAME = number,
    SK_FILE_OPS(X)
#undef X
};

struct sk_file {
    struct sk_head head;
    struct sk_path path;
    __u32 op;         /* enum sk_file_op */
    __u32 open_flags; /* f_flags for opens, mode bits for chmod, mknod; else 0 */
    __s32 error;      /* errno of a refusal by another lock; 0 else */
    __u32 pad;
};
