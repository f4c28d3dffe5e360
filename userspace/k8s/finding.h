// What `stockade k8s doctor` has to say of one object.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stockade::k8s {

enum class Severity {
    kUnenforceable,  // something of a sandbox there is judged by nobody
    kWeaker,         // it is judged, and less stands around it than could
    kUnknown,        // what was given does not say
};

struct Finding {
    Severity severity = Severity::kUnenforceable;
    std::string check;   // "runtime-unseen"
    std::string object;  // "Pod stockade-tools/tool-1", or "cluster"
    std::string what;
    std::string cure;    // what to change
};

using Findings = std::vector<Finding>;

absl::string_view SeverityName(Severity severity);

}  // namespace stockade::k8s
