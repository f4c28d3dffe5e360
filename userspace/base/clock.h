// Times of the kernel side and of the world.
#pragma once

#include <cstdint>

namespace stockade {

// CLOCK_BOOTTIME in nanoseconds: the clock of every kernel record.
uint64_t BootNow();
// CLOCK_REALTIME in nanoseconds since 1970.
uint64_t WallNow();

}  // namespace stockade
