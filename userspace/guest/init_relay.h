// The command's stdio, between its pipes and the port, until it has ended.
#pragma once

#include "userspace/guest/guest_port.h"
#include "userspace/guest/init_command.h"

namespace stockade::guest {

// Returns how the command ended, with its pipes still to be drained. `children` is a signalfd of SIGCHLD. kUnavailable
// when the host has gone.
StatusOr<Exited> RelayUntilExit(Command& command, GuestPort& control, GuestPort& stdio, int children);
// What is left in the pipes once nobody can write into them any more.
Status DrainOutput(Command& command, GuestPort& stdio);

}  // namespace stockade::guest
