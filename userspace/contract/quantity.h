// "64MiB" as bytes, "30s" as nanoseconds.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::contract {

// A number above 0, with KiB, MiB, GiB or K, M, G behind it; 8 ZiB at most fit, and nobody has them.
StatusOr<uint64_t> ParseSize(absl::string_view text);
// Above 0; units as Abseil has them: ms, s, m, h.
StatusOr<uint64_t> ParseTime(absl::string_view text);

}  // namespace stockade::contract
