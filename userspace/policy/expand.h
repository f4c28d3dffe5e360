// Path rules as the compiler takes them: parsed, with the targets of symbolic links beside them.
#pragma once

#include <vector>

#include "userspace/base/status.h"
#include "userspace/policy/compile.h"
#include "userspace/policy/document.h"
#include "userspace/policy/pattern.h"

namespace stockade::policy {

struct ExpandedRule {
    PathPattern pattern;
    size_t rule = 0;  // index into ResolvedPolicy::paths
};

struct Expansion {
    std::vector<ExpandedRule> rules;  // at least one for each path rule
    std::vector<Resolution> resolutions;
};

// Also rewrites /proc/self and /proc/thread-self, which the kernel sees as numbers: they cover
// the same file of every process that the sandbox can see.
StatusOr<Expansion> ExpandRules(const ResolvedPolicy& policy, int root_fd);

}  // namespace stockade::policy
