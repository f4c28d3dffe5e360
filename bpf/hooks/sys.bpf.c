/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#include "bpf/lib/escape.h"
#include "bpf/lib/label.h"
#include "bpf/lib/sys.h"

static __always_inline void path_written(struct sk_path *out, __u64 user_path) {
    long len = bpf_probe_read_user_str(out->bytes, SK_PATH_BYTES, (void *)user_path);
    out->flags = SK_PATH_ASWRITTEN;
    if (len > 0) out->bytes_len = len - 1;
    if (len == SK_PATH_BYTES) out->flags |= SK_PATH_TRUNCATED;
}

/* A path as the caller wrote it: for calls that return no object, and for refusals by other locks.
 * It decides nothing. */
__noinline int written_report(struct sk_case *c, __u64 user_path, __u32 mode_bits, __s32 error) {
    if (!c) return 0;
    RECORD_BEGIN(file, FILE, c);
    path_written(&record->path, user_path);
    record->op = c->op;
    record->open_flags = mode_bits;
    record->error = error;
    RECORD_END();
    return 0;
}

/* The same for a program that another lock kept from running. */
__noinline int written_exec_report(struct sk_path_case *c, __u64 user_path) {
    if (!c) return 0;
    RECORD_BEGIN(exec, EXEC, &c->base);
    path_written(&record->path, user_path);
    record->old_tid = bpf_get_current_pid_tgid();
    RECORD_END();
    return 0;
}

/* Is the task where its label says? The answer holds until it is in another cgroup. */
static __always_inline bool sys_home(struct sk_task *mine, struct task_struct *task, struct sk_config *conf) {
    struct cgroup *cgroup = task->cgroups->dfl_cgrp;
    if (mine->cgroup == (__u64)cgroup) return true;
    if (slot_of_cgroup(cgroup, conf->levels) != mine->label.slot) return false;
    mine->cgroup = (__u64)cgroup;
    return true;
}

/* unshare, close_range and an execve give a sharer a copy of its table, with the descriptor in it: so
 * the table that it came into the call with counts as well. */
static __always_inline bool sys_doomed(struct sk_task *mine, struct task_struct *task, const struct sk_state *state) {
    __u32 slot = mine->label.slot, generation = mine->label.generation;
    __u64 before = mine->files, now = (__u64)task->files;
    mine->files = now;
    if (!state->dooms) return false;
    return files_doomed(now, slot, generation) || (before != now && files_doomed(before, slot, generation));
}

/* Death for whoever belongs to a condemned sandbox, shares a descriptor table with one killed for
 * what it opened, or carries the label of a sandbox in whose cgroup it is not. Every call of every
 * labelled task comes through here, so it looks at no policy. */
static __always_inline bool sys_ends(struct sk_task *mine, struct task_struct *task, struct sk_config *conf) {
    __u32 slot = mine->label.slot, generation = mine->label.generation & SK_GENERATION_MASK;
    struct sk_state *state = bpf_map_lookup_elem(&states, &slot);
    bool ends = !state || !slot_of_label(slot, generation) || state->condemned_ns || (mine->label.generation & SK_LABEL_DOOMED) ||
                sys_doomed(mine, task, state);
    if (!ends && !sys_home(mine, task, conf)) {
        case_fill(&mine->scratch.base, slot, mine->label.generation, SK_SECTION_ESCAPE, SK_POWER_KILL_AFTER);
        ends = condemn_for(&mine->scratch.base, SK_CODE_LEFT_CGROUP);
    }
    if (ends) count_err(SK_ERROR_SEND_SIGNAL, bpf_send_signal(9));
    return ends;
}

/* By another ABI, whose numbers mean other calls. */
static __always_inline bool call_is_foreign(void) {
#if defined(__TARGET_ARCH_x86)
    return bpf_get_current_task_btf()->thread_info.status & TS_COMPAT;
#else
    return false;
#endif
}

/* The flags of an open, where they are by value: openat2 has them in memory, other ABIs elsewhere. */
static __always_inline __u32 open_flags(struct sk_call call, struct pt_regs *regs) {
    if (call_is_foreign() || regs_call(regs) == __NR_openat2) return 0;
#if defined(__NR_creat)
    if (regs_call(regs) == __NR_creat) return O_WRONLY | O_CREAT | O_TRUNC;
#endif
    return call.path_argument ? regs_arg2(regs) : regs_arg1(regs);
}

