/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* Where a sandbox may connect, send and listen. The programs sit on the sandbox's cgroup or its
 * parent; the sandbox is the caller's, by its label. COVERAGE they follow the cgroup in which a
 * socket was made, not the caller: sockets made outside are judged where they are received
 * (net_receive) and by the LSM hooks. ON_ERROR refuse. */
#include "bpf/lib/dns_answer.h"
#include "bpf/lib/tls.h"

__noinline int net_report(struct sk_case *c, struct sk_address *address, __u64 cookie, __u64 type_protocol) {
    if (!c || !address) return 0;
    RECORD_BEGIN(net, NET, c);
    record->cookie = cookie;
    record->op = c->op;
    record->family = address->family;
    record->type = type_protocol >> 32;
    record->protocol = type_protocol;
    record->port = address->port;
    record->mapped = address->mapped;
    address_record(record->address, address);
    RECORD_END();
    return 0;
}

/* A unix socket, by the name that its owner bound. */
__noinline int unix_report(struct sk_path_case *c, __u64 unix_address) {
    if (!c) return 0;
    RECORD_BEGIN(net, NET, &c->base);
    record->op = c->base.op;
    record->family = AF_UNIX;
    struct unix_address *address = (struct unix_address *)unix_address;
    __u32 len = address ? BPF_CORE_READ(address, len) - SK_UNIX_PATH_OFFSET : 0;
    if (len > SK_UNIX_PATH_BYTES) len = SK_UNIX_PATH_BYTES;
    keep(len);
    __u64 name = unix_address + bpf_core_field_offset(struct unix_address, name) + SK_UNIX_PATH_OFFSET;
    if (len <= SK_UNIX_PATH_BYTES && !bpf_probe_read_kernel(record->unix_path, len, (void *)name))
        record->unix_len = len;
    RECORD_END();
    return 0;
}

/* The class of the caller's uid, when the policy has rules by uid; 0 = the rules for all. */
static __always_inline __u32 uid_class(const struct sk_policy *policy) {
    if (!(policy_head(policy)->flags & SK_POLICY_HAS_UIDS)) return 0;
    struct task_struct *task = bpf_get_current_task_btf();
    __u64 entry = policy_entry(policy, sk_word_key((const void *)&keys, SK_KEY_UID, net_uid(task)));
    return entry ? entry_next(entry) : 0;
}

static __always_inline bool loopback(const struct sk_address *address) {
    if (address->family == AF_INET) return (address->lo >> 24) == 127;
    return address->hi == 0 && address->lo == 1;
}

static __always_inline __u64 word_entry(const struct sk_policy *policy, __u32 domain, __u64 word) {
    return policy_entry(policy, sk_word_key((const void *)&keys, domain, word));
}

/* One prefix length: is the masked address listed, with this port or with any? */
static __always_inline bool prefix_listed(const struct sk_policy *policy, __u32 uid, __u32 index, __u32 bits,
                                          const struct sk_address *address) {
    __u64 hi = address->hi, lo = address->lo;
    if (address->family == AF_INET) {
        lo = bits ? lo & (0xffffffffULL << (32 - bits)) & 0xffffffffULL : 0;
    } else if (bits <= 64) {
        hi = bits ? hi & (~0ULL << ((64 - bits) & 63)) : 0;
        lo = 0;
    } else {
        lo &= ~0ULL << ((128 - bits) & 63);
    }
    if (policy_entry(policy, sk_net_key((const void *)&keys, uid, index, hi, lo, address->port))) return true;
    /* A rule for any port does not mean those of names. */
    return !names_port(address->port) && policy_entry(policy, sk_net_key((const void *)&keys, uid, index, hi, lo, 0));
}

struct sk_prefix_loop {
    struct sk_policy policy;
    struct sk_address address;
    __u32 uid;
    __u32 family; /* 4 or 6 */
    int found;
};

static int prefix_step(__u32 i, struct sk_prefix_loop *loop) {
    const struct sk_policy_head *head = policy_head(&loop->policy);
    if (i >= SK_MAX_PREFIXES || i >= head->prefixes) return 1;
    if (head->prefix[i].family != loop->family) return 0;
    loop->found = prefix_listed(&loop->policy, loop->uid, i, head->prefix[i].bits, &loop->address);
    return loop->found;
}

/* Is it a resolver that is pinned for the sandbox? */
static __always_inline bool dns_server(const struct sk_case *c, const struct sk_address *address) {
    __u32 slot = c->slot;
    struct sk_dns_binding *entry = bpf_map_lookup_elem(&dns_slots, &slot);
    if (!entry || entry->generation != c->generation || (address->stream && !entry->tcp)) return false;
    for (int i = 0; i < SK_DNS_RESOLVERS; i++) {
        if (i < entry->servers && entry->server[i].hi == address->hi && entry->server[i].lo == address->lo) return true;
    }
    return false;
}

