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
    // A sandbox makes holes at will (records beyond its rate have numbers and are left out). Beyond it the lowest is
    // closed, and its numbers are counted: a record of them, should it come after all, is taken to be there (a second
    // copy in an export would be worse), but who adds up what explains the missing ones has all of them.
    static constexpr size_t kMaxRanges = 1024;

    // False where it was there. 0 is no number, and never there.
    bool Add(uint64_t seq);
    bool Contains(uint64_t seq) const;
    // The end of the range that holds `seq`; 0 = none does.
    uint64_t EndOf(uint64_t seq) const;
    uint64_t last() const { return ranges_.empty() ? 0 : ranges_.back().second; }
    // What is missing from 1 up to last().
    std::vector<Range> Holes() const;

    // How many numbers were in holes that were closed.
    uint64_t closed() const { return closed_; }

    // "1-500,502-502", before it "7+" where seven are closed; "-" when empty.
    std::string ToText() const;
    // Nullopt for what ToText does not write.
    static std::optional<KernelNumbers> FromText(absl::string_view text);

  private:
    uint64_t closed_ = 0;
    std::vector<Range> ranges_;  // in order; they neither overlap nor touch
};

}  // namespace stockade::pipeline
