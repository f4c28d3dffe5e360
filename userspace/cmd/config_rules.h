// The section `rules` of the configuration: which detections the agent runs over events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/detect/correlate.h"

namespace YAML {
class Node;
}

namespace stockade::cmd {

struct RulesConfig {
    bool enabled = true;
    // A file replaces the one of the same name, below the directory, of those before it; an empty one takes it away.
    std::vector<std::string> dirs = {"/usr/share/stockade/detections", "/etc/stockade/rules.d"};
    std::vector<std::string> disable;               // ids or names
    bool dry_run = false;                           // responses are told and not done
    uint64_t max_groups = detect::kMaxGroups;       // of one correlation
    uint64_t max_events = detect::kMaxStateEvents;  // of all correlations

    // All of it on one line.
    std::string Text() const;
};

// Errors name file, line and the nearest key. Throws what yaml-cpp throws.
Status ParseRulesConfig(const std::string& path, const YAML::Node& node, RulesConfig* rules);

}  // namespace stockade::cmd
