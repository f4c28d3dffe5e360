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

// Of bytes that come in parts.
//
//   Sha256Stream digest;  digest.Add(a);  digest.Add(b);  digest.Hex()
class Sha256Stream {
  public:
    Sha256Stream();
    void Add(absl::string_view bytes);
    // Of all that was added; once, and nothing is added after it.
    std::array<uint8_t, 32> Finish();
    std::string Hex();

  private:
    std::array<uint32_t, 8> state_;
    std::array<uint8_t, 64> block_{};  // the part of a block that is not full yet
    uint64_t bytes_ = 0;
};

}  // namespace stockade
