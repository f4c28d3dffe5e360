// The canonical text of a policy: what its hash is taken over. Positions, comments, the order
// of lists and where an entry came from do not change it; anything that changes a verdict does.
#pragma once

#include <string>

#include "userspace/policy/document.h"

namespace stockade::policy {

std::string CanonicalText(const ResolvedPolicy& policy);

}  // namespace stockade::policy
