// The client's side of the agent's socket.
#pragma once

#include <string>
#include <vector>

#include "userspace/api/channel.h"
#include "userspace/base/status.h"
#include "userspace/cmd/config.h"

namespace stockade::cmd {

struct ClientOptions {
    std::string config_path = kDefaultConfigPath;
    std::string socket;  // empty = of the configuration
    bool quiet = false;
    bool json = false;
    bool separated = false;            // of run: there was a "--", and
    std::vector<std::string> command;  // these words came after it
    // Of run: the files of --result, known before the flags are parsed, so that no error of theirs
    // leaves an earlier run's end there.
    std::vector<std::string> results;
};

// stockaded of this very installation: beside our own binary, else by PATH.
std::string AgentBinary();

// The running agent. kUnavailable, with what to do, when there is none.
StatusOr<api::Channel> ConnectAgent(const ClientOptions& options);
// The same, but starts a transient one when none runs and the caller is root.
StatusOr<api::Channel> ConnectOrStartAgent(const ClientOptions& options);

// One line where the running agent was started with another configuration than this client has; else empty.
std::string OtherConfigNote(const ClientOptions& options);

// Sends a question and waits for the answer; an Error becomes its status.
StatusOr<api::Message> Ask(api::Channel& channel, const api::Message& question);
Status ErrorOf(const api::Error& error);

// "stockade: message" on standard error; the exit status of our own failures.
int Complain(const Status& status);
inline constexpr int kOwnFailure = 125;

}  // namespace stockade::cmd
