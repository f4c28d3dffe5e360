#include "userspace/base/clock.h"

#include <ctime>

namespace stockade {
namespace {
uint64_t Now(clockid_t clock) {
    timespec t{};
    (void)clock_gettime(clock, &t);  // cannot fail for the two clocks below
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}
}  // namespace

uint64_t BootNow() { return Now(CLOCK_BOOTTIME); }
uint64_t WallNow() { return Now(CLOCK_REALTIME); }

}  // namespace stockade
