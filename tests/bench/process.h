// Another program, started and watched by the boot clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::bench {

struct Ran {
    uint64_t forked_ns = 0;  // boot time before the fork
    uint64_t ended_ns = 0;   // boot time when it had been waited for
    int status = -1;         // as a shell says it
    std::string out;
    std::string err;
};

// Standard input is /dev/null; outputs are kept, the first 64 KiB of them. kDeadlineExceeded (and it is killed) after so long.
StatusOr<Ran> RunProcess(const std::vector<std::string>& args, int patience_seconds = 60);

}  // namespace stockade::bench
