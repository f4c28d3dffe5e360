/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The kernel structures that we read, and of them only the fields that we read. CO-RE moves
 * every access to where the running kernel keeps the field; order and gaps here mean nothing.
 * The source file of each structure stands above it. */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* include/linux/seqlock_types.h */
struct seqcount {
    unsigned int sequence;
};
typedef struct seqcount seqcount_t;
struct seqcount_spinlock {
    seqcount_t seqcount;
};
typedef struct seqcount_spinlock seqcount_spinlock_t;

/* include/linux/dcache.h */
struct qstr {
    union {
        struct {
            __u32 hash;
            __u32 len;
        };
        __u64 hash_len;
    };
    const unsigned char *name;
};
struct inode;
struct super_block;
struct dentry {
    unsigned int d_flags;
    seqcount_spinlock_t d_seq;
    struct dentry *d_parent;
    struct qstr d_name;
    struct inode *d_inode;
    struct super_block *d_sb;
};

/* include/linux/fs.h, include/linux/fs/super_types.h */
struct super_block {
    unsigned int s_dev;
    unsigned long s_flags;
    unsigned long s_magic;
};
struct inode {
    unsigned short i_mode;
    struct super_block *i_sb;
    unsigned long i_ino;
    unsigned int i_nlink;
};

/* include/linux/mount.h, fs/mount.h */
struct vfsmount {
    struct dentry *mnt_root;
    struct super_block *mnt_sb;
    int mnt_flags;
};
struct mount {
    struct mount *mnt_parent;
    struct dentry *mnt_mountpoint;
    struct vfsmount mnt;
};

/* include/linux/path.h, include/linux/fs.h */
struct path {
    struct vfsmount *mnt;
    struct dentry *dentry;
};
struct file {
    unsigned int f_mode;
    unsigned int f_flags;
    struct path f_path;
    struct inode *f_inode;
    void *private_data;
};

/* fs/file_table.c, SINCE 6.5 */
struct backing_file {
    struct file file;
    struct path user_path;
};

/* include/linux/binfmts.h */
struct linux_binprm {
    struct file *executable;
    struct file *interpreter;
    struct file *file;
    int argc;
    const char *filename;
    const char *interp;
};

/* include/linux/kernfs.h, include/linux/cgroup-defs.h */
struct kernfs_node {
    __u64 id;
};
struct cgroup_root {
    int hierarchy_id;
};
struct cgroup {
    struct cgroup_root *root;
    int level;
    struct kernfs_node *kn;
    struct cgroup *ancestors[];
};
struct css_set {
    struct cgroup *dfl_cgrp;
};

/* include/linux/fdtable.h */
struct fdtable {
    unsigned int max_fds;
    struct file **fd;
};
struct files_struct {
    struct fdtable *fdt;
};
/* fs/fs_struct.h */
struct fs_struct {
    struct path root;
    struct path pwd;
};

/* include/linux/cred.h, include/linux/uidgid_types.h */
typedef struct {
    unsigned int val;
} kuid_t;
struct user_namespace;
struct cred {
    kuid_t uid;
    kuid_t euid;
    kuid_t fsuid;
    struct user_namespace *user_ns;
};
struct file;
struct mm_struct {
    struct file *exe_file;
    unsigned long arg_start;
    unsigned long arg_end;
};
typedef struct {
    int counter;
} atomic_t;
struct signal_struct {
    atomic_t live;
};
struct thread_info {
    unsigned long flags;
    __u32 status;
};

/* include/linux/pid.h */
struct hlist_node {
    struct hlist_node *next;
};
struct hlist_head {
    struct hlist_node *first;
};
struct pid {
    struct hlist_head tasks[4];
};

/* include/linux/sched.h */
struct task_struct {
    struct thread_info thread_info;
    unsigned int flags;
    int pid;
    int tgid;
    int exit_code;
    __u64 start_boottime;
    struct task_struct *group_leader;
    struct task_struct *real_parent;
    struct mm_struct *mm;
    struct signal_struct *signal;
    struct fs_struct *fs;
    struct files_struct *files;
    const struct cred *cred;
    const struct cred *real_cred;
    struct css_set *cgroups;
    struct hlist_node pid_links[4];
    char comm[16];
};

/* include/net/sock.h, include/linux/net.h, include/net/af_unix.h */
struct sock_common {
    unsigned short skc_family;
};
struct sock_cgroup_data {
    struct cgroup *cgroup;
};
struct sock {
    struct sock_common __sk_common;
    struct sock_cgroup_data sk_cgrp_data;
    unsigned short sk_type;
    unsigned short sk_protocol;
    struct pid *sk_peer_pid;
};
struct socket {
    short type;
    struct sock *sk;
    struct file *file;
};
struct sockaddr_un {
    unsigned short sun_family;
    char sun_path[108];
};
struct unix_address {
    int len; /* of name, its family field included */
    struct sockaddr_un name[];
};
struct unix_sock {
    struct sock sk;
    struct unix_address *addr;
    struct path path;
    struct sock *peer;
};
struct msghdr {
    void *msg_name;
    int msg_namelen;
};
struct vm_area_struct {
    unsigned long vm_flags;
    struct file *vm_file;
};
struct iattr {
    unsigned int ia_valid;
};
struct bpf_iter_meta {
    struct seq_file *seq;
    __u64 session_id;
    __u64 seq_num;
};
struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
};

/* include/trace/events/syscalls.h, sched.h: what a classic tracepoint hands over */
struct trace_event_raw_sys_exit {
    long ret;
};
struct trace_event_raw_sched_process_exec {
    int old_pid;
};

/* arch/x86/include/asm/ptrace.h, arch/arm64/include/asm/ptrace.h */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
    unsigned long r10, r8, r9, dx, si, di, ax, orig_ax, cs;
};
#else
struct pt_regs {
    __u64 regs[31];
    __s32 syscallno;
};
#endif

#pragma clang attribute pop
