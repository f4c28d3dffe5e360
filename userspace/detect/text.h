// The form in which values and patterns are compared: valid UTF-8, case folded, and holes where
// something is not known.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace stockade::detect {

// Stands for text of any length that was redacted or cut. No byte of valid UTF-8.
inline constexpr char kHole = '\xff';

// Undoes the escapes of event.proto (\xNN and \\).
std::string Unescape(absl::string_view text);

// Bytes that are no UTF-8 become U+FFFD each, so that a `.` of a regular expression and a `?` of a
// pattern take them: a command line with one odd byte must not get past a rule.
std::string ToValidUtf8(absl::string_view bytes);

// Simple case folding of ASCII, Latin, Greek, Cyrillic and Armenian letters; other scripts have no
// case or are compared as they are. Holes stay. Appends.
void AppendFolded(absl::string_view text, std::string* out);
std::string Folded(absl::string_view text);

}  // namespace stockade::detect
