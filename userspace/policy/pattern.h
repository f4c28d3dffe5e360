// Path patterns: text to tokens, and the plain matcher of one pattern.
//
// A pattern is absolute, or starts with two stars and a slash. Between slashes: text, where `*`
// stands for any bytes and `?` for one byte; a component of `*` alone is any one name; a
// component of two stars is any number of names, none included (so /usr/** covers /usr).
// Backslash takes the meaning from the character after it. Brackets and braces mean something
// in other tools' globs, so unescaped they are errors and not silently literal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "userspace/base/status.h"

namespace stockade::policy {

enum class TokenKind : uint8_t { kLiteral, kGlob, kStar, kGlobStar };

// Elements of a glob within a component: 0..255 that byte, or one of these.
inline constexpr uint16_t kGlobAnyByte = 256;
inline constexpr uint16_t kGlobAnyBytes = 257;
using Glob = std::vector<uint16_t>;

struct Token {
    TokenKind kind = TokenKind::kLiteral;
    std::string literal;  // kLiteral: the name, escapes taken away
    Glob glob;            // kGlob
    bool operator==(const Token&) const = default;
};

struct PathPattern {
    std::vector<Token> tokens;  // empty = "/" itself
    bool operator==(const PathPattern&) const = default;

    bool IsExact() const;
    // The pattern is two-stars-slash-NAME, or that with slash-two-stars behind it.
    bool IsAnyName() const;
    // Number of leading literal tokens.
    size_t LiteralTokens() const;
    std::string LiteralPrefix() const;
    // Text that ParsePattern reads back into the same pattern.
    std::string ToText() const;
};

// NAME_MAX of every Linux file system.
inline constexpr size_t kMaxNameBytes = 255;
// PATH_MAX: a longer pattern can match nothing that a system call takes.
inline constexpr size_t kMaxPatternBytes = 4096;

// kInvalidArgument with a sentence that says what to write instead.
StatusOr<PathPattern> ParsePattern(absl::string_view text);

bool MatchGlob(absl::Span<const uint16_t> glob, absl::string_view name);
bool MatchToken(const Token& token, absl::string_view name);
bool MatchPattern(const PathPattern& pattern, absl::Span<const absl::string_view> components);

// "/a/b" to {"a", "b"}; empty components vanish.
std::vector<absl::string_view> SplitPath(absl::string_view path);

}  // namespace stockade::policy
