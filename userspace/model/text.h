// Strings from a sandbox, made safe to print.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace stockade::model {

// Appends `bytes` to `out`. When all of it is printable UTF-8 it is copied and false returned.
// Else true: invalid bytes, control characters (C0, DEL, C1), line and paragraph separators
// and direction marks are written \xNN byte by byte, and a backslash twice, so that the
// original can be had back.
bool AppendEscaped(absl::string_view bytes, std::string* out);

// Whether AppendEscaped would copy unchanged.
bool IsPrintable(absl::string_view bytes);

}  // namespace stockade::model
