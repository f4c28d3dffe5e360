// The launcher's side of a sandbox's first task: the plan laid out, the clone, the pipes.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/launch/child.h"
#include "userspace/launch/native.h"
#include "userspace/launch/root.h"

namespace stockade::launch {

struct ChildProcess {
    pid_t pid = -1;
    Fd pidfd;
    Fd go;      // write end; its close kills the sandbox
    Fd status;  // ChildMessage records of the init
    Fd exec;    // end of file when the command's execve has succeeded
};

// Clones the first task into the cgroup. It sets itself up meanwhile; WaitReady tells how it went.
StatusOr<ChildProcess> StartChild(const NativeSpec& spec, const RootTree& tree, int landlock_abi);
// `tree` names the mounts in messages.
Status WaitReady(const ChildProcess& child, const RootTree& tree, const std::string& cwd);
// False at end of file.
StatusOr<bool> ReadMessage(int fd, ChildMessage* message);

}  // namespace stockade::launch
