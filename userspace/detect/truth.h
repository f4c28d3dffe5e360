// Three-valued logic: what rests on a redacted or cut value is neither yes nor no.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stockade::detect {

// In this order And is the least and Or the greatest of two.
enum class Truth : uint8_t { kNo = 0, kUndecidable = 1, kYes = 2 };

inline Truth And(Truth a, Truth b) { return std::min(a, b); }
inline Truth Or(Truth a, Truth b) { return std::max(a, b); }
inline Truth Not(Truth a) { return static_cast<Truth>(2 - static_cast<int>(a)); }
inline Truth FromBool(bool value) { return value ? Truth::kYes : Truth::kNo; }

}  // namespace stockade::detect
