// ToolContract files: text to checked documents.
//
//   contract::Parsed parsed = contract::Parse("csv.yaml", text);
//   for (const policy::Diagnostic& d : parsed.diagnostics) puts(policy::ToString(d).c_str());
//
// Every error of a file is found in one run. Nothing may be started by a document that has one.
#pragma once

#include <string>
#include <vector>

#include "userspace/contract/document.h"

namespace stockade::contract {

struct Parsed {
    std::vector<ToolContract> contracts;  // as far as they were understood
    std::vector<policy::Diagnostic> diagnostics;
};

Parsed Parse(const std::string& file, const std::string& text);

// The one contract of a file. kInvalidArgument with all of its errors, or when it holds another number of them.
StatusOr<ToolContract> ParseOne(const std::string& file, const std::string& text);

// What `runtime` and `class` take.
const std::vector<std::pair<std::string, ToolClass>>& ToolClasses();

}  // namespace stockade::contract
