// What the modifiers base64, base64offset, utf16* and windash make of a value.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "userspace/detect/pattern.h"

namespace stockade::detect {

std::string ToBase64(absl::string_view bytes);
// The part that is the same whatever stands around it, at each of the three offsets.
std::array<std::string, 3> Base64Offsets(absl::string_view bytes);
// `text` is UTF-8. With a byte order mark in front it is always little endian.
std::string ToUtf16(absl::string_view text, bool big_endian, bool mark);
// All variants in which each dash or slash that begins a word is one of five dashes. False where there are
// more than `most` such places; then nothing is added.
bool AddDashes(const Pattern& pattern, size_t most, std::vector<Pattern>* out);

}  // namespace stockade::detect
