#include "userspace/cmd/access.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/errno.h"

namespace stockade::cmd {
namespace {

// A group with thousands of members has lines of that size.
constexpr size_t kGroupBytes = 1 << 20;
// NGROUPS_MAX of Linux.
constexpr size_t kMaxGroups = 65536;

std::optional<gid_t> FindGroup(const std::string& name) {
    std::vector<char> buffer(kGroupBytes);
    group entry{};
    group* found = nullptr;
    if (getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
        return std::nullopt;
    return found->gr_gid;
}

bool HasGroup(int socket_fd, gid_t group) {
    std::vector<gid_t> groups(kMaxGroups);
    auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) return false;
    groups.resize(size / sizeof(gid_t));
    return absl::c_linear_search(groups, group);
}

}  // namespace

Access::Access(ApiConfig config) : config_(std::move(config)) {
    if (config_.policies.empty()) return;
    group_ = FindGroup(config_.group);
    if (!group_.has_value()) {
        warning_ =
            absl::StrCat("api.policies allows something to the group ", config_.group,
                         ", which does not exist: root alone may talk to the agent (groupadd --system ",
                         config_.group, ", then restart the agent)");
    }
}

Status Access::CheckPeer(const api::Peer& peer, int socket_fd) const {
    if (peer.uid == 0) return absl::OkStatus();
    if (group_.has_value() && (peer.gid == *group_ || HasGroup(socket_fd, *group_))) return absl::OkStatus();
    return absl::PermissionDeniedError(
        group_.has_value()
            ? absl::StrCat("only root and members of the group ", config_.group, " may talk to the agent")
            : "only root may talk to the agent: its configuration allows nothing to others (api.policies)");
}

Status Access::CheckMessage(const api::Message& message) {
    switch (message.body_case()) {
        case api::Message::kRun:
        case api::Message::kAttach:
        case api::Message::kPs:
        case api::Message::kInspect:
        case api::Message::kKill:
        case api::Message::kPing:
        case api::Message::kEvents:
            return absl::OkStatus();
        default:
            return absl::PermissionDeniedError("only root may ask this of the agent");
    }
}

// The shim that acts on these is root, so what is handed in must be the member's own.
Status Access::CheckRun(const api::Packet& packet, uid_t uid) {
    if (!packet.message.run().seccomp_json().empty())
        return absl::PermissionDeniedError("--seccomp-profile is for root alone");
    for (int i = 0; i < packet.message.fds_size(); ++i) {
        const api::FdRole role = packet.message.fds(i);
        if (role == api::FD_BIND) return absl::PermissionDeniedError("--bind is for root alone");
        if (role == api::FD_ROOTFS) return absl::PermissionDeniedError("--rootfs is for root alone");
        if (role != api::FD_IN && role != api::FD_OUT) continue;
        const char* flag = role == api::FD_IN ? "--in" : "--out";
        struct stat info{};
        if (fstat(packet.fds[i].get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("look at ", flag));
        if (info.st_uid != uid)
            return absl::PermissionDeniedError(absl::StrCat(flag, " takes a directory that you own"));
    }
    return absl::OkStatus();
}

Status Access::CheckPolicy(const std::string& policy) const {
    if (absl::c_linear_search(config_.policies, policy)) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat("the policy ", policy, " is not among those that members of the group ", config_.group,
                     " may use: ", absl::StrJoin(config_.policies, ", ")));
}

std::string Access::SessionOf(uid_t uid, const std::string& session) const {
    if (uid == 0 || session.empty() || config_.any_session) return session;
    const std::string own = absl::StrCat("uid", uid, "/");
    return absl::StartsWith(session, own) ? session : own + session;
}

Status OpenSocketTo(const std::string& socket_path, gid_t group) {
    const std::string directory = socket_path.substr(0, socket_path.rfind('/'));
    struct stat info{};
    if (stat(directory.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("look at ", directory));
    // One that everybody may pass through needs no change, and may be somebody else's.
    if ((info.st_mode & S_IXOTH) == 0 && (chown(directory.c_str(), static_cast<uid_t>(-1), group) != 0 ||
                                          chmod(directory.c_str(), (info.st_mode & 07777) | S_IXGRP) != 0)) {
        return ErrnoStatus(errno, absl::StrCat("open ", directory, " to the group"));
    }
    if (chown(socket_path.c_str(), static_cast<uid_t>(-1), group) != 0 ||
        chmod(socket_path.c_str(), 0660) != 0) {
        return ErrnoStatus(errno, absl::StrCat("open ", socket_path, " to the group"));
    }
    return absl::OkStatus();
}

}  // namespace stockade::cmd
