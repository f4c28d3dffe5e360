// The policies that exist without a file: base, deny-all, networkless. They are documents like
// any other, so `explain` can show which of their lines decides.
#pragma once

#include <vector>

#include "userspace/policy/document.h"

namespace stockade::policy {

// The names of the three; a file may use one only for a policy that says the same.
inline constexpr char kBase[] = "base";
inline constexpr char kDenyAll[] = "deny-all";
inline constexpr char kNetworkless[] = "networkless";

// File name in positions of built-in documents.
inline constexpr char kBuiltinFile[] = "built-in";

const std::vector<SandboxPolicy>& BuiltinPolicies();
const char* BuiltinText();

}  // namespace stockade::policy
