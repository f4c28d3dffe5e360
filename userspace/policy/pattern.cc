#include "userspace/policy/pattern.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/policy.h"

namespace stockade::policy {
namespace {

Status Bad(absl::string_view pattern, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("bad pattern '", pattern, "': ", why));
}

// Characters that other globs give a meaning which ours do not have.
bool IsForeignGlob(char c) { return c == '[' || c == ']' || c == '{' || c == '}'; }

Status ReadElements(absl::string_view pattern, absl::string_view component, Glob& glob) {
    for (size_t i = 0; i < component.size(); ++i) {
        const char c = component[i];
        if (c == '\0') return Bad(pattern, "a file name cannot hold a NUL byte");
        if (c == '\\') {
            if (++i == component.size())
                return Bad(pattern, "a backslash at the end of a name escapes nothing");
            glob.push_back(static_cast<uint8_t>(component[i]));
        } else if (c == '*') {
            if (!glob.empty() && glob.back() == kGlobAnyBytes) {
                return Bad(pattern, "'**' must be a whole component; write '/**/' or a single '*'");
            }
            glob.push_back(kGlobAnyBytes);
        } else if (c == '?') {
            glob.push_back(kGlobAnyByte);
        } else if (IsForeignGlob(c)) {
            return Bad(pattern, absl::StrCat("'", std::string(1, c),
                                             "' is not a wildcard here; write one pattern each, or '\\",
                                             std::string(1, c), "' for the character itself"));
        } else {
            glob.push_back(static_cast<uint8_t>(c));
        }
    }
    return absl::OkStatus();
}

StatusOr<Token> ReadToken(absl::string_view pattern, absl::string_view component) {
    Token token;
    if (component == "**") {
        token.kind = TokenKind::kGlobStar;
        return token;
    }
    if (component == "*") {
        token.kind = TokenKind::kStar;
        return token;
    }
    if (component.empty())
        return Bad(pattern,
                   "an empty component ('//' or a slash at the end); for a directory's contents write '/**'");
    SK_RETURN_IF_ERROR(ReadElements(pattern, component, token.glob));
    bool wild = false;
    for (uint16_t element : token.glob) wild |= element >= 256;
    if (token.glob.size() > kMaxNameBytes) return Bad(pattern, "a name of more than 255 bytes");
    if (wild) {
        token.kind = TokenKind::kGlob;
        return token;
    }
    for (uint16_t element : token.glob) token.literal.push_back(static_cast<char>(element));
    token.glob.clear();
    if (token.literal == "." || token.literal == "..") {
        return Bad(pattern, "'.' and '..' never stand in a resolved path");
    }
    return token;
}

bool NeedsEscape(char c) { return c == '*' || c == '?' || c == '\\' || IsForeignGlob(c); }

bool MatchFrom(const PathPattern& pattern, size_t token, absl::Span<const absl::string_view> rest) {
    for (; token < pattern.tokens.size(); ++token) {
        if (pattern.tokens[token].kind == TokenKind::kGlobStar) {
            if (token + 1 == pattern.tokens.size()) return true;
            for (size_t skip = 0; skip <= rest.size(); ++skip) {
                if (MatchFrom(pattern, token + 1, rest.subspan(skip))) return true;
            }
            return false;
        }
        if (rest.empty() || !MatchToken(pattern.tokens[token], rest[0])) return false;
        rest.remove_prefix(1);
    }
    return rest.empty();
}

}  // namespace

bool PathPattern::IsExact() const { return LiteralTokens() == tokens.size(); }

bool PathPattern::IsAnyName() const {
    if (tokens.size() < 2 || tokens.size() > 3 || tokens[0].kind != TokenKind::kGlobStar) return false;
    if (tokens[1].kind != TokenKind::kLiteral && tokens[1].kind != TokenKind::kGlob) return false;
    return tokens.size() == 2 || tokens[2].kind == TokenKind::kGlobStar;
}

size_t PathPattern::LiteralTokens() const {
    size_t count = 0;
    while (count < tokens.size() && tokens[count].kind == TokenKind::kLiteral) ++count;
    return count;
}

std::string PathPattern::LiteralPrefix() const {
    std::string prefix;
    for (size_t i = 0; i < LiteralTokens(); ++i) absl::StrAppend(&prefix, "/", tokens[i].literal);
    return prefix.empty() ? "/" : prefix;
}

std::string PathPattern::ToText() const {
    std::string text;
    for (const Token& token : tokens) {
        text.push_back('/');
        if (token.kind == TokenKind::kGlobStar) text += "**";
        if (token.kind == TokenKind::kStar) text += "*";
        for (char c : token.literal) {
            if (NeedsEscape(c)) text.push_back('\\');
            text.push_back(c);
        }
        for (uint16_t element : token.glob) {
            if (element == kGlobAnyByte) text.push_back('?');
            if (element == kGlobAnyBytes) text.push_back('*');
            if (element >= 256) continue;
            if (NeedsEscape(static_cast<char>(element))) text.push_back('\\');
            text.push_back(static_cast<char>(element));
        }
    }
    return text.empty() ? "/" : text;
}

StatusOr<PathPattern> ParsePattern(absl::string_view text) {
    if (text.size() > kMaxPatternBytes) return Bad(text.substr(0, 64), "longer than 4096 bytes");
    PathPattern pattern;
    if (text == "/") return pattern;
    absl::string_view rest = text;
    if (text.substr(0, 1) == "/") {
        rest.remove_prefix(1);
    } else if (text.substr(0, 3) != "**/") {
        return Bad(text, "it must start with '/' or with '**/'");
    }
    size_t names = 0;
    for (absl::string_view component : absl::StrSplit(rest, '/')) {
        SK_ASSIGN_OR_RETURN(Token token, ReadToken(text, component));
        const bool globstar = token.kind == TokenKind::kGlobStar;
        if (globstar && !pattern.tokens.empty() && pattern.tokens.back().kind == TokenKind::kGlobStar)
            continue;
        names += globstar ? 0 : 1;
        pattern.tokens.push_back(std::move(token));
    }
    if (names >= SK_PATH_SLOTS) {
        return Bad(text, absl::StrCat("more than ", SK_PATH_SLOTS - 1,
                                      " components; deeper paths are refused anyway"));
    }
    return pattern;
}

bool MatchGlob(absl::Span<const uint16_t> glob, absl::string_view name) {
    size_t g = 0, n = 0;
    size_t star = glob.size(), resume = 0;
    while (n < name.size()) {
        if (g < glob.size() && glob[g] == kGlobAnyBytes) {
            star = g++;
            resume = n;
        } else if (g < glob.size() && (glob[g] == kGlobAnyByte || glob[g] == static_cast<uint8_t>(name[n]))) {
            ++g, ++n;
        } else if (star < glob.size()) {
            g = star + 1;
            n = ++resume;
        } else {
            return false;
        }
    }
    while (g < glob.size() && glob[g] == kGlobAnyBytes) ++g;
    return g == glob.size();
}

bool MatchToken(const Token& token, absl::string_view name) {
    switch (token.kind) {
        case TokenKind::kLiteral:
            return token.literal == name;
        case TokenKind::kGlob:
            return MatchGlob(token.glob, name);
        case TokenKind::kStar:
        case TokenKind::kGlobStar:
            return true;
    }
    return false;
}

bool MatchPattern(const PathPattern& pattern, absl::Span<const absl::string_view> components) {
    return MatchFrom(pattern, 0, components);
}

std::vector<absl::string_view> SplitPath(absl::string_view path) {
    return absl::StrSplit(path, '/', absl::SkipEmpty());
}

}  // namespace stockade::policy
