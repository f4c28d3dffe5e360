// Bounds on how documents may refer to each other.
#pragma once

namespace stockade::detect {

// Correlations built on correlations. Each finding of one is a step of the next, in the same event.
inline constexpr int kMaxChain = 8;

}  // namespace stockade::detect
