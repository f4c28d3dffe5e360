// Warnings about policies that are right and still not what their author meant.
#pragma once

#include <vector>

#include "userspace/policy/document.h"

namespace stockade::policy {

// Absent sections, allows that a deny swallows, uids that guard nothing, patterns that `signal`
// cannot honour. Sorted by position.
std::vector<Diagnostic> Lint(const SandboxPolicy& document, const ResolvedPolicy& resolved);

}  // namespace stockade::policy
