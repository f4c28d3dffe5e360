/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
#pragma once
#include "bpf/lib/object.h"
#include "bpf/lib/reserve.h"
#include "bpf/wire/net.h"

#define AF_UNSPEC 0
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define AF_NETLINK 16
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define SOCK_RAW 3
#define SOCK_PACKET 10
#define IPPROTO_ICMP 1
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_ICMPV6 58
#define IPPROTO_SCTP 132
#define IPPROTO_MPTCP 262
#define NETLINK_ROUTE 0

/* An address as judged: IPv4 in lo, host order; IPv6 as two host-order words. */
struct sk_address {
    __u64 hi;
    __u64 lo;
    __u16 family; /* AF_INET or AF_INET6; a mapped address is AF_INET */
    __u16 port;   /* host order */
    __u8 mapped;
    __u8 stream;  /* TCP */
    __u8 pad[2];
};

/* Ports that carry names: DNS, its kin without a budget, and DNS over TLS and QUIC. */
#define SK_DNS_PORT 53
static __always_inline bool names_port(__u32 port) {
    return port == SK_DNS_PORT || port == 137 || port == 853 || port == 5353 || port == 5355;
}

int net_report(struct sk_case *c, struct sk_address *address, __u64 cookie, __u64 type_protocol);

static __always_inline void address4(struct sk_address *out, __u32 ip_be, __u32 port_be) {
    out->hi = 0;
    out->lo = __builtin_bswap32(ip_be);
    out->family = AF_INET;
    out->port = __builtin_bswap16(port_be);
    out->mapped = 0;
}

/* ::ffff:a.b.c.d is judged as the IPv4 address that the kernel will use. */
static __always_inline void address6(struct sk_address *out, __u32 w0, __u32 w1, __u32 w2, __u32 w3, __u32 port_be) {
    if (w0 == 0 && w1 == 0 && w2 == __builtin_bswap32(0x0000ffff)) {
        address4(out, w3, port_be);
        out->mapped = 1;
        return;
    }
    out->hi = ((__u64)__builtin_bswap32(w0) << 32) | __builtin_bswap32(w1);
    out->lo = ((__u64)__builtin_bswap32(w2) << 32) | __builtin_bswap32(w3);
    out->family = AF_INET6;
    out->port = __builtin_bswap16(port_be);
    out->mapped = 0;
}

/* The address of a record: network order, IPv4 in the first 4 bytes. */
static __always_inline void address_record(__u8 out[16], const struct sk_address *address) {
    if (address->family == AF_INET) {
        *(__u32 *)out = __builtin_bswap32(address->lo);
    } else if (address->family == AF_INET6) {
        *(__u64 *)out = __builtin_bswap64(address->hi);
        *(__u64 *)(out + 8) = __builtin_bswap64(address->lo);
    }
}

/* A packet may have waited, and be sent on while another task runs: that one is not told of. */
static __always_inline void head_of_packet(struct sk_head *head, __u32 slot) {
    struct sk_config *conf = config_get();
    if (conf && slot_of_cgroup(bpf_get_current_task_btf()->cgroups->dfl_cgrp, conf->levels) == slot) return;
    head->tgid = head->tid = head->uid = 0;
    head->start_boot_ns = head->cgroup_id = 0;
    __builtin_memset(head->comm, 0, sizeof(head->comm));
}

/* The caller's effective uid as seen inside the sandbox: launched ones have no user namespace of
 * their own, so the initial one's number is it. */
static __always_inline __u64 net_uid(struct task_struct *task) { return BPF_CORE_READ(task, cred, euid.val); }

static __always_inline void net_kill(const struct sk_case *c) {
    if (cgroup_signal) {
        count_err(SK_ERROR_SEND_SIGNAL, bpf_send_signal(9));
        return;
    }
    files_doom(c->slot, c->generation);
}

/* The socket needs none: inet TCP, UDP, MPTCP; unix; netlink route. */
#define SK_NO_GRANT (~0U)

int unix_report(struct sk_path_case *c, __u64 unix_address);

static __always_inline int net_settle_lsm(struct sk_case *c, struct sk_address *address, __u64 type_protocol) {
    case_settle(c);
    if (c->ring) net_report(c, address, 0, type_protocol);
    return case_finish(c);
}

/* Bytes of sockaddr_un before sun_path. */
#define SK_UNIX_PATH_OFFSET 2

/* Is the abstract name of the peer listed? An address without a path and without a leading NUL has
 * no name that could be. */
