#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "tests/live/coverage_case.h"

namespace stockade::live {
namespace {

using model::Operation;

Case Make(Operation operation, const std::string& name, bool optional = false) {
    return {.operation = operation, .name = name, .args = {name}, .code = SK_CODE_SOCKET_NOT_ALLOWED, .optional = optional};
}

// A listener of the test's own; a name that begins with @ is abstract.
void Listen(World& world, const std::string& name, int type) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string text = world.Fill(name);
    memcpy(address.sun_path, text.c_str(), std::min(text.size(), sizeof(address.sun_path) - 1));
    const bool abstract = text[0] == '@';
    if (abstract) address.sun_path[0] = 0;
    socklen_t length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + (abstract ? 0 : 1));
    world.kept.emplace_back(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int fd = world.kept.back().get();
    (void)bind(fd, reinterpret_cast<sockaddr*>(&address), length); // the control run tells
    if (type == SOCK_STREAM) (void)listen(fd, 4);
}

bool Heard(World& world, const Result&) {
    char bytes[16];
    int fd = world.kept.back().get();
    Fd peer(accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
    return peer.ok() || recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0;
}

Case Unix(Operation operation, const std::string& name, const std::string& trigger, const std::string& socket, int type) {
    return {.operation = operation, .name = name, .args = {trigger, socket}, .code = SK_CODE_UNIX_NOT_ALLOWED,
            .prepare = [=](World& world) {
                world.words["unique"] = absl::StrCat("stockade_test_", getpid());
                Listen(world, socket, type);
            },
            .effect = Heard,
            .whole = true};
}

// The allowed name is free when the policy is bound; the sandbox makes it a link to another socket.
Case Alias() {
    Case c = Unix(Operation::UNIX_PATH_ALIAS, "unix_path_alias", "unix_alias", "{no}/socket", SOCK_STREAM);
    c.args = {"unix_alias", "{no}/socket", "{in}/link"};
    c.policy.network = {"{unix: {in}/link}"};
    return c;
}

Case Swapped() {
    constexpr int kLinks = 30;  // of at most 40 in one walk, each of nearly a path's length
    Case c = Unix(Operation::SOCKET_SWAPPED, "unix_swapped", "unix_swapped", "{no}/socket", SOCK_STREAM);
    c.args = {"unix_swapped", absl::StrCat("{in}/", kLinks - 1)};
    c.prepare = [listen = c.prepare](World& world) {
        listen(world);
        std::string target = world.Fill("{no}/socket");
        for (int i = 0; i < kLinks; ++i) {
            (void)!symlink(target.c_str(), world.Fill(absl::StrCat("{in}/", i)).c_str());  // the control run tells
            target = std::to_string(i);
            while (target.size() < 3900) target.insert(0, "./");
        }
    };
    c.raced = true;
    return c;
}

}  // namespace

std::vector<Case> SocketCases() {
    return {
        Alias(),
        Swapped(),
        Make(Operation::SOCKET_INET, "socket_raw"),
        Make(Operation::SOCKET_INET, "socket_raw6", true),
        Make(Operation::SOCKET_INET, "socket_ping", true),
        Make(Operation::SOCKET_PACKET, "socket_packet", true),
        Make(Operation::SOCKET_OTHER, "socket_alg", true),
        Make(Operation::SOCKET_OTHER, "socket_vsock", true),
        Make(Operation::SOCKET_OTHER, "socket_netlink_audit", true),
        Make(Operation::SOCKET_OTHER, "socket_netlink_uevent"),
        Unix(Operation::UNIX_PATH, "unix_path", "unix_stream", "{no}/socket", SOCK_STREAM),
        Unix(Operation::UNIX_PATH, "unix_path_by_child", "unix_by_child", "{no}/socket", SOCK_STREAM),
        Unix(Operation::UNIX_ABSTRACT, "unix_abstract", "unix_stream", "@{unique}", SOCK_STREAM),
        Unix(Operation::UNIX_DATAGRAM, "unix_datagram", "unix_datagram", "{no}/socket", SOCK_DGRAM),
        Unix(Operation::UNIX_PATH, "unix_connected_datagram", "unix_connected_datagram", "{no}/socket", SOCK_DGRAM),
    };
}

}  // namespace stockade::live
