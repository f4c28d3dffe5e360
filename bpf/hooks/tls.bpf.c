/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* `tls_name: strict`: whom a sandbox asks for at an address that names have opened. An address may be many tenants';
 * the server name of the first ClientHello says which one is meant. COVERAGE TCP, by the socket that was connected;
 * nothing that is said after the handshake. ON_ERROR drop. */
#include "bpf/lib/tls.h"

__noinline int tls_report(struct sk_case *c, struct sk_address *address, struct sk_dns_work *work) {
    if (!c || !address || !work) return 0;
    __u32 slot = c->slot;
    RECORD_BEGIN(net, NET, c);
    head_of_packet(&record->head, slot);
    record->op = SK_NET_SEND;
    record->family = address->family;
    record->type = SOCK_STREAM;
    record->protocol = IPPROTO_TCP;
    record->port = address->port;
    address_record(record->address, address);
    __u32 len = work->len;
    if (len > SK_UNIX_PATH_BYTES) len = SK_UNIX_PATH_BYTES;
    record->unix_len = len;
    __builtin_memcpy(record->unix_path, work->msg, sizeof(record->unix_path));
    for (__u32 i = 0; i < SK_UNIX_PATH_BYTES; i++) {
        if (i >= len) record->unix_path[i] = 0;
    }
    RECORD_END();
    return 0;
}

struct sk_tls_walk {
    struct __sk_buff *skb;
    __u32 at;
    __u32 end;  /* of the extensions */
    __u32 name; /* where the server name is; 0 = none yet */
    __u32 len;
    int bad;
};

static __always_inline __u32 load2(struct __sk_buff *skb, __u32 at) {
    __u8 b[2] = {};
    if (bpf_skb_load_bytes(skb, at, b, sizeof(b))) return 0x10000; /* more than there can be */
    return b[0] << 8 | b[1];
}

/* One name of a host, and nothing else (RFC 6066: of each type one, and there is one type). */
static __always_inline bool name_extension(struct sk_tls_walk *walk, __u32 at, __u32 len) {
    __u8 head[5] = {};
    if (walk->name || len < sizeof(head) + 1 || bpf_skb_load_bytes(walk->skb, at, head, sizeof(head))) return false;
    __u32 list = head[0] << 8 | head[1], name = head[3] << 8 | head[4];
    if (list + 2 != len || head[2] != 0 || name + 3 != list || name > SK_TLS_NAME_BYTES) return false;
    walk->name = at + sizeof(head);
    walk->len = name;
    return true;
}

static int extension_step(__u32 i __attribute__((unused)), struct sk_tls_walk *walk) {
    if (walk->at == walk->end) return 1;
    __u32 type = load2(walk->skb, walk->at), len = load2(walk->skb, walk->at + 2);
    __u32 at = walk->at + 4;
    walk->bad = type > 0xffff || len > 0xffff || at + len > walk->end || type == SK_TLS_EXTENSION_ECH || type == SK_TLS_EXTENSION_ESNI;
    if (!walk->bad && type == SK_TLS_EXTENSION_NAME) walk->bad = !name_extension(walk, at, len);
    walk->at = at + len;
    return walk->bad != 0;
}

/* Finds the server name of the ClientHello that begins at `at` and is whole. */
static __always_inline bool hello_walk(struct sk_tls_walk *walk, __u32 at) {
    struct __sk_buff *skb = walk->skb;
    __u8 head[SK_TLS_HELLO_FIXED] = {};
    if (bpf_skb_load_bytes(skb, at, head, sizeof(head))) return false;
    __u32 record = head[3] << 8 | head[4], hello = head[6] << 16 | head[7] << 8 | head[8];
    __u32 end = at + 5 + record;
    if (head[0] != SK_TLS_RECORD_HANDSHAKE || head[1] != 3 || head[5] != SK_TLS_CLIENT_HELLO || head[9] != 3) return false;
    if (end > skb->len || hello + 4 != record || head[43] > SK_TLS_SESSION_BYTES) return false;
    at += SK_TLS_HELLO_FIXED + head[43];
    __u32 suites = load2(skb, at);
    if (suites > 0xffff) return false;
    at += 2 + suites;
    __u8 methods = 0;
    if (bpf_skb_load_bytes(skb, at, &methods, 1)) return false;
    at += 1 + methods;
    __u32 extensions = load2(skb, at);
    if (extensions > 0xffff || at + 2 + extensions != end) return false;
    walk->at = at + 2;
    walk->end = end;
    bpf_loop(SK_TLS_EXTENSIONS, extension_step, walk, 0);
    return !walk->bad && walk->at == end && walk->name;
}

struct sk_tls_text {
    struct sk_dns_work *work;
    __u32 label; /* where the length of the label being read stands */
    __u32 bad;
};

/* Text to the form that names of DNS have: "a.bc" to 1 a 2 b c. */
static int text_step(__u32 i, struct sk_tls_text *text) {
    struct sk_dns_work *work = text->work;
    if (i >= SK_TLS_NAME_BYTES || i >= work->len) return 1;
    __u8 c = work->msg[i];
    __u32 len = i - text->label;
    if (c == '.') {
        work->query.question.name.wire[text->label & 0xff] = len;
        text->label = i + 1;
        text->bad |= len == 0;
    } else {
        work->query.question.name.wire[(i + 1) & 0xff] = c;
        text->bad |= !sk_dns_is_plain(c) || len >= SK_DNS_LABEL_BYTES;
    }
    return text->bad != 0;
}

