// One agent for each runtime directory: the lock that it holds as long as it lives.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::cmd {

// How long an agent that has the lock and answers nobody is waited for: a killed one's maps and links take the kernel some two seconds, a
// start half a second; on a busy machine more. And how often it is looked.
constexpr uint64_t kAgentWaitNs = 15'000'000'000;
constexpr unsigned kAgentLookUs = 10'000;

struct AgentLock {
    std::string runtime_dir;
    std::string socket;  // where the agent that has the lock is asked
    // A service. An agent that a client started leaves for it, its sandboxes are adopted; and one that is at its start or end is waited
    // for. Without this whoever has the lock is refused at once.
    bool stays = false;
};

// kAlreadyExists: another agent is there to stay, or answers nobody.
StatusOr<Fd> LockAgent(const AgentLock& lock);

// For clients that find nobody at the socket: whether an agent has the lock, so that starting one would be in vain.
bool AgentHoldsLock(const std::string& runtime_dir);

}  // namespace stockade::cmd
