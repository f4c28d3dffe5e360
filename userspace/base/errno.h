// errno to Status, in one place.
#pragma once

#include <cerrno>

#include "userspace/base/status.h"

namespace stockade {

// "tried: No such file or directory (ENOENT)". `error` is a positive errno value.
Status ErrnoStatus(int error, absl::string_view tried);

// For libbpf and the kernel, which return -errno: takes either sign, 0 is OK.
Status NegErrnoStatus(int result, absl::string_view tried);

}  // namespace stockade
