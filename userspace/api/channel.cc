#include "userspace/api/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::api {
namespace {

constexpr size_t kReadBytes = 64 * 1024;

Status Gone() { return absl::UnavailableError("the other side closed the connection"); }

StatusOr<sockaddr_un> Address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
        return absl::InvalidArgumentError(
            absl::StrCat("socket path longer than ", sizeof(address.sun_path) - 1, ": ", path));
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

StatusOr<Fd> MakeSocket(int extra) {
    Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | extra, 0));
    if (!fd.ok()) return ErrnoStatus(errno, "make a unix socket");
    return fd;
}

bool IsGone(int error) { return error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

// Waits until `fd` has `events`. False after `timeout_ms`.
StatusOr<bool> WaitFor(int fd, short events, int timeout_ms) {
    const uint64_t end = BootNow() + static_cast<uint64_t>(timeout_ms < 0 ? 0 : timeout_ms) * 1000000;
    while (true) {
        int left = timeout_ms;
        if (timeout_ms >= 0) {
            const uint64_t now = BootNow();
            left = now >= end ? 0 : static_cast<int>((end - now + 999999) / 1000000);
        }
        pollfd entry{.fd = fd, .events = events, .revents = 0};
        const int rc = poll(&entry, 1, left);
        if (rc > 0) return true;
        if (rc == 0) return false;
        if (errno != EINTR) return ErrnoStatus(errno, "wait for a socket");
    }
}

// One sendmsg with the descriptors of `fds` attached. Bytes written, 0 when there is no room.
StatusOr<size_t> SendSome(int fd, absl::string_view bytes, const std::vector<FdArg>& fds) {
    iovec iov{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &iov;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
        cmsghdr* cmsg = CMSG_FIRSTHDR(&header);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
        for (size_t i = 0; i < fds.size(); ++i) {
            std::memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &fds[i].second, sizeof(int));
        }
    }
    while (true) {
        const ssize_t rc = sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (rc >= 0) return static_cast<size_t>(rc);
        if (errno == EINTR) continue;
        if (errno == EAGAIN) return size_t{0};
        if (IsGone(errno)) return Gone();
        return ErrnoStatus(errno, "send a message");
    }
}

}  // namespace

Fd Packet::Take(FdRole role) {
    for (int i = 0; i < message.fds_size() && i < static_cast<int>(fds.size()); ++i) {
        if (message.fds(i) == role && fds[i].ok()) return std::move(fds[i]);
    }
    return Fd();
}

StatusOr<Channel> Channel::Connect(const std::string& path) {
    SK_ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
    SK_ASSIGN_OR_RETURN(Fd fd, MakeSocket(0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        if (errno == ENOENT || errno == ECONNREFUSED) {
            return absl::UnavailableError(absl::StrCat("no agent listens at ", path));
        }
        return ErrnoStatus(errno, absl::StrCat("connect to the agent at ", path));
    }
    return Channel(std::move(fd));
}

StatusOr<std::pair<Channel, Channel>> Channel::Pair() {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        return ErrnoStatus(errno, "make a pair of sockets");
    }
    return std::make_pair(Channel(Fd(fds[0])), Channel(Fd(fds[1])));
}

Status Channel::Send(Message message, const std::vector<FdArg>& fds) {
    if (fds.size() > kMaxFds) return absl::InternalError("too many descriptors in one message");
    message.clear_fds();
    for (const FdArg& fd : fds) message.add_fds(fd.first);
    SK_ASSIGN_OR_RETURN(const std::string frame, EncodeFrame(message));
    // Frames that are queued come first, else their bytes would be torn apart.
    queue_.append(frame);
    const size_t attach_at = queued_bytes() - frame.size();
    size_t sent = 0;
    const size_t total = queued_bytes();
    while (sent < total) {
        absl::string_view rest = absl::string_view(queue_).substr(queue_used_);
        const bool attach = sent == attach_at && !fds.empty();
        if (sent < attach_at) rest = rest.substr(0, attach_at - sent);
        SK_ASSIGN_OR_RETURN(const size_t wrote,
                            SendSome(fd_.get(), rest, attach ? fds : std::vector<FdArg>()));
        queue_used_ += wrote;
        sent += wrote;
        if (wrote > 0) continue;
        SK_ASSIGN_OR_RETURN(const bool room, WaitFor(fd_.get(), POLLOUT, kSendTimeoutMs));
        if (!room) return absl::DeadlineExceededError("the other side does not read");
    }
    queue_.clear();
    queue_used_ = 0;
    return absl::OkStatus();
}

Status Channel::Queue(const Message& message) {
    SK_ASSIGN_OR_RETURN(const std::string frame, EncodeFrame(message));
    if (queued_bytes() + frame.size() > kMaxQueuedBytes) {
        return absl::ResourceExhaustedError("the other side does not read");
    }
    queue_.append(frame);
    return absl::OkStatus();
}

