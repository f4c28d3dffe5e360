// Standard streams of the caller that may be handed into a sandbox: terminals never are, so each
// is replaced by a pipe that a thread fills or empties.
//
//   StdioRelay relay;  SK_RETURN_IF_ERROR(relay.Prepare());
//   send relay.fd(0..2);  relay.Start();  ...  relay.Finish();
#pragma once

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

    Status Prepare();
    // What to hand in for stream 0, 1 or 2; -1 when the caller has none. Borrowed.
    int fd(int stream) const;
    // After the descriptors were sent: closes our copies of them and starts to relay.
    void Start();
    // Waits until the sandbox's output is through; input that is not read yet is left.
    void Finish();

  private:
    Fd theirs_[3];
    Fd ours_[3];
    Fd stop_;
    bool started_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace stockade::cmd
