// The section `evidence` of the configuration: what is kept of each sandbox, and for how long.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/base/status.h"

namespace YAML {
class Node;
}

namespace stockade::cmd {

struct EvidenceConfig {
    std::string dir;                     // empty = none is kept
    uint64_t max_bytes = 1ull << 30;     // of all folders; 0 = no bound
    uint64_t max_age_hours = 30 * 24;    // 0 = no bound
    std::string hook;                    // a program, given the path of each folder that is closed; empty = none

    bool on() const { return !dir.empty(); }
    std::string Text() const;  // on one line
};

// Errors name file, line and the nearest key. Throws what yaml-cpp throws.
Status ParseEvidence(const std::string& path, const YAML::Node& node, EvidenceConfig* evidence);

}  // namespace stockade::cmd
