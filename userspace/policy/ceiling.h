// A policy cut down to another: what holds is what both allow.
//
// Path rules are kept apart in two layers, and an operation needs an allow of each. Lists of addresses, names, sockets and ports are
// intersected here. The stricter mode and the stricter violation win, a grant needs both, and of records the more telling one is kept.
// A section that one of the two has not is the other's; a section that neither has is only observed, as always.
#pragma once

#include <string>
#include <vector>

#include "userspace/policy/document.h"

namespace stockade::policy {

struct Narrowed {
    ResolvedPolicy policy;           // under `own`'s name
    std::vector<std::string> notes;  // what `own` says and the ceiling leaves no room for; for people
};

// Never allows what `ceiling` alone refuses. Both have one layer.
Narrowed Narrow(const ResolvedPolicy& ceiling, ResolvedPolicy own);

}  // namespace stockade::policy