static __always_inline int sys_open(struct sk_path_case *c, __u32 fd, __u64 path, __u32 flags) {
    struct sk_file_view view = {};
    if (!fd_view(&view, fd)) {
        /* The file is empty by now, also where the descriptor is to read; f_flags do not keep it. */
        if ((flags & O_TRUNC) && view.kind == S_IFREG) view.mode |= FMODE_WRITE;
        return file_opened(c, &view);
    }
    /* Closed by a sharer of the table, which may have a duplicate of what nobody has judged. */
    count_error(SK_ERROR_FD_READ);
    c->base.code = SK_CODE_PATH_UNKNOWN;
    c->base.op = SK_FILE_OPEN_READ;
    c->base.flags |= SK_RECORD_UNVERIFIED;
    case_settle(&c->base);
    if (c->base.ring) written_report(&c->base, path, 0, 0);
    return case_finish(&c->base);
}

static __always_inline int sys_map(struct sk_task *mine, struct sk_path_case *c, struct pt_regs *regs) {
    bool judged = mine->judged; /* on its way: code_mapped */
    mine->judged = 0;
    if (judged) return 0;
    if (!(regs_arg2(regs) & PROT_EXEC) || (regs_arg3(regs) & MAP_ANONYMOUS) || (__s32)regs_arg4(regs) < 0) return 0;
    struct sk_file_view view = {};
    if (fd_view(&view, regs_arg4(regs))) return 0;
    case_view(c, &view);
    c->base.section = SK_SECTION_EXEC;
    return exec_map_judge(c);
}

/* A socket in use: one that was made outside is judged by no cgroup program, and a unix socket by
 * none at all. The effect has happened, and the socket may be in the hands of others. */
static __always_inline int sys_socket(struct sk_task *mine, struct sk_call call, __u32 fd) {
    struct sk_socket_view view = {};
    if (fd_socket(&view, fd)) return 0;
    bool inet = view.family == AF_INET || view.family == AF_INET6;
    if (inet ? view.cgroup == mine->cgroup : view.family != AF_UNIX || call.op != SK_NET_CONNECT) return 0;
    __u64 judged = mine->judged; /* on its way: hooks/socket.bpf.c */
    mine->judged = 0;
    if ((__u64)view.sk == judged) return 0;
    struct sk_path_case *c = &mine->scratch;
    struct sock *sk = (struct sock *)view.sk;
    case_fill(&c->base, mine->label.slot, mine->label.generation, SK_SECTION_NETWORK, SK_POWER_KILL_ALL);
    if (!inet) {
        struct unix_sock *unix = (struct unix_sock *)sk;
        struct sock *peer = BPF_CORE_READ(unix, peer);
        if (!peer || unix_listener_slot(sk, peer) == c->base.slot) return 0;
        return unix_judge_named(c, peer, call.op);
    }
    if (socket_slot(sk) == c->base.slot || case_granted(&c->base, SK_GRANT_SOCKET_RECEIVE)) return 0;
    struct sk_address none = {.family = view.family};
    c->base.op = call.op;
    c->base.code = SK_CODE_SOCKET_RECEIVED;
    return net_settle_lsm(&c->base, &none, type_protocol(view.type, view.protocol));
}

/* Families that cgroup/sock_create is not asked for. The maker dies before it can use what it made. */
static __always_inline int sys_make(struct sk_path_case *c, struct pt_regs *regs) {
    __u32 family = regs_arg0(regs), type = regs_arg1(regs), protocol = regs_arg2(regs);
    __u32 grant = socket_grant(family, type, protocol);
    if (family == AF_INET || family == AF_INET6 || grant == SK_NO_GRANT || case_granted(&c->base, grant & 63)) return 0;
    struct sk_address none = {.family = family};
    c->base.section = SK_SECTION_NETWORK;
    c->base.op = SK_NET_SOCKET;
    c->base.code = SK_CODE_SOCKET_NOT_ALLOWED;
    return net_settle_lsm(&c->base, &none, type_protocol(type, protocol));
}

/* What chmod and mknod are to set: the argument after the path. */
static __always_inline __u32 mode_bits(struct sk_call call, struct pt_regs *regs) {
    if (call.class != SK_CALL_PATH || (call.op != SK_FILE_CHMOD && call.op != SK_FILE_MKNOD) || call_is_foreign()) return 0;
    __u32 mode = call.path_argument ? regs_arg2(regs) : regs_arg1(regs);
    return mode & (call.op == SK_FILE_CHMOD ? 07777 : 0xffff); /* S_IALLUGO, umode_t */
}

/* What the call is about: of a symbolic link its own place, which comes after its text. */
static __always_inline __u64 call_path(struct sk_call call, struct pt_regs *regs) {
    bool link = call.class == SK_CALL_PATH && call.op == SK_FILE_SYMLINK;
    if (link) return call.path_argument ? regs_arg2(regs) : regs_arg1(regs);
    return call.path_argument ? regs_arg1(regs) : regs_arg0(regs);
}

