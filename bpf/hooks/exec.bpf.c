/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What may be executed, and what may be mapped as code. */
#include "bpf/lib/exec.h"

__noinline int exec_report(struct sk_path_case *c, __u32 old_tid, __u32 argc) {
    if (!c) return 0;
    RECORD_BEGIN(exec, EXEC, &c->base);
    path_fill(&record->path, c);
    struct task_struct *task = bpf_get_current_task_btf();
    record->parent_tgid = BPF_CORE_READ(task, real_parent, tgid);
    record->parent_start_boot_ns = BPF_CORE_READ(task, real_parent, group_leader, start_boottime);
    record->old_tid = old_tid;
    record->role = c->base.role;
    if (argc) {
        record->argc = argc == SK_ARGC_UNKNOWN ? 0 : argc;
        unsigned long start = BPF_CORE_READ(task, mm, arg_start);
        __u64 len = BPF_CORE_READ(task, mm, arg_end) - start;
        record->argv_truncated = len > SK_ARGV_BYTES;
        if (len > SK_ARGV_BYTES) len = SK_ARGV_BYTES;
        keep(len);
        if (len <= SK_ARGV_BYTES && !count_err(SK_ERROR_ARGV_READ, bpf_probe_read_user(record->argv, len, (void *)start)))
            record->argv_len = len;
    }
    RECORD_END();
    return 0;
}

/* FIRES for the file given to execve, then for each interpreter that a #! line names; the ELF
 * interpreter comes by mmap_file. SOURCE search_binary_handler. COVERAGE memfd, fexecve, deleted
 * files, threads. ON_ERROR deny. */
SEC("lsm/bprm_check_security")
int BPF_PROG(exec_check, struct linux_binprm *bprm, int ret) {
    if (ret) return ret;
    return exec_refuse(bprm);
}

/* FIRES once for each execve that worked, as the new program before its first instruction, with
 * the last interpreter as bprm->file. Under `signal` the verdict is here: SIGKILL before the
 * return to user space. Under `lsm` it records, and turns a starting or entered task into one that
 * is judged. SOURCE exec_binprm. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(exec_done, struct task_struct *task, int old_tid, struct linux_binprm *bprm) {
    return exec_enter(bprm->file, old_tid, bprm->argc);
}

/* The same where tracepoints may be preempted: docs/adr/0006-preempted-tracepoints.md. */
SEC("tp/sched/sched_process_exec")
int exec_done_tp(struct trace_event_raw_sched_process_exec *ctx) {
    struct mm_struct *mm = bpf_get_current_task_btf()->mm;
    struct file *file = mm ? mm->exe_file : NULL; /* what bprm->file was */
    return file ? exec_enter(file, ctx->old_pid, SK_ARGC_UNKNOWN) : 0;
}

/* FIRES for each mapping of a file, of programs, ELF interpreters and libraries too.
 * SOURCE vm_mmap_pgoff, do_shmat. COVERAGE not what mprotect makes executable later. */
SEC("lsm/mmap_file")
int BPF_PROG(exec_map, struct file *file, unsigned long reqprot, unsigned long prot, unsigned long flags,
             int ret) {
    if (ret) return ret;
    return exec_map_refuse(file, prot | reqprot);
}

/* FIRES for each mapping that mprotect or pkey_mprotect touches. SOURCE do_mprotect_pkey. */
SEC("lsm/file_mprotect")
int BPF_PROG(exec_mprotect, struct vm_area_struct *vma, unsigned long reqprot, unsigned long prot, int ret) {
    if (ret) return ret;
    return exec_protect_refuse(vma->vm_file, prot | reqprot);
}
