#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "tests/live/coverage_case.h"

namespace stockade::live {
namespace {

using model::Operation;

bool Heard(World& world, const Result&) { return world.listeners.Heard(); }

Case Reach(Operation operation, const std::string& name, uint32_t code, std::vector<std::string> args) {
    return {.operation = operation, .name = name, .args = std::move(args), .code = code, .effect = Heard};
}

Case Optional(Case c) {
    c.optional = true;
    return c;
}

// A datagram socket of the test's own cgroup.
void Inherited(World& world) {
    world.kept.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    world.spare_fd = world.kept.back().get();
}

// The same, waiting in a unix socket pair.
void Sent(World& world) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return;
    world.kept.emplace_back(pair[0]);
    world.kept.emplace_back(pair[1]);
    Fd inet(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {};
    iovec bytes = {&byte, 1};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    int fd = inet.get();
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    (void)sendmsg(pair[0], &message, 0); // the control run tells
    world.spare_fd = pair[1];
}

}  // namespace

std::vector<Case> NetCases() {
    const uint32_t connect = SK_CODE_CONNECT_NOT_ALLOWED, send = SK_CODE_SEND_NOT_ALLOWED;
    Case uring = Optional(Reach(Operation::CONNECT_IO_URING, "connect_io_uring", connect, {"connect_io_uring", "{port}"}));
    uring.policy.grants = {"io_uring"};
    Case inherited = Reach(Operation::SOCKET_INHERITED, "socket_inherited", SK_CODE_SOCKET_RECEIVED, {"use_inherited", "{port}"});
    inherited.prepare = Inherited;
    Case received = Reach(Operation::SOCKET_RECEIVED, "socket_received", SK_CODE_SOCKET_RECEIVED, {"use_received", "{port}"});
    received.prepare = Sent;
    inherited.whole = received.whole = true;
    Case raw = Reach(Operation::PACKET_UNANNOUNCED, "send_raw", SK_CODE_PACKET_NOT_ALLOWED, {"send_raw", "{port}"});
    raw.policy.grants = {"raw_socket"};
    return {
        raw,
        Reach(Operation::CONNECT_TCP4, "connect_tcp4", connect, {"connect_tcp4", "{port}"}),
        Optional(Reach(Operation::CONNECT_TCP6, "connect_tcp6", connect, {"connect_tcp6", "{port}"})),
        Reach(Operation::CONNECT_MAPPED, "connect_mapped", connect, {"connect_mapped", "{port}"}),
        Reach(Operation::CONNECT_UDP, "connect_udp", connect, {"connect_udp", "{port}"}),
        Reach(Operation::CONNECT_DISSOLVED, "connect_dissolved", connect, {"connect_dissolved", "{allowed}", "{port}"}),
        Optional(Reach(Operation::CONNECT_MPTCP, "connect_mptcp", connect, {"connect_mptcp", "{port}"})),
        Optional(Reach(Operation::CONNECT_COMPAT, "connect_compat", connect, {"connect_compat", "{port}"})),
        uring,
        Reach(Operation::SEND_FASTOPEN, "send_fastopen", connect, {"send_fastopen", "{port}"}),
        Optional(Reach(Operation::SEND_FASTOPEN, "send_fastopen_mptcp", connect, {"send_fastopen_mptcp", "{port}"})),
        Reach(Operation::SEND_UDP, "send_udp4", send, {"send_udp4", "{port}"}),
        Optional(Reach(Operation::SEND_UDP, "send_udp6", send, {"send_udp6", "{port}"})),
        Reach(Operation::SEND_MANY, "send_many", send, {"send_many", "{allowed}", "{port}"}),
        Reach(Operation::SEND_MAPPED, "send_mapped", send, {"send_mapped", "{port}"}),
        Reach(Operation::SEND_MAPPED, "send_four_on_six", send, {"send_four_on_six", "{port}"}),
        Reach(Operation::SEND_UNSPEC, "send_unspec", send, {"send_unspec", "{port}"}),
        {.operation = Operation::BIND, .name = "bind4", .args = {"bind4", "9"}, .code = SK_CODE_BIND_NOT_ALLOWED},
        {.operation = Operation::BIND, .name = "bind6", .args = {"bind6", "9"}, .code = SK_CODE_BIND_NOT_ALLOWED, .optional = true},
        {.operation = Operation::LISTEN, .name = "listen", .args = {"listen"}, .code = SK_CODE_BIND_NOT_ALLOWED},
        inherited,
        received,
    };
}

}  // namespace stockade::live
