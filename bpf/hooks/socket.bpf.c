/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Sockets that the cgroup programs do not see: other families, unix sockets by the peer's own path,
 * and sockets made outside the sandbox, which carry the cgroup of their birth. ON_ERROR deny. */
#include "bpf/lib/net.h"

/* FIRES for each socket and socketpair, of every family; kern = the kernel's own. */
SEC("lsm/socket_create")
int BPF_PROG(sock_family, int family, int type, int protocol, int kern) {
    __u32 grant = socket_grant(family, type, protocol);
    if (kern || grant == SK_NO_GRANT) return 0;
    struct sk_path_case *whole = case_open(SK_SECTION_NETWORK, SK_POWER_REFUSE);
    if (!whole) return 0;
    struct sk_case *c = &whole->base;
    struct sk_address none = {.family = family};
    if (c->code == SK_CODE_OK && case_granted(c, grant & 63)) return 0;
    if (c->code == SK_CODE_OK) c->code = SK_CODE_SOCKET_NOT_ALLOWED;
    c->op = SK_NET_SOCKET;
    return lsm_result(net_settle_lsm(c, &none, type_protocol(type, protocol)));
}

/* A socket of another sandbox or of the host, in this one's hands: no cgroup program sees it. */
static __always_inline int socket_judge(struct sock *sk, __u32 op, __u8 power) {
    __u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
    if (family != AF_INET && family != AF_INET6) return 0;
    struct sk_path_case *whole = case_open(SK_SECTION_NETWORK, power);
    if (!whole) return 0;
    struct sk_case *c = &whole->base;
    if (c->code == SK_CODE_OK) {
        if (socket_slot(sk) == c->slot || case_granted(c, SK_GRANT_SOCKET_RECEIVE)) return 0;
        c->code = SK_CODE_SOCKET_RECEIVED;
    }
    struct sk_address none = {.family = family};
    c->op = op;
    return net_settle_lsm(c, &none, type_protocol(BPF_CORE_READ(sk, sk_type), BPF_CORE_READ(sk, sk_protocol)));
}

static __always_inline int socket_foreign(struct sock *sk, __u32 op) { return socket_judge(sk, op, SK_POWER_REFUSE); }

/* FIRES for connect(2), before the cgroup programs. */
SEC("lsm/socket_connect")
int BPF_PROG(sock_connect, struct socket *sock) { return lsm_result(socket_foreign(BPF_CORE_READ(sock, sk), SK_NET_CONNECT)); }

/* FIRES for every message sent, by write(2) too. */
SEC("lsm/socket_sendmsg")
int BPF_PROG(sock_sendmsg, struct socket *sock) { return lsm_result(socket_foreign(BPF_CORE_READ(sock, sk), SK_NET_SEND)); }

SEC("lsm/socket_listen")
int BPF_PROG(sock_listen, struct socket *sock) { return lsm_result(socket_foreign(BPF_CORE_READ(sock, sk), SK_NET_LISTEN)); }

/* FIRES when a descriptor arrives by SCM_RIGHTS, pidfd_getfd or binder. */
SEC("lsm/file_receive")
int BPF_PROG(sock_receive, struct file *file) {
    if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) != S_IFSOCK) return 0;
    struct socket *sock = BPF_CORE_READ(file, private_data);
    return lsm_result(socket_foreign(BPF_CORE_READ(sock, sk), SK_NET_RECEIVE));
}

static __always_inline int unix_refuse(struct sock *other, __u32 op) {
    struct sk_path_case *c = case_open(SK_SECTION_NETWORK, SK_POWER_REFUSE);
    return c ? unix_judge(c, other, op) : 0;
}

/* FIRES for connect of a stream or seqpacket unix socket, with the peer found. */
SEC("lsm/unix_stream_connect")
int BPF_PROG(sock_unix_conn, struct sock *sock, struct sock *other) { return lsm_result(unix_refuse(other, SK_NET_CONNECT)); }

/* FIRES for connect and for each message of a datagram unix socket. */
SEC("lsm/unix_may_send")
int BPF_PROG(sock_unix_send, struct socket *sock, struct socket *other) {
    return lsm_result(unix_refuse(BPF_CORE_READ(other, sk), SK_NET_SEND));
}

/* `signal`: the same objects, at the end of the kernel's own checks. By the end of the call another thread
 * may have put another file under its descriptor, and sys_socket would look at that. COVERAGE what a
 * preempted run of the same program on this CPU leaves out (docs/adr/0006-preempted-tracepoints.md):
 * sys_socket comes after. The effect follows, so who uses it dies with all who may have it. */
static __always_inline struct sk_task *socket_user(int ret) {
    struct task_struct *task = bpf_get_current_task_btf();
    struct sk_config *conf = config_get();
    if (ret || !conf || !conf->live_slots || task->cgroups->dfl_cgrp->level < (int)(conf->levels & 0xff)) return NULL;
    struct sk_task *mine = bpf_task_storage_get(&tasks, task, NULL, 0);
    return mine && mine->label.slot ? mine : NULL;
}

static __always_inline int socket_used(struct socket *sock, __u32 op, int ret) {
    struct sk_task *mine = socket_user(ret);
    struct sock *sk = mine ? sock->sk : NULL;
    if (!sk || (__u64)BPF_CORE_READ(sk, sk_cgrp_data.cgroup) == mine->cgroup) return 0;
    mine->judged = (__u64)sk;
    socket_judge(sk, op, SK_POWER_KILL_ALL);
    return 0;
}

static __always_inline int unix_used(struct sock *sk, struct sock *other, __u32 op, int ret) {
    struct sk_task *mine = socket_user(ret);
    if (!mine || !other) return 0;
    mine->judged = (__u64)sk;
    struct sk_path_case *c = case_open(SK_SECTION_NETWORK, SK_POWER_KILL_ALL);
    if (c) unix_judge(c, other, op);
    return 0;
}

SEC("fexit/security_socket_connect")
int BPF_PROG(used_connect, struct socket *sock, struct sockaddr *to, int len, int ret) {
    return socket_used(sock, SK_NET_CONNECT, ret);
}

SEC("fexit/security_socket_listen")
int BPF_PROG(used_listen, struct socket *sock, int backlog, int ret) { return socket_used(sock, SK_NET_LISTEN, ret); }

SEC("fexit/security_socket_sendmsg")
int BPF_PROG(used_sendmsg, struct socket *sock, struct msghdr *msg, int size, int ret) {
    return socket_used(sock, SK_NET_SEND, ret);
}

SEC("fexit/security_socket_recvmsg")
int BPF_PROG(used_recvmsg, struct socket *sock, struct msghdr *msg, int size, int flags, int ret) {
    return socket_used(sock, SK_NET_RECEIVE, ret);
}

SEC("fexit/security_socket_accept")
int BPF_PROG(used_accept, struct socket *sock, struct socket *made, int ret) { return socket_used(sock, SK_NET_RECEIVE, ret); }

SEC("fexit/security_unix_stream_connect")
int BPF_PROG(used_unix_conn, struct sock *sock, struct sock *other, struct sock *made, int ret) {
    return unix_used(sock, other, SK_NET_CONNECT, ret);
}

SEC("fexit/security_unix_may_send")
int BPF_PROG(used_unix_send, struct socket *sock, struct socket *other, int ret) {
    return unix_used(sock->sk, other->sk, SK_NET_SEND, ret);
}