StatusOr<bool> Channel::Flush() {
    while (queued_bytes() > 0) {
        SK_ASSIGN_OR_RETURN(const size_t wrote,
                            SendSome(fd_.get(), absl::string_view(queue_).substr(queue_used_), {}));
        if (wrote == 0) return false;
        queue_used_ += wrote;
        if (queue_used_ > kMaxFrameBytes) {
            queue_.erase(0, queue_used_);
            queue_used_ = 0;
        }
    }
    queue_.clear();
    queue_used_ = 0;
    return true;
}

// Reads once. False when nothing was there.
StatusOr<bool> Channel::ReadSome() {
    std::string bytes(kReadBytes, '\0');
    iovec iov{.iov_base = bytes.data(), .iov_len = bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &iov;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t rc;
    do {
        rc = recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0 && errno == EAGAIN) return false;
    if (rc < 0 && IsGone(errno)) return Gone();
    if (rc < 0) return ErrnoStatus(errno, "receive a message");
    for (cmsghdr* cmsg = CMSG_FIRSTHDR(&header); cmsg != nullptr; cmsg = CMSG_NXTHDR(&header, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
            received_.emplace_back(fd);
        }
    }
    if (rc == 0) return Gone();
    // More than one frame may wait, each with its own descriptors; beyond two full frames
    // the sender plays with us.
    if ((header.msg_flags & MSG_CTRUNC) != 0 || received_.size() > 2 * kMaxFds) {
        return absl::InvalidArgumentError("too many descriptors in one message");
    }
    parser_.Add(absl::string_view(bytes).substr(0, static_cast<size_t>(rc)));
    return true;
}

StatusOr<std::optional<Packet>> Channel::NextBuffered() {
    SK_ASSIGN_OR_RETURN(std::optional<Message> message, parser_.Next());
    if (!message) return std::optional<Packet>();
    if (static_cast<size_t>(message->fds_size()) > received_.size()) {
        return absl::InvalidArgumentError("a message names descriptors that it does not carry");
    }
    Packet packet{.message = *std::move(message), .fds = {}};
    for (int i = 0; i < packet.message.fds_size(); ++i) {
        packet.fds.push_back(std::move(received_.front()));
        received_.pop_front();
    }
    return std::optional<Packet>(std::move(packet));
}

StatusOr<std::optional<Packet>> Channel::TryReceive() {
    while (true) {
        SK_ASSIGN_OR_RETURN(std::optional<Packet> packet, NextBuffered());
        if (packet) return packet;
        SK_ASSIGN_OR_RETURN(const bool more, ReadSome());
        if (!more) return std::optional<Packet>();
    }
}

StatusOr<Packet> Channel::Receive(int timeout_ms) {
    while (true) {
        SK_ASSIGN_OR_RETURN(std::optional<Packet> packet, TryReceive());
        if (packet) return *std::move(packet);
        SK_ASSIGN_OR_RETURN(const bool ready, WaitFor(fd_.get(), POLLIN, timeout_ms));
        if (!ready) return absl::DeadlineExceededError("no answer in time");
    }
}

StatusOr<Peer> Channel::PeerCredentials() const {
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
        return ErrnoStatus(errno, "ask who connected");
    }
    return Peer{.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
}

StatusOr<Fd> Listen(const std::string& path) {
    SK_ASSIGN_OR_RETURN(const sockaddr_un address, Address(path));
    const std::string directory = path.substr(0, path.rfind('/'));
    if (mkdir(directory.c_str(), 0750) != 0 && errno != EEXIST) {
        return ErrnoStatus(errno, absl::StrCat("make ", directory));
    }
    // A socket file that nobody answers at was left by an agent that died.
    const StatusOr<Channel> probe = Channel::Connect(path);
    if (probe.ok()) {
        return absl::AlreadyExistsError(absl::StrCat("another agent listens at ", path, ": stop it first"));
    }
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
        return ErrnoStatus(errno, absl::StrCat("remove the dead socket ", path));
    }
    SK_ASSIGN_OR_RETURN(Fd fd, MakeSocket(SOCK_NONBLOCK));
    const mode_t mask = umask(0177);
    const int rc = bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    const int error = errno;
    umask(mask);
    if (rc != 0) return ErrnoStatus(error, absl::StrCat("bind ", path));
    // 100 sandboxes may be started by one script at the same moment.
    if (listen(fd.get(), 128) != 0) return ErrnoStatus(errno, absl::StrCat("listen at ", path));
    return fd;
}

StatusOr<std::optional<Channel>> Accept(int listen_fd) {
    while (true) {
        const int fd = accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd >= 0) return std::optional<Channel>(Channel(Fd(fd)));
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EAGAIN) return std::optional<Channel>();
        return ErrnoStatus(errno, "accept a connection");
    }
}

}  // namespace stockade::api
