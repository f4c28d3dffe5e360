// Pins that no agent of this build will use again: those of another abi, and sets that an agent
// died over while it built them. `stockade doctor --clean` removes them.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::kernel {

struct StalePins {
    std::string name;    // entry of the pin directory: "abi3", "new_01J..."
    std::string reason;  // a sentence's end: "of abi 3, this build has abi 1"
};

// Names that are neither abi<N> nor new_* are not ours and not told. A directory that does not
// exist holds nothing.
StatusOr<std::vector<StalePins>> FindStalePins(const std::string& pin_dir, unsigned abi);

// Unlinks everything below; a link without descriptor or other pin is detached by that.
// Locks the directory (flock) meanwhile: kUnavailable when somebody, an agent that is loading,
// holds that lock.
Status RemoveStalePins(const std::string& pin_dir, const std::vector<StalePins>& pins);

}  // namespace stockade::kernel
