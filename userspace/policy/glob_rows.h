// Byte automata for globs within a component, in the row format of bpf/wire/policy.h.
//
// All rows of a policy share one map of bytes to classes; a set of globs becomes one automaton
// whose result at the end of a name is a class: which of the globs match it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bpf/wire/policy.h"
#include "userspace/base/status.h"
#include "userspace/policy/pattern.h"

namespace stockade::policy {

using GlobRow = std::array<uint16_t, SK_GLOB_CLASSES>;

// Globs of different patterns are given numbers first (Intern), then sets of numbers become
// automata (AddSet), which are shared between states with the same set.
class GlobRows {
  public:
    struct Set {
        uint16_t start_row = 0;
        // matches[g] = sorted glob numbers that class g stands for; class 0 is "none".
        std::vector<std::vector<uint32_t>> matches;
        std::vector<std::string> samples;  // a shortest name of each class
    };

    uint32_t Intern(const Glob& glob);
    const Glob& glob(uint32_t number) const { return *globs_[number]; }
    size_t size() const { return globs_.size(); }

    // Fixes the byte classes; call once after the last Intern. kResourceExhausted when the globs
    // name more different bytes than there are classes.
    Status Freeze();
    // `numbers` sorted, without duplicates, not empty. kResourceExhausted beyond
    // SK_GLOB_MAX_ROWS. The index stays valid.
    StatusOr<uint32_t> AddSet(const std::vector<uint32_t>& numbers);
    const Set& set(uint32_t index) const { return sets_[index]; }

    const std::array<uint8_t, 256>& classes() const { return classes_; }
    const std::vector<GlobRow>& rows() const { return rows_; }  // row 0 is unused

  private:
    struct Builder;

    std::map<Glob, uint32_t> numbers_;
    std::vector<const Glob*> globs_;  // keys of numbers_
    std::array<uint8_t, 256> classes_{};
    std::vector<uint8_t> representative_;  // a byte of each class
    std::map<std::vector<uint32_t>, uint32_t> set_index_;
    std::vector<Set> sets_;
    std::vector<GlobRow> rows_ = std::vector<GlobRow>(1);
};

}  // namespace stockade::policy
