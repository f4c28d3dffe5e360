// One sandbox's keeper: builds it, is its parent, and ends it when its client, its time or every
// agent is gone.
//
// Messages with the agent, in order: ShimCreated -> ShimGo | ShimAbort, ShimReleased, ShimEnded ->
// ShimCollected, ShimDestroyed; ShimFailed in place of any of them. With the client: SessionStarted
// (with the terminal), Signal, SessionEnded; the end of that stream means that the client is gone.
// An agent that goes is waited for at its socket: ShimHello to the next one.
#pragma once

#include <functional>

#include "userspace/api/channel.h"

namespace stockade::cmd {

// `order` holds a StartShim. Without a `run` in it the sandbox is made as far as it can be: ShimStarted says that it
// stands, and a second StartShim, with the same id and the run, follows on the control channel; its end, or anything
// else, ends the shim. `named` is told then: ps shows what has a command and what has none.
// Returns the exit status of the shim's own process.
int RunShim(api::Packet order, std::function<void()> named);

}  // namespace stockade::cmd
