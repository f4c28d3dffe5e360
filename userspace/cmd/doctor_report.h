// What `stockade doctor` prints, from a probe's report alone.
#pragma once

#include <string>
#include <vector>

#include "userspace/kernel/probe.h"

namespace stockade {

struct Diagnosis {
    kernel::ProbeReport report;
    StatusOr<kernel::Backend> backend = kernel::Backend::kAuto;  // or why there is none
    std::vector<kernel::Feature> required;  // absent ones that something required needs
};

// `require`: "lsm", "signal" or names of features, all known.
Diagnosis Diagnose(kernel::ProbeReport report, const std::vector<std::string>& require);

// 0 when nothing required is missing, else 1.
int ExitCodeOf(const Diagnosis& diagnosis);

std::string DoctorText(const Diagnosis& diagnosis, bool colours);
std::string DoctorJson(const Diagnosis& diagnosis);  // one document and a newline

}  // namespace stockade
