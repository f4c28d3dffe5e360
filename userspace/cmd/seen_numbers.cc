#include "userspace/cmd/seen_numbers.h"

#include <iterator>

namespace stockade::cmd {

bool SeenNumbers::Add(uint64_t seq) {
    if (seq == 0) return true;
    const auto above = ranges_.upper_bound(seq);
    const bool joins_above = above != ranges_.end() && above->first - 1 == seq;
    const uint64_t last = joins_above ? above->second : seq;
    const auto below = above == ranges_.begin() ? ranges_.end() : std::prev(above);
    if (below != ranges_.end() && seq <= below->second) return false;
    if (joins_above) ranges_.erase(above);
    if (below != ranges_.end() && below->second + 1 == seq) {
        below->second = last;
    } else {
        ranges_[seq] = last;
    }
    if (ranges_.size() > kMaxRanges) ranges_.erase(ranges_.begin());
    return true;
}

}  // namespace stockade::cmd
