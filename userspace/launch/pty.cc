#include "userspace/launch/pty.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "userspace/base/errno.h"

namespace stockade::launch {
namespace {

// What a fast typist or a paste may be ahead of the sandbox. Past it the caller's terminal is not
// read, so that the kernel's own flow control works.
constexpr size_t kPendingBytes = 65536;

}  // namespace

StatusOr<RawTerminal> RawTerminal::Enter(int tty_fd) {
    termios saved;
    if (tcgetattr(tty_fd, &saved) != 0) return ErrnoStatus(errno, "read the terminal's mode");
    termios raw = saved;
    cfmakeraw(&raw);
    if (tcsetattr(tty_fd, TCSADRAIN, &raw) != 0) return ErrnoStatus(errno, "set the terminal to raw mode");
    return RawTerminal(tty_fd, saved);
}

RawTerminal::RawTerminal(RawTerminal&& other) noexcept : fd_(other.fd_), saved_(other.saved_) {
    other.fd_ = -1;
}

RawTerminal::~RawTerminal() {
    // Fails when the terminal has gone, and then there is nothing to restore.
    if (fd_ >= 0) (void)tcsetattr(fd_, TCSADRAIN, &saved_);
}

Status ForwardWindowSize(int from_tty, int master) {
    winsize size;
    if (ioctl(from_tty, TIOCGWINSZ, &size) != 0) return ErrnoStatus(errno, "read the window size");
    if (ioctl(master, TIOCSWINSZ, &size) != 0) return ErrnoStatus(errno, "set the window size");
    return absl::OkStatus();
}

PtyRelay::PtyRelay(int in_fd, int out_fd, int master) : in_fd_(in_fd), out_fd_(out_fd), master_(master) {}

// False at the end of the caller's input.
bool PtyRelay::PumpInput(bool readable, bool writable) {
    bool open = true;
    if (readable && pending_.size() < kPendingBytes) {
        char buffer[4096];
        ssize_t n = read(in_fd_, buffer, sizeof(buffer));
        if (n > 0) pending_.append(buffer, static_cast<size_t>(n));
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) open = false;
        // What a terminal says at the end of its input, so that the command inside sees one.
        if (!open) pending_.push_back('\x04');
    }
    if (writable && !pending_.empty()) {
        ssize_t n = write(master_, pending_.data(), pending_.size() < 512 ? pending_.size() : 512);
        if (n > 0) pending_.erase(0, static_cast<size_t>(n));
    }
    return open;
}

// False when the master has hung up or the caller's output has gone.
bool PtyRelay::PumpOutput() {
    char buffer[16384];
    ssize_t n = read(master_, buffer, sizeof(buffer));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n <= 0) return false;  // EIO: the last holder of the other end has closed it
    return WriteAll(out_fd_, absl::string_view(buffer, static_cast<size_t>(n))).ok();
}

Status PtyRelay::Run(int stop_fd) {
    bool input_open = in_fd_ >= 0;
    bool stopping = false;
    for (;;) {
        short master_events = POLLIN;
        if (!pending_.empty()) master_events = POLLIN | POLLOUT;
        pollfd fds[3] = {{input_open && pending_.size() < kPendingBytes ? in_fd_ : -1, POLLIN, 0},
                         {master_, master_events, 0},
                         {stopping ? -1 : stop_fd, POLLIN, 0}};
        int rc = poll(fds, 3, stopping ? 0 : -1);
        if (rc < 0 && errno == EINTR) continue;
        if (rc < 0) return ErrnoStatus(errno, "poll the terminal");
        if ((fds[1].revents & POLLIN) != 0) {
            if (!PumpOutput()) return absl::OkStatus();
        } else if (stopping || (fds[1].revents & (POLLHUP | POLLERR)) != 0) {
            return absl::OkStatus();  // drained
        }
        if (fds[2].revents != 0) stopping = true;
        const bool readable = fds[0].revents != 0;
        if (readable || (fds[1].revents & POLLOUT) != 0) {
            if (!PumpInput(readable, (fds[1].revents & POLLOUT) != 0)) input_open = false;
        }
    }
}

}  // namespace stockade::launch
