#include "userspace/contract/quantity.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace stockade::contract {

StatusOr<uint64_t> ParseSize(absl::string_view text) {
    absl::string_view digits = text;
    int shift = 0;
    for (const auto& [suffix, bits] :
         {std::pair{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"K", 10}, {"M", 20}, {"G", 30}}) {
        if (absl::EndsWith(digits, suffix)) {
            digits.remove_suffix(absl::string_view(suffix).size());
            shift = bits;
            break;
        }
    }
    uint64_t value = 0;
    if (!absl::SimpleAtoi(digits, &value) || value == 0 || value > (uint64_t{1} << 33)) {
        return absl::InvalidArgumentError(absl::StrCat("a size such as 64MiB, not ", text));
    }
    return value << shift;
}

StatusOr<uint64_t> ParseTime(absl::string_view text) {
    absl::Duration time;
    if (!absl::ParseDuration(text, &time) || time <= absl::ZeroDuration() || time == absl::InfiniteDuration()) {
        return absl::InvalidArgumentError(absl::StrCat("a duration such as 30s or 5m, not ", text));
    }
    return static_cast<uint64_t>(absl::ToInt64Nanoseconds(time));
}

}  // namespace stockade::contract
