#include "userspace/base/wall_time.h"

#include "userspace/base/clock.h"

namespace stockade {

uint64_t WallAt(uint64_t boot_ns) {
    static const uint64_t offset =
        WallNow() - BootNow();  // wraps where the clock stands before the boot, and comes out right
    return boot_ns + offset;
}

}  // namespace stockade
