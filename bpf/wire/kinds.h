/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* The list of record kinds. The enum, the size check, the decode switch, the layout test and
 * the counter names all come from it. X(number, NAME, stem): struct sk_<stem> in
 * bpf/wire/<stem>.h, SK_KIND_<NAME>, decode/<stem>.cc. */
#pragma once
#include "bpf/wire/base.h"

#define SK_KINDS(X)           \
    X(1, EXEC, exec)          \
    X(2, EXIT, exit)          \
    X(3, FORK, fork)          \
    X(4, FILE, file)          \
    X(5, NET, net)            \
    X(6, ESCAPE, escape)      \
    X(7, LIFECYCLE, lifecycle) \
    X(8, REPEAT, repeat) \
    X(9, DNS, dns)

enum sk_kind {
#define X(number, NAME, stem) SK_KIND_##NAME = number,
    SK_KINDS(X)
#undef X
};

/* Verdicts, ordered by severity: a policy's violation is DENY or worse. */
#define SK_VERDICTS(X)       \
    X(0, ALLOW, "allow")     \
    X(1, OBSERVE, "observe") \
    X(2, DENY, "deny")       \
    X(3, KILL_PROCESS, "kill-process") \
    X(4, KILL_SANDBOX, "kill-sandbox")

enum sk_verdict {
#define X(number, NAME, yaml) SK_VERDICT_##NAME = number,
    SK_VERDICTS(X)
#undef X
};

/* What happened to the operation itself, whatever the verdict said. */
#define SK_OUTCOMES(X)                                                             \
    X(0, DONE, "done")           /* allowed, or observed: the effect happened */    \
    X(1, PREVENTED, "prevented") /* refused before its effect */                    \
    X(2, KILLED_AFTER, "killed after effect")                                       \
    X(3, SEEN, "seen") /* this backend can only report it */

enum sk_outcome {
#define X(number, NAME, text) SK_OUTCOME_##NAME = number,
    SK_OUTCOMES(X)
#undef X
};

/* Which lock refused. Records of the kernel programs carry BPF, or for system calls that
 * failed by another hand what the errno tells. */
#define SK_LOCKS(X)            \
    X(0, NONE, "none")         \
    X(1, BPF, "bpf")           \
    X(2, LANDLOCK, "landlock") \
    X(3, SECCOMP, "seccomp")   \
    X(4, MOUNT, "mount")       \
    X(5, DAC, "dac")

enum sk_lock {
#define X(number, NAME, text) SK_LOCK_##NAME = number,
    SK_LOCKS(X)
#undef X
};

enum sk_backend { SK_BACKEND_SIGNAL = 1, SK_BACKEND_LSM = 2, SK_BACKEND_CGROUP = 3 };

/* Stable reason codes. X(number, NAME, "code", "sentence"): the sentence is what a person
 * reads, %s stands for the object. Numbers are never used again for another meaning. */
#define SK_CODES(X)                                                                        \
    X(0, OK, "ok", "allowed: %s")                                                           \
    X(1, EXEC_NOT_ALLOWED, "exec.not_allowed", "the policy does not allow executing %s")    \
    X(2, EXEC_DENIED, "exec.denied", "the policy denies executing %s")                      \
    X(3, EXEC_NO_PATH, "exec.no_path", "executing code that has no path needs the grant memfd_exec: %s") \
    X(4, MAP_NOT_ALLOWED, "exec.map", "the policy does not allow mapping %s as code")       \
    X(10, READ_NOT_ALLOWED, "files.read", "the policy does not allow reading %s")           \
    X(11, READ_DENIED, "files.read_denied", "the policy denies reading %s")                 \
    X(12, WRITE_NOT_ALLOWED, "files.write", "the policy does not allow writing %s")         \
    X(13, WRITE_DENIED, "files.write_denied", "the policy denies writing %s")               \
    X(14, RENAME_OVER_DENY, "files.rename_deny_below", "renaming %s would move denied paths below it") \
    X(15, HANDLE, "files.open_by_handle", "opening by handle needs the grant open_by_handle: %s") \
    X(16, PATH_UNKNOWN, "files.path_unknown", "the path cannot be told (too deep, unreachable or changing): %s") \
    X(20, CONNECT_NOT_ALLOWED, "network.connect", "the policy does not allow a connection to %s") \
    X(21, SEND_NOT_ALLOWED, "network.send", "the policy does not allow sending to %s")      \
    X(22, BIND_NOT_ALLOWED, "network.bind", "the policy does not allow binding %s")         \
    X(23, UNIX_NOT_ALLOWED, "network.unix", "the policy does not allow the unix socket %s") \
    X(24, SOCKET_NOT_ALLOWED, "network.socket", "sockets of this kind need a grant: %s")    \
    X(25, SOCKET_RECEIVED, "network.socket_received", "a socket made outside was handed in: %s") \
    X(26, PACKET_NOT_ALLOWED, "network.packet", "a packet that no call announced: %s")      \
    X(27, ADDRESS_DENIED, "network.denied", "a rule denied this address to the sandbox: %s") \
    X(30, ESCAPE, "escape", "needs a grant: %s")                                            \
    X(40, LEFT_CGROUP, "sandbox.left_cgroup", "a task left the sandbox's cgroup")           \
    X(41, CONDEMNED, "sandbox.condemned", "the sandbox is condemned: %s")                   \
    X(42, ENTERED, "sandbox.entered", "a task entered from outside: %s")                    \
    X(43, NO_STORAGE, "sandbox.no_storage", "no memory for a task's label")                 \
    X(44, NO_POLICY, "sandbox.no_policy", "no policy is bound")                             \
    X(50, OTHER_LOCK, "refused.other_lock", "refused by another lock: %s") \
    X(60, DNS_FORM, "dns.form", "a DNS query that is not of the canonical form: %s")         \
    X(61, DNS_NOT_ALLOWED, "dns.name", "the policy does not allow resolving %s")             \
    X(62, DNS_ZONE_BUDGET, "dns.zone_budget", "the DNS budget of its zone does not suffice for %s") \
    X(63, DNS_ZONE_BLOCKED, "dns.zone_blocked", "the DNS budget of its zone is used up: %s") \
    X(64, DNS_TOTAL_BUDGET, "dns.total_budget", "the DNS budget of all unranked zones does not suffice for %s") \
    X(65, DNS_NAME_LONG, "dns.name_long", "a name that could hold 64 bytes for one zone: %s") \
    X(66, DNS_NO_ROOM, "dns.no_room", "no memory to count the query: %s")                    \
    X(67, DNS_SERVER, "dns.server", "asked of a server that is no resolver of the sandbox: %s")              \
    X(70, TLS_NAME, "network.tls_name", "the policy lists no such server name of TLS: %s")   \
    X(71, TLS_HELLO, "network.tls_hello", "no whole ClientHello with a readable server name came first: %s")

enum sk_code {
#define X(number, NAME, code, sentence) SK_CODE_##NAME = number,
    SK_CODES(X)
#undef X
};
