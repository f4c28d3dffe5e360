// The nearest right word for a wrong one.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stockade::policy {

// Empty when no word is near: more than a third of the letters (at least two) would change.
std::string NearestWord(absl::string_view wrong, const std::vector<std::string>& words);

// "; did you mean 'X'?" or, where nothing is near, "; known here: A, B, C".
std::string Suggest(absl::string_view wrong, const std::vector<std::string>& words);

}  // namespace stockade::policy
