// Directories of pins, looked at and removed. Those that no agent of this build will use again, of
// another abi or never finished, `stockade doctor --clean` removes.
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

// Names of the directories in `dir`, in no order; none where it does not exist.
StatusOr<std::vector<std::string>> PinDirectories(const std::string& dir);

// Unlinks everything below dir/name, then that directory. Takes no lock.
Status RemovePins(const std::string& dir, const std::string& name);

}  // namespace stockade::kernel
