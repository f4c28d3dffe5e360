// For tests: the slow, obvious matcher that the compiled tables are measured against, on the
// host and in the kernel. It shares no code with the compiler.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

bool SlowMatch(absl::string_view pattern, absl::string_view path);

// Allow bits that every layer gives, and deny bits << SK_DENY_SHIFT, of all rules that match.
uint32_t SlowVerdict(const std::vector<PathRule>& rules, uint32_t layers, absl::string_view path);

}  // namespace stockade::policy
