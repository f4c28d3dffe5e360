// What becomes resolvable and what ceases to be; part of Diff().
#pragma once

#include <vector>

#include "userspace/policy/diff.h"

namespace stockade::policy {

// Names as one policy lets them be asked, a "*." covering what is below it. What bounds the queries that are let
// through (budgets, resolvers, `mode: observe`) is a setting, and no difference where nothing resolves.
void DiffDns(const ResolvedPolicy& from, const ResolvedPolicy& to, std::vector<Change>& out);

}  // namespace stockade::policy
