// A distribution's kernel package, made ready for a guest: the ELF kernel out of its bzImage, and the modules it lacks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::guest {

// The vmlinux that a bzImage carries, so that the guest need not unpack it: 0.7 to 1.1 s of each start. kInvalidArgument for
// what is no bzImage, kUnimplemented for another packing than zstd.
StatusOr<std::string> ExtractVmlinux(absl::string_view bzimage);

// {"squashfs.ko", its bytes} of each of `names` and all that they need, in the order in which they load. What the kernel has
// built in is left out; kNotFound for a name that it has neither way. `release_dir` is /lib/modules/RELEASE with depmod's
// lists.
StatusOr<std::vector<std::pair<std::string, std::string>>> CollectModules(
    const std::string& release_dir, const std::vector<std::string>& names);

}  // namespace stockade::guest
