// Standard streams of the caller on their way into a sandbox. What is handed in is a pipe or
// /dev/null: a terminal could be typed into, a socket be used past the cgroup programs, and a file
// be cut, overwritten or read back by whoever shares its open description. All but these two are
// replaced by a pipe that a thread fills or empties.
//
//   StdioRelay relay;  SK_RETURN_IF_ERROR(relay.Prepare());
//   send relay.fd(0..2);  relay.Start();  ...  relay.Finish();
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::cmd {

class StdioRelay {
  public:
    StdioRelay() = default;
    ~StdioRelay() { Finish(); }
    StdioRelay(const StdioRelay&) = delete;

    // Before Prepare: so much of each of standard output and error is handed on, and what comes behind it is read, counted and dropped.
    // Then both go through pipes of ours whatever the caller has there.
    void Limit(uint64_t bytes) { limit_bytes_ = bytes; }
    Status Prepare();
    // What to hand in for stream 0, 1 or 2; -1 when the caller has none. Borrowed.
    int fd(int stream) const;
    // After the descriptors were sent: closes our copies of them and starts to relay.
    void Start();
    // The sandbox has ended: its output that lies in the pipes is copied yet, input that is not read is
    // left. A task in state D, which holds a pipe and is not killed yet, writes no more.
    void Finish();
    // After Finish: why output was lost (a full disk), or OK. A reader that went is no error.
    const Status& status() const { return status_; }
    struct Stream {
        uint64_t bytes = 0;  // handed on
        uint64_t dropped_bytes = 0;
        std::string sha256;  // hex, of those that were handed on
    };
    // After Finish, with a limit: of stream 1 or 2. Where both are one, all is in that of 1.
    const Stream& stream(int stream) const { return streams_[stream]; }

  private:
    Status MakePipe(int stream);
    void Output(int stream);

    Status CopyLimited(int stream);

    uint64_t limit_bytes_ = 0;  // 0 = none
    Stream streams_[3];         // of each thread; read after they are joined
    Fd theirs_[3];
    Fd ours_[3];
    bool joined_ = false;  // the caller's 1 and 2 are one and the same: so is their pipe
    Fd stop_;
    bool started_ = false;
    std::vector<std::thread> threads_;
    Status failed_[3];  // of each thread; read after they are joined
    Status status_;
};

}  // namespace stockade::cmd
