// Which directories of the host may be shown in a sandbox at all.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::launch {

// True when the policy denies this path of the host.
using DenyPredicate = std::function<bool(const std::string& path)>;

// OK, or kPermissionDenied with the reason: "/", /proc, /sys, /dev, /etc and what is below them,
// file systems of the kernel's wherever they are mounted, home directories themselves and what
// holds them, container-runtime sockets and state and `own` (also by another name: compared by
// device and inode), and what `denied` covers. `fd` may be O_PATH.
// `own`: directories of this agent, treated as those of container runtimes.
Status CheckBindSource(int fd, const DenyPredicate& denied = nullptr,
                       const std::vector<std::string>& own = {});
// Opens without trusting the name and checks what was opened.
StatusOr<Fd> OpenBindSource(const std::string& path, const DenyPredicate& denied = nullptr,
                            const std::vector<std::string>& own = {});

}  // namespace stockade::launch
