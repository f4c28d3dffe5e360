// One end of a connection that carries Messages and descriptors.
//
//   SK_ASSIGN_OR_RETURN(Channel channel, Channel::Connect("/run/stockade/agent.sock"));
//   SK_RETURN_IF_ERROR(channel.Send(message, {fd}));
//   SK_ASSIGN_OR_RETURN(Packet packet, channel.Receive(deadline_ms));
//
// Threads: one at a time. Sending waits until the other side has room, but no longer than
// kSendTimeoutMs, except with Queue and Flush, which never wait.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "userspace/api/frame.h"
#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::api {

// A message and what was attached to it. fds.size() == message.fds_size().
struct Packet {
    Message message;
    std::vector<Fd> fds;

    // Takes the descriptor of that role out; an Fd that is not ok() when there is none.
    Fd Take(FdRole role);
};

struct Peer {
    int pid = 0;
    unsigned uid = 0;
    unsigned gid = 0;
};

// One attached descriptor, borrowed.
using FdArg = std::pair<FdRole, int>;

class Channel {
  public:
    Channel() = default;
    explicit Channel(Fd fd) : fd_(std::move(fd)) {}

    // kUnavailable when nobody listens there.
    static StatusOr<Channel> Connect(const std::string& path);
    static StatusOr<std::pair<Channel, Channel>> Pair();

    // Sends all of it. kUnavailable when the other side is gone.
    Status Send(Message message, const std::vector<FdArg>& fds = {});
    // Waits for the next message. kUnavailable at the end of the stream, kDeadlineExceeded
    // after `timeout_ms` (-1 = for ever).
    StatusOr<Packet> Receive(int timeout_ms);
    // The same without waiting; nothing when no whole message is there.
    StatusOr<std::optional<Packet>> TryReceive();

    // Keeps the frame until Flush can write it. kResourceExhausted, and nothing kept, when
    // more than kMaxQueuedBytes wait: the other side does not read.
    Status Queue(const Message& message);
    // Writes what fits. True when nothing is left.
    StatusOr<bool> Flush();
    size_t queued_bytes() const { return queue_.size() - queue_used_; }

    // SO_PEERCRED: who connected, as the kernel saw it then.
    StatusOr<Peer> PeerCredentials() const;

    int fd() const { return fd_.get(); }
    bool ok() const { return fd_.ok(); }
    Fd Release() { return std::move(fd_); }
    void Close() { fd_.Reset(); }

  private:
    StatusOr<bool> ReadSome();
    StatusOr<std::optional<Packet>> NextBuffered();

    Fd fd_;
    FrameParser parser_;
    std::deque<Fd> received_;  // not yet claimed by a message
    std::string queue_;
    size_t queue_used_ = 0;
};

// A client that reads nothing costs the agent at most this: eight times a full frame.
inline constexpr size_t kMaxQueuedBytes = 8 * kMaxFrameBytes;
inline constexpr int kSendTimeoutMs = 5000;

// A listening socket at `path`, mode 0600 in a directory of mode 0750 that is made if missing.
// kAlreadyExists when somebody answers there; a dead socket file is replaced.
StatusOr<Fd> Listen(const std::string& path);
// The next waiting connection; nothing when none waits.
StatusOr<std::optional<Channel>> Accept(int listen_fd);

}  // namespace stockade::api
