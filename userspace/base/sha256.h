// SHA-256 (FIPS 180-4), for names of content; not for secrets.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stockade {

std::array<uint8_t, 32> Sha256(absl::string_view bytes);
// The same, as where the CPU has no instructions for it.
std::array<uint8_t, 32> Sha256Portable(absl::string_view bytes);
// 64 lower-case hexadecimal digits.
std::string Sha256Hex(absl::string_view bytes);

}  // namespace stockade
