// Which directories of the host may be shown in a sandbox at all.
#pragma once

#include <functional>
#include <string>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::launch {

// True when the policy denies this path of the host.
using DenyPredicate = std::function<bool(const std::string& path)>;

// OK, or kPermissionDenied with the reason: "/", /proc, /sys, /dev, /etc and what is below them,
// home directories themselves and what holds them, container-runtime sockets and state (also by
// another name: compared by device and inode), and what `denied` covers. `fd` may be O_PATH.
Status CheckBindSource(int fd, const DenyPredicate& denied = nullptr);
// Opens without trusting the name and checks what was opened.
StatusOr<Fd> OpenBindSource(const std::string& path, const DenyPredicate& denied = nullptr);

}  // namespace stockade::launch
