#include "userspace/pipeline/kernel_numbers.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace stockade::pipeline {
namespace {

bool Before(const KernelNumbers::Range& range, uint64_t seq) { return range.second < seq; }

}  // namespace

bool KernelNumbers::Add(uint64_t seq) {
    if (seq == 0) return true;
    // The first range that ends at or behind seq - 1: seq lies in it, touches it, or stands before it.
    auto at = std::lower_bound(ranges_.begin(), ranges_.end(), seq - 1, Before);
    if (at != ranges_.end() && at->second == seq - 1) {
        at->second = seq;
        const auto next = at + 1;
        if (next != ranges_.end() && next->first == seq + 1) {
            at->second = next->second;
            ranges_.erase(next);
        }
        return true;
    }
    if (at != ranges_.end() && at->first <= seq) return false;
    if (at != ranges_.end() && at->first == seq + 1) {
        at->first = seq;
        return true;
    }
    ranges_.insert(at, {seq, seq});
    if (ranges_.size() > kMaxRanges) {
        closed_ += ranges_[1].first - ranges_[0].second - 1;
        ranges_[1].first = ranges_[0].first;
        ranges_.erase(ranges_.begin());
    }
    return true;
}

uint64_t KernelNumbers::EndOf(uint64_t seq) const {
    const auto at = std::lower_bound(ranges_.begin(), ranges_.end(), seq, Before);
    return seq != 0 && at != ranges_.end() && at->first <= seq ? at->second : 0;
}

bool KernelNumbers::Contains(uint64_t seq) const { return EndOf(seq) != 0; }

std::vector<KernelNumbers::Range> KernelNumbers::Holes() const {
    std::vector<Range> holes;
    uint64_t next = 1;
    for (const auto& [first, last] : ranges_) {
        if (first > next) holes.emplace_back(next, first - 1);
        next = last + 1;
    }
    return holes;
}

std::string KernelNumbers::ToText() const {
    if (ranges_.empty()) return "-";
    return absl::StrCat(closed_ > 0 ? absl::StrCat(closed_, "+") : "", absl::StrJoin(ranges_, ",", absl::PairFormatter("-")));
}

std::optional<KernelNumbers> KernelNumbers::FromText(absl::string_view text) {
    KernelNumbers numbers;
    if (text == "-") return numbers;
    if (const size_t plus = text.find('+'); plus != text.npos) {
        if (!absl::SimpleAtoi(text.substr(0, plus), &numbers.closed_)) return std::nullopt;
        text.remove_prefix(plus + 1);
    }
    for (const absl::string_view part : absl::StrSplit(text, ',')) {
        const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
        Range range;
        if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &range.first) ||
            !absl::SimpleAtoi(ends[1], &range.second) || range.first == 0 || range.second < range.first ||
            range.first <= numbers.last() + (numbers.ranges_.empty() ? 0 : 1) ||
            numbers.ranges_.size() >= kMaxRanges) {
            return std::nullopt;
        }
        numbers.ranges_.push_back(range);
    }
    return numbers;
}

}  // namespace stockade::pipeline
