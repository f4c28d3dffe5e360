// The small root process that starts shims, and nothing else, on the agent's order.
//
//   SK_ASSIGN_OR_RETURN(Helper helper, Helper::Fork(argc, argv));   // before anything else
//   SK_RETURN_IF_ERROR(helper.Start(order, fds));                    // answers by ShimStarted
//
// It is forked before the agent loads anything, so that it and its shims are small, and shims are
// forks of it, not executions: the start of a sandbox then does not wait for a dynamic linker. It
// ends when the agent's side of the channel is closed; shims live on.
#pragma once

#include <vector>

#include "userspace/api/channel.h"
#include "userspace/base/status.h"

namespace stockade::cmd {

class Helper {
  public:
    // The child never returns. `argv` is main's: shims show themselves in it as stockade-shim.
    static StatusOr<Helper> Fork(int argc, char** argv);

    // Sends the order. ShimStarted follows on channel().
    Status Start(const api::StartShim& order, const std::vector<api::FdArg>& fds);
    api::Channel& channel() { return channel_; }

  private:
    explicit Helper(api::Channel channel) : channel_(std::move(channel)) {}
    api::Channel channel_;
};

// Name of this process in ps and top, within the room that the command line had.
void SetProcessTitle(int argc, char** argv, const char* name, const std::string& rest);

}  // namespace stockade::cmd
