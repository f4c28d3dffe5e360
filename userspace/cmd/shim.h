// One sandbox's keeper: builds it, is its parent, and ends it when its client, its time or every
// agent is gone.
//
// Messages with the agent, in order: ShimCreated -> ShimGo | ShimAbort, ShimReleased, ShimEnded ->
// ShimCollected, ShimDestroyed; ShimFailed in place of any of them. With the client: SessionStarted
// (with the terminal), Signal, SessionEnded; the end of that stream means that the client is gone.
// An agent that goes is waited for at its socket: ShimHello to the next one.
#pragma once

#include "userspace/api/channel.h"

namespace stockade::cmd {

// `order` holds a StartShim. Returns the exit status of the shim's own process.
int RunShim(api::Packet order);

}  // namespace stockade::cmd
