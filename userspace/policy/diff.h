// What becomes allowed and what refused when one policy takes the place of another.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

struct Change {
    bool becomes_allowed = false;  // else it becomes refused
    std::string what;              // "read", "write", "exec", "map", "unix", "network", "grant", ...
    std::string object;            // a path that shows it, a rule, a name
    std::string rule;              // the rule that decides, in the policy where it is allowed or denied
    Position at;
};

// Path rules are compared exactly: both policies become one automaton, and each state in which
// they differ is shown by a shortest path. Network rules are compared as written. Symbolic links
// are not followed. kResourceExhausted where the automaton of both is too large.
StatusOr<std::vector<Change>> Diff(const ResolvedPolicy& from, const ResolvedPolicy& to);

}  // namespace stockade::policy
