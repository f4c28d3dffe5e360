// Starts QEMU where it can do nothing but emulate: namespaces of its own without a network, a root with /usr read-only and
// little else, an unprivileged user without capabilities, limits; its own seccomp filter comes with its command line.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::guest {

struct ConfineOptions {
    uid_t uid = 0;  // never 0: refused
    gid_t gid = 0;
    int cgroup = -1;   // a cgroup v2 directory, borrowed; -1 = the caller's own
    bool kvm = false;  // /dev/kvm is there
};

struct Confined {
    pid_t pid = -1;
    Fd pidfd;
    Fd errors;  // what it writes to standard error, and why it did not start
};

// The first descriptor number that a confined process gets of `fds`; the others follow.
inline constexpr int kFirstFd = 3;

// Runs `command` with `fds` as 3, 4, ... and no others; both outputs go to `errors`. It ends with the thread that calls
// this. Root alone can. The caller waits for it by its pidfd.
StatusOr<Confined> StartConfined(const std::vector<std::string>& command, const std::vector<int>& fds,
                                 const ConfineOptions& options);
// SIGKILL, then waits for its end: as the first process of its pid namespace it takes all others along.
// kDeadlineExceeded when it is not over in time (a task in a system call that does not end).
StatusOr<int> EndConfined(Confined& confined, int timeout_ms);

}  // namespace stockade::guest
