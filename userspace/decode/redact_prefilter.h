// Which texts may hold a secret at all: those with one of the words that each pattern needs. RE2 says which words these are.
//
//   RedactPrefilter filter;
//   filter.Add(pattern.find, options); ... filter.Compile();
//   if (!filter.MayMatch(text)) return;   // no pattern would
//
// Most texts of a sandbox hold none, and are looked at once, byte by byte.
#pragma once

#include <re2/filtered_re2.h>

#include <bitset>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace stockade::decode {

class RedactPrefilter {
  public:
    // A pattern that RE2 has taken.
    void Add(const std::string& pattern, const RE2::Options& options);
    // After the last.
    void Compile();
    // False: no pattern matches. Any thread.
    bool MayMatch(absl::string_view text) const;
    // There is a pattern without such words: all texts may match.
    bool open() const { return open_; }

  private:
    // Five bits of a byte: capital letters are as small ones, and some others are as letters, which costs another look.
    static constexpr size_t kPairs = 1 << 10, kTriples = 1 << 15;
    static size_t Fold(char c) { return static_cast<size_t>(c) & 31; }
    bool HasWordAt(absl::string_view rest, size_t key) const;

    std::unique_ptr<re2::FilteredRE2> patterns_;  // until they are compiled
    bool open_ = true;
    bool failed_ = false;
    std::bitset<kPairs> pairs_;      // words of two bytes
    std::bitset<kTriples> triples_;  // first three bytes of the longer ones
    std::vector<std::pair<size_t, std::string>> words_;  // by pair, or kPairs + triple
};

}  // namespace stockade::decode
