// The detections of the configured directories, layer over layer.
//
//   LoadedRules loaded = LoadRules(config.rules, Broken::kLeaveOut);
//   if (!loaded.errors.empty()) ...   // what is wrong, with file, line and column
//
// Reads files; keeps nothing.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/cmd/config_rules.h"
#include "userspace/detect/rule.h"

namespace stockade::cmd {

struct LoadedRules {
    std::vector<detect::Rule> rules;
    std::set<std::string> disabled;  // hashes of rules whose findings are nobody's; others may rest on them
    size_t files = 0;
    std::vector<std::string> errors;    // a line each
    std::vector<std::string> warnings;  // the same
};

// What becomes of the rules in files without errors, where others have some.
enum class Broken {
    kGiveUp,    // there are rules already, which go on: none are returned
    kLeaveOut,  // at the start they are better than none
};
LoadedRules LoadRules(const RulesConfig& config, Broken broken);

// Changes when a file of the directories does: names, sizes and times.
std::string RulesSignature(const RulesConfig& config);

}  // namespace stockade::cmd