static __always_inline bool unix_listed(struct sk_path_case *c, struct unix_address *address) {
    struct sk_policy policy = policy_open(c->base.policy_index);
    if (!policy.cells) return false;
    __u32 len = BPF_CORE_READ(address, len) - SK_UNIX_PATH_OFFSET;
    __u64 name = (__u64)address + bpf_core_field_offset(struct unix_address, name) + SK_UNIX_PATH_OFFSET;
    /* The name of an abstract socket starts after its NUL byte. */
    __u64 h = len > 1 && len <= 108 ? hash_long(name + 1, len - 1) : 0;
    return h && policy_entry(&policy, sk_unix_key((const void *)&keys, 1, h));
}

/* The sandbox in which a socket was made; 0 = outside. */
static __always_inline __u32 socket_slot(struct sock *sk) {
    struct sk_config *conf = config_get();
    struct cgroup *cgroup = BPF_CORE_READ(sk, sk_cgrp_data.cgroup);
    return conf && cgroup ? slot_of_kernel_cgroup(cgroup, conf->levels) : 0;
}

static __always_inline int unix_settle(struct sk_path_case *c, struct unix_address *address) {
    case_settle(&c->base);
    if (c->base.ring) unix_report(c, (__u64)address);
    return case_finish(&c->base);
}

/* The sandbox of whoever listens. The peer of a connected stream was made by the connect itself, in
 * the caller's cgroup; sk_peer_pid names the listener. A listener that is gone counts as outside. */
static __always_inline __u32 unix_listener_slot(struct sock *sk, struct sock *peer) {
    struct sk_config *conf = config_get();
    if (BPF_CORE_READ(sk, sk_type) == SOCK_DGRAM) return socket_slot(peer);
    struct hlist_node *first = BPF_CORE_READ(sk, sk_peer_pid, tasks[1].first); /* [PIDTYPE_TGID] */
    if (!first || !conf) return 0;
    struct task_struct *task = (void *)first - bpf_core_field_offset(struct task_struct, pid_links[1]);
    struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
    return cgroup ? slot_of_kernel_cgroup(cgroup, conf->levels) : 0;
}

/* By the path at which the peer was bound: that of the host, where it lies outside the sandbox's root,
 * for the mount through which the caller found it is not told. Peers without a name (socketpair) are
 * free. */
static __always_inline int unix_judge_named(struct sk_path_case *c, struct sock *other, __u32 op) {
    struct unix_sock *peer = (struct unix_sock *)other;
    struct dentry *dentry = BPF_CORE_READ(peer, path.dentry);
    struct unix_address *address = BPF_CORE_READ(peer, addr);
    if (dentry) {
        case_dentry(c, BPF_CORE_READ(peer, path.mnt), dentry);
        c->query.any_root = 1;
        object_judge(c, SK_OP_UNIX);
        if (c->base.code == SK_CODE_PATH_UNKNOWN) c->base.code = SK_CODE_UNIX_NOT_ALLOWED;
    } else if (c->base.code == SK_CODE_OK && address && !unix_listed(c, address)) {
        c->base.code = SK_CODE_UNIX_NOT_ALLOWED;
    }
    c->base.op = op;
    return unix_settle(c, address);
}

/* And those of the same sandbox are free. */
static __always_inline int unix_judge(struct sk_path_case *c, struct sock *other, __u32 op) {
    if (c->base.code == SK_CODE_OK && socket_slot(other) == c->base.slot) return 0;
    return unix_judge_named(c, other, op);
}

static __always_inline __u64 type_protocol(__u32 type, __u32 protocol) {
    return ((__u64)type << 32) | protocol;
}

/* The sandbox's socket families: inet TCP, UDP, MPTCP; unix; netlink route. The rest needs a grant,
 * by name where it has one. */
static __always_inline __u32 socket_grant(__u32 family, __u32 type, __u32 protocol) {
    type &= 0xf;
    if (family == AF_UNIX) return SK_NO_GRANT;
    if (family == AF_NETLINK) return protocol == NETLINK_ROUTE ? SK_NO_GRANT : SK_GRANT_NETLINK;
    if (family == 17) return SK_GRANT_PACKET_SOCKET;
    if (family == 38) return SK_GRANT_AF_ALG;
    if (family == 40) return SK_GRANT_VSOCK;
    if (family != AF_INET && family != AF_INET6) return SK_GRANT_OTHER_SOCKET;
    if (type == SOCK_RAW) return SK_GRANT_RAW_SOCKET;
    if (type == SOCK_PACKET) return SK_GRANT_PACKET_SOCKET;
    if (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP)) return SK_NO_GRANT;
    if (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP)) return SK_NO_GRANT;
    if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6) return SK_GRANT_PING_SOCKET;
    if (protocol == IPPROTO_SCTP) return SK_GRANT_SCTP;
    return SK_GRANT_OTHER_SOCKET;
}
