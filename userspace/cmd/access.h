// Who talks to the agent, and what they may ask of it.
//
// Root may all. A member of the configured group may start sandboxes under the policies that the configuration lists, and sees, follows and
// ends its own and no others. Everybody else is refused: by the socket's mode, and here.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "userspace/api/channel.h"
#include "userspace/base/status.h"
#include "userspace/cmd/config_service.h"

namespace stockade::cmd {

// Of 4,096 sandboxes and twice as many connections: one member cannot take the node's.
inline constexpr size_t kMaxMemberSandboxes = 64;
inline constexpr size_t kMaxMemberConnections = 128;

class Access {
  public:
    explicit Access(ApiConfig config);

    // The group, where it exists and has something to be allowed. Else root alone is let in.
    std::optional<gid_t> group() const { return group_; }
    // What an administrator should know of the configuration; empty = nothing.
    const std::string& warning() const { return warning_; }

    // As the kernel saw the peer when it connected, its further groups included.
    Status CheckPeer(const api::Peer& peer, int socket_fd) const;
    // Of a member: messages that are root's alone.
    static Status CheckMessage(const api::Message& message);
    // What a run of a member may bring along. The descriptors are those of the packet.
    static Status CheckRun(const api::Packet& packet, uid_t uid);
    Status CheckPolicy(const std::string& policy) const;
    // What a member's session is called: in a name space of its own, so that nobody speaks for another's session, nor spends its DNS
    // budget. Root's, and none, are as they are.
    std::string SessionOf(uid_t uid, const std::string& session) const;

  private:
    const ApiConfig config_;
    std::optional<gid_t> group_;
    std::string warning_;
};

// Lets the group reach the socket. While CAP_CHOWN is held still.
Status OpenSocketTo(const std::string& socket_path, gid_t group);

}  // namespace stockade::cmd