/* A call that returns no object: reported as the caller wrote it, with the section's verdict open. Of what has two names both are,
 * each in a record of its own, as the hooks of `lsm` have them. */
static __always_inline int sys_path(struct sk_path_case *c, struct sk_call call, struct pt_regs *regs) {
    bool two = call.op == SK_FILE_RENAME || call.op == SK_FILE_LINK;
    c->base.op = call.op;
    c->base.flags |= SK_RECORD_UNVERIFIED;
    seen_settle(&c->base);
    if (c->base.ring) written_report(&c->base, call_path(call, regs), mode_bits(call, regs), 0);
    if (!two) return 0;
    seen_settle(&c->base);
    if (c->base.ring) written_report(&c->base, call.path_argument ? regs_arg3(regs) : regs_arg1(regs), 0, 0);
    return 0;
}

/* Which lock it was, as far as the error tells: Landlock and mode bits say EACCES (which of the two is
 * for user space, which knows the policy), a read-only mount EROFS, seccomp and missing capabilities
 * EPERM: those of calls that change files count as mode bits, others as seccomp's. */
static __always_inline __u8 refused_lock(struct sk_call call, long error) {
    if (error == -EROFS) return SK_LOCK_MOUNT;
    if (error == -EACCES) return SK_LOCK_LANDLOCK;
    if (call.class == SK_CALL_NONE && call.op) return call.op;
    return call.class == SK_CALL_PATH || call.class == SK_CALL_OPEN ? SK_LOCK_DAC : SK_LOCK_SECCOMP;
}

static __always_inline __u32 refused_op(struct sk_call call, struct pt_regs *regs) {
    __u64 clone_flags = regs_arg0(regs);
    if (call.class == SK_CALL_OPEN)
        return open_flags(call, regs) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) ? SK_FILE_OPEN_WRITE : SK_FILE_OPEN_READ;
    if (call.class == SK_CALL_NONE || call.class == SK_CALL_MAKE) return SK_ESCAPE_OTHER_CALL;
    if (call.class != SK_CALL_BIRTH) return call.op;
    if (clone_flags & CLONE_NEWUSER) return SK_ESCAPE_UNSHARE_USER;
    return clone_flags & CLONE_NEWNS ? SK_ESCAPE_UNSHARE_MOUNT : SK_ESCAPE_OTHER_CALL;
}

/* Does the error mean a refusal that nobody else tells? Of connect, send and their like the programs
 * on the cgroup tell it themselves, and of inet sockets too. */
static __always_inline bool refusal_counts(struct sk_call call, struct pt_regs *regs, long error) {
    if (error != -EPERM && error != -EACCES && error != -EROFS) return false;
    if (call.class == SK_CALL_SOCKET || call.class == SK_CALL_MAP) return false;
    if (call.class == SK_CALL_MAKE) return regs_arg0(regs) != AF_INET && regs_arg0(regs) != AF_INET6;
    return call.class != SK_CALL_NONE || (error == -EPERM && !call_is_foreign());
}

static __always_inline int sys_refused(struct sk_path_case *c, struct sk_call call, struct pt_regs *regs, long error) {
    __u64 path = call_path(call, regs);
    bool has_path = call.class == SK_CALL_OPEN || call.class == SK_CALL_PATH;
    c->base.op = refused_op(call, regs);
    c->base.code = SK_CODE_OTHER_LOCK;
    c->base.power = SK_POWER_SEE;
    c->base.verdict = SK_VERDICT_DENY;
    c->base.outcome = SK_OUTCOME_PREVENTED;
    c->base.flags |= SK_RECORD_UNVERIFIED;
    c->base.lock = refused_lock(call, error);
    if (!has_path) c->base.section = call.class == SK_CALL_EXEC ? SK_SECTION_EXEC : SK_SECTION_ESCAPE;
    refused_settle(&c->base);
    if (!c->base.ring) return 0;
    if (has_path) return written_report(&c->base, path, mode_bits(call, regs), -error);
    if (call.class == SK_CALL_EXEC) return written_exec_report(c, path);
    return escape_report(&c->base, c->base.op == SK_ESCAPE_OTHER_CALL ? regs_call(regs) : regs_arg0(regs), 0);
}

static __always_inline int sys_escape(struct sk_path_case *c, struct sk_call call, struct pt_regs *regs) {
    if (case_granted(&c->base, call.grant & 63)) return 0;
    c->base.section = SK_SECTION_ESCAPE;
    c->base.power = SK_POWER_KILL_AFTER;
    c->base.code = SK_CODE_ESCAPE;
    c->base.op = call.op;
    case_settle(&c->base);
    if (c->base.ring) escape_report(&c->base, regs_arg0(regs), 0);
    return case_finish(&c->base);
}

