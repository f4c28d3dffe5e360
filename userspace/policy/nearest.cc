#include "userspace/policy/nearest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stockade::policy {
namespace {

// Longer words are no typing errors, and the distance costs their product.
constexpr size_t kMaxWord = 64;

// Edit distance with swaps of neighbours.
size_t Distance(absl::string_view a, absl::string_view b) {
    std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
    for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
    for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t change = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[a.size()][b.size()];
}

}  // namespace

std::string NearestWord(absl::string_view wrong, const std::vector<std::string>& words) {
    if (wrong.size() > kMaxWord) return "";
    std::string best;
    size_t best_distance = std::max<size_t>(2, wrong.size() / 3) + 1;
    for (const std::string& word : words) {
        const size_t distance = Distance(wrong, word);
        if (distance >= best_distance || distance >= word.size()) continue;
        best = word;
        best_distance = distance;
    }
    return best;
}

std::string Suggest(absl::string_view wrong, const std::vector<std::string>& words) {
    const std::string nearest = NearestWord(wrong, words);
    if (!nearest.empty()) return absl::StrCat("; did you mean '", nearest, "'?");
    return absl::StrCat("; known here: ", absl::StrJoin(words, ", "));
}

}  // namespace stockade::policy
