// Wall time of what a process says.
#pragma once

#include <cstdint>

namespace stockade {

// CLOCK_REALTIME of a moment since boot, as the clocks stood at this process's first call: whatever is done to the wall clock, what one
// process says comes in the order in which it was.
uint64_t WallAt(uint64_t boot_ns);

}  // namespace stockade
