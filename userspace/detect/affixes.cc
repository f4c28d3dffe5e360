#include "userspace/detect/affixes.h"

#include <utility>

namespace stockade::detect {

void AffixTable::Add(absl::string_view text, int value) {
    std::string stored(text);
    if (end_ == End::kBack) std::reverse(stored.begin(), stored.end());
    items_.push_back({std::move(stored), value});
}

void AffixTable::Build() {
    std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.text < b.text; });
    first_.fill(0);
    for (const Item& item : items_) ++first_[static_cast<uint8_t>(item.text[0]) + 1u];
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
}

void AffixTable::Narrow(uint8_t letter, size_t depth, uint32_t* from, uint32_t* to) const {
    const auto letter_of = [depth](const Item& item) { return static_cast<uint8_t>(item.text[depth]); };
    const auto begin = items_.begin() + *from, end = items_.begin() + *to;
    const auto low = std::lower_bound(
        begin, end, letter, [&](const Item& item, uint8_t wanted) { return letter_of(item) < wanted; });
    const auto high = std::upper_bound(
        low, end, letter, [&](uint8_t wanted, const Item& item) { return wanted < letter_of(item); });
    *from = static_cast<uint32_t>(low - items_.begin());
    *to = static_cast<uint32_t>(high - items_.begin());
}

}  // namespace stockade::detect
