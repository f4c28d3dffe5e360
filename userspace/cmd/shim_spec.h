// From the agent's order to what the native runtime takes.
#pragma once

#include "userspace/api/channel.h"
#include "userspace/base/status.h"
#include "userspace/launch/native.h"

namespace stockade::cmd {

// Takes the descriptors out of `order`; the stdio ones stay there, for the spec borrows them.
// Makes the sandbox's cgroup, which the spec owns.
// Without the cgroup.
StatusOr<launch::NativeSpec> MakeSpec(api::Packet& order);
StatusOr<launch::SandboxCgroup> MakeCgroup(const api::StartShim& start);

}  // namespace stockade::cmd