static __always_inline int pin_listed(const struct sk_dns_pin_key *key, bool stream) {
    struct sk_dns_pin *pin = bpf_map_lookup_elem(&dns_pins, key);
    __u64 now = bpf_ktime_get_boot_ns();
    if (!pin || now >= pin->until_ns) return 0;
    if (now < pin->plain_until_ns) return SK_LISTED_PLAIN;
    return stream ? SK_LISTED_TLS : 0; /* a name can be read over TCP alone */
}

/* Did a name that the policy lists answer with this address? */
static __always_inline int dns_pinned(const struct sk_case *c, const struct sk_address *address) {
    struct sk_dns_pin_key key = {.hi = address->hi, .lo = address->lo, .slot = c->slot, .generation = c->generation,
                                 .port = address->port, .family = address->family};
    int listed = pin_listed(&key, address->stream);
    key.port = 0;
    int any = listed == SK_LISTED_PLAIN || names_port(address->port) ? 0 : pin_listed(&key, address->stream);
    return any == SK_LISTED_PLAIN || !listed ? any : listed;
}

/* Was the address denied to the running sandbox? Before all that allows it. */
__noinline int net_denied(struct sk_case *c, struct sk_address *address) {
    if (!c || !address) return 0;
    struct sk_policy policy = policy_open(c->policy_index);
    if (!policy.cells || !(policy_head(&policy)->flags & SK_POLICY_HAS_DENIED)) return 0;
    __u32 family = address->family == AF_INET ? 4 : 6;
    return policy_entry(&policy, sk_net_key((const void *)&keys, SK_NET_DENIED, family, address->hi, address->lo, 0)) != 0;
}

__noinline int net_listed(struct sk_case *c, struct sk_address *address) {
    if (!c || !address) return 0;
    struct sk_prefix_loop loop = {.policy = policy_open(c->policy_index), .address = *address};
    if (!loop.policy.cells) return 0;
    if (loopback(address) &&
        (word_entry(&loop.policy, SK_KEY_LOOPBACK, address->port) || word_entry(&loop.policy, SK_KEY_LOOPBACK, 0)))
        return 1;
    if (address->port == SK_DNS_PORT && dns_server(c, address)) return 1;
    loop.family = address->family == AF_INET ? 4 : 6;
    loop.uid = uid_class(&loop.policy);
    bpf_loop(SK_MAX_PREFIXES, prefix_step, &loop, 0);
    /* Rules by name are of all uids that have no list of their own. */
    if (!loop.found && !loop.uid && (policy_head(&loop.policy)->flags & SK_POLICY_HAS_NAMES)) return dns_pinned(c, address);
    return loop.found;
}

/* An entry may hold for loopback addresses alone. */
static __always_inline bool bind_listed(const struct sk_policy *policy, const struct sk_address *address, __u32 port) {
    __u64 entry = word_entry(policy, SK_KEY_BIND, port);
    return entry && (entry_next(entry) == SK_BIND_ANY || loopback(address));
}

/* A sandbox may bind what it may be reached on, and port 0, with which the kernel chooses one. */
__noinline int net_bindable(struct sk_case *c, struct sk_address *address) {
    if (!c || !address) return 0;
    struct sk_policy policy = policy_open(c->policy_index);
    if (!policy.cells) return 0;
    return address->port == 0 || bind_listed(&policy, address, address->port) || bind_listed(&policy, address, 0);
}

/* The sandbox by the caller's cgroup: before 6.18 programs of this kind may not ask for task storage.
 * A labelled task in another cgroup is condemned, so the two agree. */
static __always_inline bool net_open(struct sk_case *c) {
    struct sk_config *conf = config_get();
    if (!conf || !conf->live_slots) return false;
    struct task_struct *task = bpf_get_current_task_btf();
    __u32 number = slot_of_cgroup(task->cgroups->dfl_cgrp, conf->levels);
    struct sk_slot *slot = number ? bpf_map_lookup_elem(&slots, &number) : NULL;
    if (!slot) return false;
    case_fill(c, number, slot->generation, SK_SECTION_NETWORK, SK_POWER_REFUSE);
    c->by = SK_BACKEND_CGROUP;
    return true;
}

/* 1 = let the call go on, 0 = EPERM: the results of a cgroup program. Where it cannot send a signal,
 * the caller is marked and dies at the end of this very call (`signal`) or at its next hook (`lsm`). */
static __always_inline int net_settle(struct sk_case *c, struct sk_address *address, struct bpf_sock_addr *ctx,
                                      __u64 type_protocol) {
    case_settle(c);
    if (c->ring) net_report(c, address, ctx ? bpf_get_socket_cookie(ctx) : 0, type_protocol);
    if (c->kill) net_kill(c);
    return c->refuse ? 0 : 1;
}

/* To sort the addresses of a name the C library and c-ares (port 0), Go (9) and musl (65535) connect a UDP
 * socket to each, and ask from where it would send. Nothing is sent. */
static __always_inline bool source_probe(const struct bpf_sock_addr *ctx, const struct sk_address *address, __u32 op) {
    if (op != SK_NET_CONNECT || ctx->type != SOCK_DGRAM || ctx->protocol != IPPROTO_UDP) return false;
    return address->port == 0 || address->port == 9 || address->port == 65535;
}

