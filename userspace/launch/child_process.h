// The launcher's side of a sandbox's first task: the clone, the pipes, the order laid out and sent.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/launch/child.h"
#include "userspace/launch/native.h"
#include "userspace/launch/root.h"

namespace stockade::launch {

// Room at the same address here and in the child, in which only the child will have anything.
class PlanRoom {
  public:
    PlanRoom() = default;
    static StatusOr<PlanRoom> Reserve();
    PlanRoom(PlanRoom&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
    PlanRoom& operator=(PlanRoom&& other) noexcept {
        std::swap(at_, other.at_);
        return *this;
    }
    ~PlanRoom();
    void* at() const { return at_; }

  private:
    void* at_ = nullptr;
};

struct ChildProcess {
    pid_t pid = -1;
    Fd pidfd;
    Fd go;      // write end; its close kills the sandbox
    Fd status;  // ChildMessage records of the init
    Fd exec;    // end of file when the command's execve has succeeded
    Fd order;   // our end of the socket; closed once the order is sent
    PlanRoom room;
};

// Clones the first task into the cgroup. It makes the base meanwhile and then waits for its order.
StatusOr<ChildProcess> StartChild(const RootTree& tree, int cgroup_fd);
// The order may be sent at once. WaitReady tells how it went.
Status SendOrder(ChildProcess& child, const NativeSpec& spec, const RootTree& tree, int landlock_abi);
// Until the base stands, or all of it. `tree` names the mounts in messages.
Status WaitPrepared(const ChildProcess& child, const RootTree& tree);
Status WaitReady(const ChildProcess& child, const RootTree& tree, const std::string& cwd);
// False at end of file.
StatusOr<bool> ReadMessage(int fd, ChildMessage* message);

}  // namespace stockade::launch
