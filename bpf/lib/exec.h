/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/lib/object.h"
#include "bpf/lib/reserve.h"
#include "bpf/wire/exec.h"

#define PROT_EXEC 0x4

/* `argc` 0: nothing was executed, so there are no arguments to record. */
#define SK_ARGC_UNKNOWN (~0U)
int exec_report(struct sk_path_case *c, __u32 old_tid, __u32 argc);
/* `entered:` decides over a task from outside; a starting one is judged by the policy as any. */
static __always_inline void exec_judge(struct sk_path_case *c, struct file *file) {
    case_file(c, file);
    if ((c->base.entered & SK_LABEL_ENTERED) && c->base.code == SK_CODE_OK) {
        if (c->base.entered_rule == SK_VERDICT_DENY) {
            c->base.section = SK_SECTION_ENTERED;
            c->base.code = SK_CODE_ENTERED;
        } else if (c->base.entered_rule == SK_VERDICT_OBSERVE) {
            c->base.flags |= SK_RECORD_OBSERVE;
        }
    }
    object_judge(c, SK_OP_EXEC);
}

static __always_inline int exec_refuse(struct linux_binprm *bprm) {
    struct sk_path_case *c = case_load(SK_SECTION_EXEC, SK_POWER_REFUSE);
    if (!c) return 0;
    exec_judge(c, bprm->file);
    if (bprm->interp != bprm->filename) c->base.role = SK_EXEC_INTERPRETER;
    if (c->base.code == SK_CODE_OK) return 0; /* recorded when it has worked, by exec_enter */
    case_settle(&c->base);
    if (c->base.ring) exec_report(c, bpf_get_current_pid_tgid(), 0);
    return case_finish(&c->base);
}

/* After its first execve a task that started or entered is a task of the sandbox like others. */
static __always_inline void exec_adopt(struct sk_path_case *c) {
    if (!c->base.entered || ((c->base.entered & SK_LABEL_ENTERED) && c->base.entered_rule == SK_VERDICT_OBSERVE)) return;
    struct sk_task *mine = task_current();
    if (mine) mine->label.generation = c->base.generation;
}

static __always_inline int exec_enter(struct file *file, int old_tid, __u32 argc) {
    struct sk_path_case *c = case_load(SK_SECTION_EXEC, SK_POWER_KILL);
    if (!c) return 0;
    if (backend == SK_BACKEND_LSM) { /* judged by exec_refuse; here it has worked */
        c->base.code = SK_CODE_OK;
        case_file(c, file);
    } else {
        exec_judge(c, file);
    }
    case_settle(&c->base);
    exec_adopt(c);
    if ((c->base.entered & SK_LABEL_ENTERED) && !c->base.ring) c->base.ring = SK_RING_VIOLATION; /* each session is reported */
    if (c->base.ring) exec_report(c, old_tid, argc);
    case_finish(&c->base);
    return 0;
}

/* Judges the case's object as code to be mapped. */
static __always_inline int exec_map_judge(struct sk_path_case *c) {
    c->base.role = SK_EXEC_MAPPED;
    object_judge(c, SK_OP_MAP);
    if (c->base.code == SK_CODE_OK) return 0;
    case_settle(&c->base);
    if (c->base.ring) exec_report(c, bpf_get_current_pid_tgid(), 0);
    return case_finish(&c->base);
}

static __always_inline int exec_map_refuse(struct file *file, unsigned long prot) {
    if (!(prot & PROT_EXEC) || !file) return 0;
    struct sk_path_case *c = case_open(SK_SECTION_EXEC, SK_POWER_REFUSE);
    if (!c || (file->f_mode & FMODE_BACKING)) return 0;
    case_file(c, file);
    return exec_map_judge(c);
}

/* A mapping of an overlay's file holds the file below it (SINCE 6.5), which knows the path above. */
static __always_inline int exec_protect_refuse(struct file *file, unsigned long prot) {
    if (!(prot & PROT_EXEC) || !file) return 0;
    if (!(file->f_mode & FMODE_BACKING) || !bpf_core_type_exists(struct backing_file)) return exec_map_refuse(file, prot);
    struct sk_path_case *c = case_open(SK_SECTION_EXEC, SK_POWER_REFUSE);
    if (!c) return 0;
    struct backing_file *backing = (struct backing_file *)file;
    case_dentry(c, BPF_CORE_READ(backing, user_path.mnt), BPF_CORE_READ(backing, user_path.dentry));
    return exec_map_judge(c);
}
