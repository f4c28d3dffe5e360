#include "userspace/guest/init_relay.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "userspace/base/errno.h"

namespace stockade::guest {
namespace {

class Relay {
  public:
    Relay(Command& command, GuestPort& stdio)
        : command_(command), stdio_(stdio), buffer_(kMaxDataBytes, '\0') {}

    // One read; closes `pipe` at its end.
    Status Output(Fd& pipe, Kind kind);
    Status TakeInput();
    Status FeedCommand();
    // Nothing more is taken from the host before the command has read this.
    bool has_pending() const { return used_ < pending_.size(); }

  private:
    Status NextInput();

    Command& command_;
    GuestPort& stdio_;
    std::string buffer_, pending_;
    size_t used_ = 0;
};

Status Relay::Output(Fd& pipe, Kind kind) {
    ssize_t n;
    do {
        n = read(pipe.get(), buffer_.data(), buffer_.size());
    } while (n < 0 && errno == EINTR);
    if (n < 0) return ErrnoStatus(errno, "read the command's output");
    if (n == 0) {
        pipe.Reset();
        return absl::OkStatus();
    }
    return stdio_.Send(kind, absl::string_view(buffer_.data(), static_cast<size_t>(n)));
}

Status Relay::TakeInput() {
    SK_RETURN_IF_ERROR(stdio_.ReadSome());
    return NextInput();
}

// Goes on with what has come, until some of it has to wait.
Status Relay::NextInput() {
    while (!has_pending()) {
        SK_ASSIGN_OR_RETURN(const std::optional<Frame> frame, stdio_.reader().Next());
        if (!frame.has_value()) return absl::OkStatus();
        if (frame->kind == Kind::kStdinEnd) {
            command_.in.Reset();
        } else if (frame->kind == Kind::kStdin) {
            pending_ = std::string(frame->body);
            used_ = 0;
            SK_RETURN_IF_ERROR(FeedCommand());
        } else {
            return absl::InvalidArgumentError("the host speaks out of its place");
        }
    }
    return absl::OkStatus();
}

Status Relay::FeedCommand() {
    while (has_pending() && command_.in.ok()) {
        const ssize_t n = write(command_.in.get(), pending_.data() + used_, pending_.size() - used_);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return absl::OkStatus();
        // EPIPE: the command does not want it. So with a pipe, and so here: the rest is read and dropped.
        if (n < 0) {
            command_.in.Reset();
            break;
        }
        used_ += static_cast<size_t>(n);
    }
    if (!command_.in.ok()) pending_.clear();
    return has_pending() ? absl::OkStatus() : NextInput();
}

}  // namespace

StatusOr<Exited> RelayUntilExit(Command& command, GuestPort& control, GuestPort& stdio, int children) {
    Relay relay(command, stdio);
    while (true) {
        const short input = relay.has_pending() ? 0 : POLLIN;
        pollfd fds[] = {
            {children, POLLIN, 0},          {control.fd(), POLLIN, 0},
            {stdio.fd(), input, 0},         {command.out.get(), POLLIN, 0},
            {command.err.get(), POLLIN, 0}, {relay.has_pending() ? command.in.get() : -1, POLLOUT, 0}};
        if (poll(fds, std::size(fds), -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
        if (fds[3].revents != 0) SK_RETURN_IF_ERROR(relay.Output(command.out, Kind::kStdout));
        if (fds[4].revents != 0) SK_RETURN_IF_ERROR(relay.Output(command.err, Kind::kStderr));
        if (fds[5].revents != 0) SK_RETURN_IF_ERROR(relay.FeedCommand());
        if ((fds[2].revents & POLLIN) != 0) SK_RETURN_IF_ERROR(relay.TakeInput());
        // Nothing is said on control while the command runs, so this is the host's end of it.
        if (fds[1].revents != 0) return absl::UnavailableError("the host has gone");
        if (fds[0].revents == 0) continue;
        signalfd_siginfo info;
        (void)!read(children, &info, sizeof(info));  // which child it was tells waitpid
        Exited exited;
        if (ReapChildren(command.pid, &exited)) return exited;
    }
}

Status DrainOutput(Command& command, GuestPort& stdio) {
    Relay relay(command, stdio);
    while (command.out.ok()) SK_RETURN_IF_ERROR(relay.Output(command.out, Kind::kStdout));
    while (command.err.ok()) SK_RETURN_IF_ERROR(relay.Output(command.err, Kind::kStderr));
    return absl::OkStatus();
}

}  // namespace stockade::guest
