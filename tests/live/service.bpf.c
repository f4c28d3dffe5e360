/* SPDX-License-Identifier: GPL-2.0-only OR BSD-3-Clause */
/* What a cluster's network does at the socket: a service's address becomes a backend's in the call, and the
 * backend's the service's in what is received. For tests. */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define SERVICE bpf_htonl(0x0a60000a) /* 10.96.0.10 */
#define BACKEND bpf_htonl(0x0a01004d) /* 10.1.0.77 */
#define SERVICE_PORT bpf_htons(53)
#define BACKEND_PORT bpf_htons(10053)

static int there(struct bpf_sock_addr *ctx) {
    if (ctx->user_ip4 != SERVICE || ctx->user_port != SERVICE_PORT) return 1;
    ctx->user_ip4 = BACKEND;
    ctx->user_port = BACKEND_PORT;
    return 1;
}

SEC("cgroup/connect4")
int svc_connect4(struct bpf_sock_addr *ctx) { return there(ctx); }

SEC("cgroup/sendmsg4")
int svc_sendmsg4(struct bpf_sock_addr *ctx) { return there(ctx); }

SEC("cgroup/recvmsg4")
int svc_recvmsg4(struct bpf_sock_addr *ctx) {
    if (ctx->user_ip4 != BACKEND || ctx->user_port != BACKEND_PORT) return 1;
    ctx->user_ip4 = SERVICE;
    ctx->user_port = SERVICE_PORT;
    return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
