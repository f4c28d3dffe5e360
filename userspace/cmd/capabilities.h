// The rights that stay with the agent once everything is attached.
#pragma once

#include "userspace/base/status.h"

namespace stockade::cmd {

// Keeps CAP_BPF, PERFMON, NET_ADMIN, SYS_PTRACE, KILL and DAC_READ_SEARCH in this thread and in
// what it starts later, and none beyond, not even for a program that it executes as root. Call
// it before any thread is made.
Status DropCapabilities();

}  // namespace stockade::cmd
