// The caller's terminal and the sandbox's: two ttys, bytes and window size carried between them.
#pragma once

#include <termios.h>

#include <string>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::launch {

// Raw mode while it lives; restores at death.
class RawTerminal {
  public:
    static StatusOr<RawTerminal> Enter(int tty_fd);  // tty_fd borrowed
    RawTerminal(RawTerminal&& other) noexcept;
    RawTerminal& operator=(RawTerminal&&) = delete;
    ~RawTerminal();

  private:
    RawTerminal(int fd, const termios& saved) : fd_(fd), saved_(saved) {}
    int fd_ = -1;
    termios saved_;
};

// Copies the window size of `from_tty` to the master; the kernel sends SIGWINCH inside.
Status ForwardWindowSize(int from_tty, int master);

// Moves bytes both ways. All descriptors are borrowed.
//
//   PtyRelay relay(in_tty, out_tty, sandbox->master());
//   SK_RETURN_IF_ERROR(relay.Run(sandbox->pidfd()));
class PtyRelay {
  public:
    PtyRelay(int in_fd, int out_fd, int master);
    // Blocks until the master hangs up, or until `stop_fd` is readable and the master is drained.
    // Until the sandbox is released its end is held open by the init: start this after Release.
    // SIGWINCH is the caller's: call ForwardWindowSize from wherever it takes signals.
    Status Run(int stop_fd);

  private:
    bool PumpInput(bool readable, bool writable);
    bool PumpOutput();
    int in_fd_;
    int out_fd_;
    int master_;
    std::string pending_;  // bytes from the caller that the pty has not taken yet; bounded
};

}  // namespace stockade::launch
