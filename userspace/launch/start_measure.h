// Bench hook: from the call of Create to the command's first instruction, and from its exit until
// nothing of the sandbox is left.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/base/status.h"
#include "userspace/launch/native.h"

namespace stockade::launch {

struct StartFigures {
    uint64_t start_ns = 0;    // Create called -> main of the command (CLOCK_BOOTTIME on both sides)
    uint64_t create_ns = 0;   // of it, Create alone
    uint64_t removed_ns = 0;  // end of the command known -> Destroy has returned
};

// `probe`: path of a static program that prints BootNow() when called with "now" (launch_probe).
// Makes and removes one sandbox under the cgroup home "stockade_bench".
StatusOr<StartFigures> MeasureStart(const std::string& probe);
// launch_probe beside the running binary, or in ./tests below it.
StatusOr<std::string> OwnProbe();

}  // namespace stockade::launch
