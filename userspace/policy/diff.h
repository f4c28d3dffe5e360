// What becomes allowed and what refused when one policy takes the place of another.
#pragma once

#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

struct Change {
    enum Kind { kAllowed, kRefused, kSetting };  // what it becomes; kSetting: how refusals are dealt with
    Kind kind = kRefused;
    std::string what;    // "read", "exec", "unix", "network", "dns", "grant", ...; "mode", "exec violation"
    std::string object;  // a path that shows it, a rule, a name; "enforce -> observe"
    std::string rule;              // the rule that decides, in the policy where it is allowed or denied
    Position at;
};

// Path rules are compared exactly: both policies become one automaton, and each state in which
// they differ is shown by a shortest path. Network rules are compared as written, names by what they
// let be asked. Symbolic links are not followed. `mode`, `entered` and each section's `violation` are
// compared, too: an allowlist that is only observed refuses nothing. kResourceExhausted where the
// automaton of both is too large.
StatusOr<std::vector<Change>> Diff(const ResolvedPolicy& from, const ResolvedPolicy& to);

}  // namespace stockade::policy
