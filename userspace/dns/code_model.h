// The frozen code-length model: how many bits a label needs when words and usual letters are cheap.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::dns {

// A label is coded from the left as letters and words of the dictionary, each given the letter
// before it, and an end; a label's cost is that of its cheapest spelling. Every spelling is a
// message of one prefix code, so the costs of all labels form a code, too: no choice of labels
// carries more bits than it costs.
//
// Immutable; any thread. Costs are in sixteenths of a bit.
//
//   SK_ASSIGN_OR_RETURN(CodeModel model, CodeModel::Parse(text));
//   model.Label("www")  // about 80: five bits
class CodeModel {
  public:
    // The text that userspace/dns/train/train.py writes. kInvalidArgument says what is wrong with
    // it: cut, altered (SHA-256), of another version.
    static StatusOr<CodeModel> Parse(absl::string_view text);

    // One label of at most 63 lower-case letters, digits, '-' and '_'. kUncodable for another.
    uint32_t Label(absl::string_view label) const;
    // Labels with dots between them, and where they end: the number of labels is coded as well.
    uint32_t Name(absl::string_view subdomain) const;

    static constexpr uint32_t kUncodable = 1u << 24;
    int version() const { return version_; }

  private:
    static constexpr size_t kLetters = 38;
    static constexpr size_t kEnd = kLetters, kWord = kLetters + 1, kStart = kLetters;
    struct Node {
        uint32_t first_child = 0;  // nodes of one parent stand together, in the order of their letters
        uint32_t cost = 0;         // of the word that ends here; 0: none does
        uint8_t letter = 0;
        uint8_t children = 0;
    };

    Status ReadLine(absl::string_view line, std::vector<std::pair<std::string, uint32_t>>& words);
    void BuildTrie(const std::vector<std::pair<std::string, uint32_t>>& words);
    const Node* Child(const Node& node, uint8_t letter) const;

    int version_ = 0;
    // [letter before, or kStart][letter, kEnd or kWord]
    std::array<std::array<uint16_t, kLetters + 2>, kLetters + 1> after_{};
    std::array<bool, kLetters + 1> have_after_{};
    std::vector<Node> nodes_;
};

}  // namespace stockade::dns
