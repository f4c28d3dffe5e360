// What is promised to a sandbox on this kernel, for its start, `inspect` and events.
#pragma once

#include <string>
#include <vector>

#include "userspace/kernel/sensor.h"

namespace stockade::cmd {

struct CoverageRow {
    std::string operation;  // stable id
    std::string cell;       // prevented | killed after effect | seen | unseen
    std::string reason;     // why it is not prevented
};

// Of a sandbox that the launcher built, under `backend`.
std::vector<CoverageRow> AttestedCoverage(kernel::Backend backend);

}  // namespace stockade::cmd