/* The hashes of the name in msg, and what the policy says of it. */
__noinline int tls_listed(struct sk_dns_work *work) {
    if (!work) return 0;
    struct sk_tls_text text = {.work = work};
    __u32 len = work->len;
    if (len == 0 || len > SK_TLS_NAME_BYTES) return 0;
    bpf_loop(SK_TLS_NAME_BYTES, text_step, &text, 0);
    __u32 last = len - text.label;
    if (text.bad || last == 0 || last > SK_DNS_LABEL_BYTES) return 0;
    work->query.question.name.wire[text.label & 0xff] = last;
    work->query.question.name.wire[(len + 1) & 0xff] = 0;
    work->query.question.name.len = len + 2;
    dns_labels(work);
    dns_zones_of(work, 1);
    return (work->rules & (SK_DNS_RULE_TLS_EXACT | SK_DNS_RULE_TLS_BELOW)) != 0;
}

/* Where the TCP payload of the packet begins, 0 = it is none that can be read. */
static __always_inline __u32 tcp_payload(struct __sk_buff *skb, struct sk_address *to) {
    __u8 ip[40] = {}, tcp[14] = {};
    __u32 at = 0;
    if (skb->protocol == __builtin_bswap16(ETH_P_IP)) {
        if (bpf_skb_load_bytes(skb, 0, ip, 20) || ip[9] != IPPROTO_TCP || (((ip[6] & 0x3f) << 8) | ip[7])) return 0;
        at = (ip[0] & 0xf) * 4;
        address4(to, *(__u32 *)(ip + 16), 0);
    } else if (skb->protocol == __builtin_bswap16(ETH_P_IPV6)) {
        if (bpf_skb_load_bytes(skb, 0, ip, 40) || ip[6] != IPPROTO_TCP) return 0;
        at = 40;
        address6(to, *(__u32 *)(ip + 24), *(__u32 *)(ip + 28), *(__u32 *)(ip + 32), *(__u32 *)(ip + 36), 0);
    }
    if (!at || bpf_skb_load_bytes(skb, at, tcp, sizeof(tcp))) return 0;
    to->port = tcp[2] << 8 | tcp[3];
    return at + (tcp[12] >> 4) * 4;
}

/* Apart: the verifier of 6.1 forgets a bound that is spilled between its test and the call. And it does not take from
 * "not 0" that it is 1 at least. */
static __noinline int name_load(struct __sk_buff *skb, struct sk_dns_work *work, __u32 at, __u32 len) {
    if (len == 0 || len > SK_TLS_NAME_BYTES) return 0;
    __u32 less = len - 1;
    keep(less);
    if (bpf_skb_load_bytes(skb, at, work->msg, (less & 0xff) + 1)) return 0;
    work->len = len;
    return 1;
}

/* 1 = the policy lists the name; work->len and msg have it, as far as it could be read. */
static __always_inline int hello_judge(struct __sk_buff *skb, struct sk_dns_work *work, __u32 at) {
    struct sk_tls_walk walk = {.skb = skb};
    work->len = 0;
    if (!at || !hello_walk(&walk, at)) return 0;
    return name_load(skb, work, walk.name, walk.len) && tls_listed(work);
}

static __always_inline int tls_settle(struct sk_dns_work *work, struct sk_tls_sock *watched, struct sk_address *to, int listed) {
    struct sk_case c = {};
    case_fill(&c, work->slot, work->generation, SK_SECTION_NETWORK, SK_POWER_REFUSE);
    c.by = SK_BACKEND_CGROUP;
    c.op = SK_NET_SEND;
    c.path_hash = to->hi * 31 + to->lo * 7 + to->port;
    if (c.code == SK_CODE_OK && !listed) c.code = work->len ? SK_CODE_TLS_NAME : SK_CODE_TLS_HELLO;
    case_settle(&c);
    if (c.ring && c.code != SK_CODE_OK) tls_report(&c, to, work);
    watched->state = c.refuse ? SK_TLS_REFUSED : SK_TLS_PASSED;
    return c.refuse ? 0 : 1;
}

/* FIRES for each packet of a socket in the cgroup, before it is cut to segments. SOURCE ip_finish_output,
 * ip6_finish_output. */
SEC("cgroup_skb/egress")
int tls_egress(struct __sk_buff *skb) {
    struct bpf_sock *sk = skb->sk;
    if (sk) sk = bpf_sk_fullsock(sk);
    struct sk_tls_sock *watched = sk ? bpf_sk_storage_get(&tls_socks, sk, NULL, 0) : NULL;
    if (!watched || watched->state == SK_TLS_FREE || watched->state == SK_TLS_PASSED) return 1;
    struct sk_address to = {};
    __u32 at = tcp_payload(skb, &to);
    if (at && at >= skb->len) return 1; /* a SYN, an ACK, a FIN */
    if (watched->state == SK_TLS_REFUSED) return 0;
    struct sk_dns_work *work = work_claim(watched->slot);
    if (!work) {
        count_error(SK_ERROR_DNS_WORK);
        return 0; /* TCP sends it again */
    }
    work_begin(work, watched->slot, watched->generation);
    int allowed = tls_settle(work, watched, &to, hello_judge(skb, work, at));
    work_release(work);
    return allowed;
}
