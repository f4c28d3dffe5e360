// Which kernel_seq of a sandbox have been seen, as ranges. Not thread-safe.
//
//   KernelNumbers seen;
//   if (!seen.Add(event.kernel_seq())) ...   // it was there
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace stockade::pipeline {

class KernelNumbers {
  public:
    using Range = std::pair<uint64_t, uint64_t>;  // first, last
    // Beyond it the lowest hole is closed: what is missing so far back has long been told as lost or repeated,
    // and its record, should it come after all, is taken to be there. (A second copy in an export would be worse.)
    static constexpr size_t kMaxRanges = 128;

    // False where it was there. 0 is no number, and never there.
    bool Add(uint64_t seq);
    bool Contains(uint64_t seq) const;
    // The end of the range that holds `seq`; 0 = none does.
    uint64_t EndOf(uint64_t seq) const;
    uint64_t last() const { return ranges_.empty() ? 0 : ranges_.back().second; }
    // What is missing from 1 up to last().
    std::vector<Range> Holes() const;

    // "1-500,502-502"; "-" when empty.
    std::string ToText() const;
    // Nullopt for what ToText does not write.
    static std::optional<KernelNumbers> FromText(absl::string_view text);

  private:
    std::vector<Range> ranges_;  // in order; they neither overlap nor touch
};

}  // namespace stockade::pipeline
