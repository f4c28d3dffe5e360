#include "userspace/policy/document.h"

#include "absl/strings/str_cat.h"

namespace stockade::policy {

std::string ToString(const Position& at) {
    if (at.line == 0) return at.file;
    return absl::StrCat(at.file, ":", at.line, ":", at.column);
}

std::string ToString(const Diagnostic& diagnostic) {
    const char* severity = diagnostic.severity == Severity::kError ? "error" : "warning";
    return absl::StrCat(ToString(diagnostic.at), ": ", severity, ": ", diagnostic.message);
}

bool HasErrors(const std::vector<Diagnostic>& diagnostics) {
    for (const Diagnostic& diagnostic : diagnostics) {
        if (diagnostic.severity == Severity::kError) return true;
    }
    return false;
}

std::string QualifiedName(absl::string_view name_space, absl::string_view name) {
    return absl::StrCat(name_space, "/", name);
}

}  // namespace stockade::policy