static __always_inline struct sk_call call_of_regs(struct task_struct *task, struct pt_regs *regs) {
    long number = regs_call(regs);
#if defined(__TARGET_ARCH_x86)
    if (task->thread_info.status & TS_COMPAT) return call_of_compat(number);
    if (number == __NR_unshare && (regs_arg0(regs) & CLONE_NEWUSER))
        return (struct sk_call)CALL_ESCAPE(UNSHARE_USER, USERNS);
    if (number == __NR_unshare && (regs_arg0(regs) & CLONE_NEWNS))
        return (struct sk_call)CALL_ESCAPE(UNSHARE_MOUNT, MNTNS);
#endif
    return call_of(number);
}

/* Calls that the whole machine makes all the time: a task whose cgroup is not as deep as any sandbox's
 * is done with after two loads. */
static __always_inline bool call_is_common(struct sk_call call) {
    return call.class == SK_CALL_NONE || call.class == SK_CALL_SOCKET || call.class == SK_CALL_MAP;
}

static __always_inline int sys_done(struct pt_regs *regs, long ret) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct sk_config *conf = config_get();
    if (!conf || !conf->live_slots) return 0;
    struct sk_call call = call_of_regs(task, regs);
    if (call_is_common(call) && task->cgroups->dfl_cgrp->level < (int)(conf->levels & 0xff)) return 0;
    struct sk_task *mine = bpf_task_storage_get(&tasks, task, NULL, 0);
    if (!mine || !mine->label.slot) {
        /* Without a label below a sandbox: it gets one when it does something that matters. */
        if (call_is_common(call)) return 0;
        mine = task_by_cgroup(task);
        if (!mine) return 0;
    }
    if (sys_ends(mine, task, conf)) return 0;
    if ((mine->label.generation & SK_LABEL_UNJUDGED) || (call.class == SK_CALL_NONE && ret != -EPERM)) return 0;
    if (call.class == SK_CALL_SOCKET && ret >= 0) return sys_socket(mine, call, call.path_argument ? regs_arg2(regs) : regs_arg0(regs));
    struct sk_path_case *c = &mine->scratch;
    case_fill(&c->base, mine->label.slot, mine->label.generation, SK_SECTION_FILES, SK_POWER_KILL_AFTER);
    if (ret < 0) return refusal_counts(call, regs, ret) ? sys_refused(c, call, regs, ret) : 0;
    __u64 path = call.path_argument ? regs_arg1(regs) : regs_arg0(regs);
    switch (call.class) {
        case SK_CALL_OPEN: return sys_open(c, ret, path, open_flags(call, regs));
        case SK_CALL_MAP: return sys_map(mine, c, regs);
        case SK_CALL_PATH: return sys_path(c, call, regs);
        case SK_CALL_EXEC:
        case SK_CALL_BIRTH: return 0;
        case SK_CALL_MAKE: return sys_make(c, regs);
        default: return sys_escape(c, call, regs);
    }
}

/* What mmap maps, at the end of the kernel's own check: by the end of the call another thread may have put
 * another file under its descriptor, and sys_map would look at that. COVERAGE as in hooks/socket.bpf.c. */
SEC("fexit/security_mmap_file")
int BPF_PROG(code_mapped, struct file *file, unsigned long prot, unsigned long flags, int ret) {
    if (ret || !(prot & PROT_EXEC) || !file) return 0;
    struct task_struct *task = bpf_get_current_task_btf();
    struct sk_task *mine = bpf_task_storage_get(&tasks, task, NULL, 0);
    if (!mine || !mine->label.slot) return 0;
    /* An execve maps, too; sched_process_exec judges that. */
    if (call_of_regs(task, (struct pt_regs *)bpf_task_pt_regs(task)).class != SK_CALL_MAP) return 0;
    struct sk_path_case *c = case_open(SK_SECTION_EXEC, SK_POWER_KILL_AFTER);
    if (!c || (file->f_mode & FMODE_BACKING)) return 0;
    mine->judged = (__u64)file;
    case_file(c, file);
    exec_map_judge(c);
    return 0;
}

/* FIRES at the end of every system call of the machine, and for a new task as its first act.
 * Attached only while a sandbox exists: it is the largest cost of this backend. COVERAGE not
 * io_uring's operations, which need a grant. SOURCE syscall_exit_work. */
SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit_sig, struct pt_regs *regs, long ret) {
    sys_done(regs, ret);
    return 0;
}

/* The same where tracepoints may be preempted: docs/adr/0006-preempted-tracepoints.md. */
SEC("tp/raw_syscalls/sys_exit")
int sys_exit_tp(struct trace_event_raw_sys_exit *ctx) {
    sys_done((struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf()), ctx->ret);
    return 0;
}
