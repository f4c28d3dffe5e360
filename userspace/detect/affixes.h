// Which of many texts a value begins with, or ends with: a few steps, whatever their number.
//
//   AffixTable table(AffixTable::End::kBack);
//   table.Add("/bash", 7);
//   table.Build();
//   table.Find("/usr/bin/bash", [](int value, bool whole) { ... });   // 7, false
//
// Sorted texts, of which those that agree with the value so far are a range: each letter of the value narrows it.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stockade::detect {

class AffixTable {
  public:
    enum class End { kFront, kBack };

    explicit AffixTable(End end) : end_(end) {}

    // `text` must not be empty. Texts may come more than once.
    void Add(absl::string_view text, int value);
    // After the last Add, before the first Find.
    void Build();
    bool empty() const { return items_.empty(); }

    // each(value, whole) for every text that stands at this end; `whole`: it is all there is.
    template <typename Each>
    void Find(absl::string_view value, const Each& each) const {
        if (value.empty()) return;
        uint32_t from = first_[LetterOf(value, 0)], to = first_[LetterOf(value, 0) + 1u];
        for (size_t depth = 1; from < to; ++depth) {
            for (; from < to && items_[from].text.size() == depth; ++from)
                each(items_[from].value, depth == value.size());
            if (depth == value.size()) return;
            Narrow(LetterOf(value, depth), depth, &from, &to);
        }
    }

  private:
    struct Item {
        std::string text;  // of kBack: from its end
        int value = 0;
    };

    uint8_t LetterOf(absl::string_view value, size_t at) const {
        return static_cast<uint8_t>(end_ == End::kFront ? value[at] : value[value.size() - 1 - at]);
    }
    // To those of items_[from .. to) that have the letter at `depth`. All are longer than that.
    void Narrow(uint8_t letter, size_t depth, uint32_t* from, uint32_t* to) const;

    End end_;
    std::vector<Item> items_;
    std::array<uint32_t, 257> first_{};  // items_ that begin with a letter: [first_[letter], first_[letter + 1])
};

}  // namespace stockade::detect
