// The part of the bench `dns` that needs no sandbox.
#pragma once

#include <vector>

#include "tests/bench/bench.h"
#include "userspace/kernel/programs.h"

namespace stockade::bench {

// dns.meter.*: charge and settlement of one query in user space.
Status MeasureMeter(const Settings& settings, std::vector<Figure>* figures);
// dns.memory.*: bytes, of zones and budget ids, in user space and in the kernel's maps.
Status MeasureDnsMemory(kernel::Programs& programs, std::vector<Figure>* figures);

}  // namespace stockade::bench