/* Such a call is refused where the policy refuses, and is no violation: a name that answers with two addresses
 * would be one, whatever the policy says of it. */
static __always_inline int probe_answer(const struct sk_case *c, bool denied) {
    struct sk_policy policy = policy_open(c->policy_index);
    if (!policy.cells) return 0;
    const struct sk_policy_head *head = policy_head(&policy);
    return head->mode == SK_MODE_OBSERVE || (!denied && !(head->flags & SK_POLICY_HAS_NETWORK));
}

static __always_inline int net_call(struct bpf_sock_addr *ctx, struct sk_address *address, __u32 op, __u32 code) {
    struct sk_case c = {};
    if (!net_open(&c)) return 1;
    c.op = op;
    address->stream = ctx->type == SOCK_STREAM;
    c.path_hash = address->hi * 31 + address->lo * 7 + address->port;
    if (c.code == SK_CODE_OK) {
        bool denied = op != SK_NET_BIND && net_denied(&c, address);
        int listed = op == SK_NET_BIND ? net_bindable(&c, address) : denied ? 0 : net_listed(&c, address); /* how, too */
        if (op != SK_NET_BIND) {
            dns_note(ctx, &c, address, listed);
            if (listed && !tls_note(ctx, &c, listed)) listed = 0;
        }
        if (!listed && source_probe(ctx, address, op)) return probe_answer(&c, denied);
        c.code = listed ? SK_CODE_OK : denied ? SK_CODE_ADDRESS_DENIED : code;
    }
    return net_settle(&c, address, ctx, type_protocol(ctx->type, ctx->protocol));
}

static __always_inline int net_call4(struct bpf_sock_addr *ctx, __u32 op, __u32 code) {
    struct sk_address address;
    address4(&address, ctx->user_ip4, ctx->user_port);
    return net_call(ctx, &address, op, code);
}

static __always_inline int net_call6(struct bpf_sock_addr *ctx, __u32 op, __u32 code) {
    struct sk_address address;
    address6(&address, ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3], ctx->user_port);
    return net_call(ctx, &address, op, code);
}

/* FIRES for connect(2) and TCP fast open of an AF_INET socket. SOURCE inet_stream_connect, ip4_datagram. */
SEC("cgroup/connect4")
int net_connect4(struct bpf_sock_addr *ctx) { return net_call4(ctx, SK_NET_CONNECT, SK_CODE_CONNECT_NOT_ALLOWED); }

/* FIRES the same for AF_INET6, IPv4-mapped addresses included. */
SEC("cgroup/connect6")
int net_connect6(struct bpf_sock_addr *ctx) { return net_call6(ctx, SK_NET_CONNECT, SK_CODE_CONNECT_NOT_ALLOWED); }

/* FIRES for each UDP message with an address of its own; also for an AF_INET6 socket with a mapped or
 * an AF_INET address, and with user_family 0 for AF_UNSPEC: never test the family here. */
SEC("cgroup/sendmsg4")
int net_sendmsg4(struct bpf_sock_addr *ctx) { return net_call4(ctx, SK_NET_SEND, SK_CODE_SEND_NOT_ALLOWED); }

SEC("cgroup/sendmsg6")
int net_sendmsg6(struct bpf_sock_addr *ctx) { return net_call6(ctx, SK_NET_SEND, SK_CODE_SEND_NOT_ALLOWED); }

/* FIRES for bind(2). */
SEC("cgroup/bind4")
int net_bind4(struct bpf_sock_addr *ctx) { return net_call4(ctx, SK_NET_BIND, SK_CODE_BIND_NOT_ALLOWED); }

SEC("cgroup/bind6")
int net_bind6(struct bpf_sock_addr *ctx) { return net_call6(ctx, SK_NET_BIND, SK_CODE_BIND_NOT_ALLOWED); }

static __always_inline bool has_tls_names(const struct sk_case *c) {
    struct sk_policy policy = policy_open(c->policy_index);
    return policy.cells && (policy_head(&policy)->flags & SK_POLICY_HAS_TLS_NAMES);
}

/* FIRES for each new AF_INET and AF_INET6 socket; no other family (those: socket_create of the LSM,
 * seccomp of the launcher). SOURCE inet_create. */
SEC("cgroup/sock_create")
int net_sock_create(struct bpf_sock *ctx) {
    struct sk_case c = {};
    if (!net_open(&c)) return 1;
    struct sk_address none = {.family = ctx->family};
    __u32 grant = socket_grant(ctx->family, ctx->type, ctx->protocol);
    c.op = SK_NET_SOCKET;
    if (c.code == SK_CODE_OK) {
        /* What it says goes by further sockets, which are the kernel's own. */
        if (ctx->protocol == IPPROTO_MPTCP && has_tls_names(&c)) c.code = SK_CODE_SOCKET_NOT_ALLOWED;
        else if (grant == SK_NO_GRANT) return 1;
        else if (!case_granted(&c, grant & 63)) c.code = SK_CODE_SOCKET_NOT_ALLOWED;
    }
    return net_settle(&c, &none, NULL, type_protocol(ctx->type, ctx->protocol));
}
