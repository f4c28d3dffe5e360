// What two policies both let be asked of DNS; for ceiling.h.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

// Every name that `thin` covers is one of `wide`, which is not the same text: "*.pypi.org" has a.pypi.org, and *.a.pypi.org.
bool CoversPattern(absl::string_view wide, absl::string_view thin);

// Sets out.dns and the violation of its section.
void NarrowDns(const ResolvedPolicy& ceiling, const ResolvedPolicy& own, ResolvedPolicy& out,
               std::vector<std::string>& notes);

}  // namespace stockade::policy
