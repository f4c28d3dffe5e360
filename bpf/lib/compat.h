/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* All that we know of differences between kernels. Hooks read as if one kernel existed. */
#pragma once
#include "bpf/lib/kernel_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* SINCE 6.2 (fd264ca02094 "bpf: Add a kfunc to type cast from bpf uapi ctx to kernel ctx" and
 * its sibling): reads through the result are checked loads, an order faster than a probe read
 * each. 6.1 has neither; there the loaders fall back to bpf_probe_read_kernel. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;
#define has_rdonly_cast() bpf_ksym_exists(bpf_rdonly_cast)
#define cast_to(type, address) \
    ((struct type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct type)))

/* The inline name: d_iname until 6.13, then the union d_shortname (58cf9c383c5c). */
union shortname_store {
    unsigned char string[40];
} __attribute__((preserve_access_index));
struct dentry___new {
    union shortname_store d_shortname;
} __attribute__((preserve_access_index));
struct dentry___old {
    unsigned char d_iname[32];
} __attribute__((preserve_access_index));
#define dentry_has_shortname() bpf_core_field_exists(struct dentry___new, d_shortname)
#define dentry_inline_offset()                                                        \
    (dentry_has_shortname() ? bpf_core_field_offset(struct dentry___new, d_shortname) \
                            : bpf_core_field_offset(struct dentry___old, d_iname))
#define dentry_inline_size()                                                        \
    (dentry_has_shortname() ? bpf_core_field_size(struct dentry___new, d_shortname) \
                            : bpf_core_field_size(struct dentry___old, d_iname))

/* Keeps clang from knowing a value: from proving a loop counter away, which ends in "infinite loop
 * detected", or from making a branch of arithmetic. */
#define keep(x) asm volatile("" : "+r"(x))

/* The system call of the registers seen at sys_exit, and its arguments by number. */
#if defined(__TARGET_ARCH_x86)
#define regs_call(regs) ((long)(regs)->orig_ax)
#define regs_arg0(regs) ((regs)->di)
#define regs_arg1(regs) ((regs)->si)
#define regs_arg2(regs) ((regs)->dx)
#define regs_arg3(regs) ((regs)->r10)
#define regs_arg4(regs) ((regs)->r8)
#else
/* arm64 overwrites regs[0] with the result before sys_exit: the first argument is lost. */
#define regs_call(regs) ((long)(regs)->syscallno)
#define regs_arg0(regs) 0UL
#define regs_arg1(regs) ((regs)->regs[1])
#define regs_arg2(regs) ((regs)->regs[2])
#define regs_arg3(regs) ((regs)->regs[3])
#define regs_arg4(regs) ((regs)->regs[4])
#endif
