#include "userspace/decode/redact_prefilter.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace stockade::decode {
namespace {

// With words of one byte every text would have some.
constexpr int kLeastWord = 2;

}  // namespace

void RedactPrefilter::Add(const std::string& pattern, const RE2::Options& options) {
    if (!patterns_) patterns_ = std::make_unique<re2::FilteredRE2>(kLeastWord);
    int id = 0;
    // One that cannot be added, though it was taken before, is one without words.
    failed_ |= patterns_->Add(pattern, options, &id) != RE2::NoError;
}

void RedactPrefilter::Compile() {
    std::vector<std::string> words;
    std::vector<int> without;
    if (failed_) return;
    open_ = false;
    if (!patterns_) return;  // no pattern, no match
    patterns_->Compile(&words);
    patterns_->AllPotentials({}, &without);
    patterns_.reset();
    open_ = !without.empty();
    for (std::string& word : words) {
        if (word.size() < kLeastWord) open_ = true;
        if (open_) return;
        size_t key = Fold(word[0]) << 5 | Fold(word[1]);
        if (word.size() == 2) {
            pairs_.set(key);
        } else {
            key = key << 5 | Fold(word[2]);
            triples_.set(key);
            key += kPairs;
        }
        words_.emplace_back(key, std::move(word));
    }
    std::sort(words_.begin(), words_.end());
}

// RE2 has made the words lower-case, ASCII's letters alone: bytes are Latin-1 here and mean nothing.
bool RedactPrefilter::HasWordAt(absl::string_view rest, size_t key) const {
    for (auto word = std::lower_bound(words_.begin(), words_.end(), std::pair<size_t, std::string>(key, "")); word != words_.end() && word->first == key; ++word) {
        if (absl::StartsWithIgnoreCase(rest, word->second)) return true;
    }
    return false;
}

bool RedactPrefilter::MayMatch(absl::string_view text) const {
    if (open_) return true;
    if (text.size() < 2) return false;
    size_t key = Fold(text[0]);
    for (size_t i = 1; i < text.size(); ++i) {
        key = (key << 5 | Fold(text[i])) & (kTriples - 1);
        const size_t pair = key & (kPairs - 1);
        if (pairs_[pair] && HasWordAt(text.substr(i - 1), pair)) return true;
        if (i > 1 && triples_[key] && HasWordAt(text.substr(i - 2), kPairs + key)) return true;
    }
    return false;
}

}  // namespace stockade::decode
