// What is promised to a sandbox on this kernel, for its start, `inspect` and events.
#pragma once

#include <string>
#include <vector>

#include "userspace/kernel/sensor.h"
#include "userspace/model/sandbox.h"

namespace stockade::cmd {

struct CoverageRow {
    std::string operation;  // stable id
    std::string cell;       // prevented | killed after effect | seen | unseen
};

// Of a sandbox that the launcher built, under `backend`. `missing`: features that this kernel lacks.
// What Landlock does for one sandbox.
struct LandlockCover {
    bool files = false;        // a domain for files was made (HasFileDomain); without it that lock promises nothing
    bool directories = false;  // and it refuses to list directories (HidesDirectories)
};
model::CoverageTable AttestedCoverage(kernel::Backend backend, const model::FeatureSet& missing, LandlockCover landlock);

// Of somebody else's cgroup: a pod.
model::CoverageTable PodCoverage(kernel::Backend backend, const model::FeatureSet& missing);

// In the order of the coverage table.
std::vector<CoverageRow> CoverageRows(const model::CoverageTable& table);

}  // namespace stockade::cmd
