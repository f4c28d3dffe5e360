// Sigma's string values: literal text with `*` (any text) and `?` (one character).
//
//   Pattern p = ParsePattern("/usr/*/ba?h");
//   p.Match(value, folded)   // Truth: a value may have holes
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/detect/truth.h"

namespace stockade::detect {

class Pattern {
  public:
    // Runs of literal bytes; kOne and kAny have no text.
    enum class Piece { kText, kOne, kAny };
    struct Part {
        Piece piece = Piece::kText;
        std::string text;
        bool operator==(const Part&) const = default;
    };
    // One character or wildcard.
    struct Token {
        Piece piece = Piece::kText;
        uint32_t code = 0;
    };

    Pattern() = default;
    explicit Pattern(std::vector<Part> parts);

    const std::vector<Part>& parts() const { return parts_; }
    bool HasWildcard() const { return !literal_; }
    // All literal text, wildcards left out; of a pattern without wildcards the whole value.
    std::string Plain() const;
    // The longest run of literal text; empty for a pattern of wildcards only.
    absl::string_view LongestText() const;

    // With a `*` in front, behind, or both, where there is none yet.
    Pattern WithStars(bool front, bool back) const;
    Pattern Folded() const;

    // `value` is valid UTF-8, with holes. kYes: matches whatever the holes stand for; kNo: for nothing
    // that they may stand for.
    Truth Match(absl::string_view value) const;
    // As a Sigma value is written, wildcards and backslashes escaped where needed.
    std::string ToString() const;

    bool operator==(const Pattern& other) const { return parts_ == other.parts_; }

  private:
    enum class Shape { kExact, kPrefix, kSuffix, kContains, kGeneral };

    Truth MatchWithHoles(absl::string_view value) const;
    bool MatchGeneral(absl::string_view value) const;

    std::vector<Part> parts_;
    Shape shape_ = Shape::kExact;
    std::string core_;  // literal text of all shapes but kGeneral
    bool literal_ = true;
    std::shared_ptr<const std::vector<Token>> tokens_;  // of kGeneral alone
};

// Sigma's rules of escaping: `\*`, `\?` and `\\` are literal, any other backslash is itself.
Pattern ParsePattern(absl::string_view text);
// All of it literal.
Pattern LiteralPattern(absl::string_view text);

}  // namespace stockade::detect
