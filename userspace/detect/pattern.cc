#include "userspace/detect/pattern.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/detect/text.h"
#include "userspace/model/utf8.h"

namespace stockade::detect {
namespace {

// One character or wildcard of a pattern, for the slow way.
struct Token {
    Pattern::Piece piece = Pattern::Piece::kText;
    uint32_t code = 0;
};

// A code of its own for a byte that is no UTF-8: patterns may hold such after utf16 modifiers.
uint32_t CodeOf(const model::Utf8Char& c, absl::string_view text) {
    return c.valid ? c.code : 0x110000u + static_cast<unsigned char>(text[0]);
}

std::vector<Token> TokensOf(const std::vector<Pattern::Part>& parts) {
    std::vector<Token> tokens;
    for (const Pattern::Part& part : parts) {
        if (part.piece != Pattern::Piece::kText) {
            tokens.push_back({part.piece, 0});
            continue;
        }
        for (absl::string_view text = part.text; !text.empty();) {
            const model::Utf8Char c = model::NextChar(text);
            tokens.push_back({Pattern::Piece::kText, CodeOf(c, text)});
            text.remove_prefix(c.bytes);
        }
    }
    return tokens;
}

// Where a `*` may stand for nothing.
void PassStars(const std::vector<Token>& tokens, std::vector<bool>* at) {
    for (size_t i = 0; i < tokens.size(); ++i) {
        if ((*at)[i] && tokens[i].piece == Pattern::Piece::kAny) (*at)[i + 1] = true;
    }
}

// Places in the pattern that can be reached: by some filling of the holes, or by every one of them.
void StepHole(const std::vector<Token>& tokens, bool some, std::vector<bool>* at) {
    if (some) {
        const auto first = std::find(at->begin(), at->end(), true);
        std::fill(first, at->end(), true);
        return;
    }
    for (size_t i = 0; i <= tokens.size(); ++i)
        (*at)[i] = (*at)[i] && i < tokens.size() && tokens[i].piece == Pattern::Piece::kAny;
}

void StepChar(const std::vector<Token>& tokens, uint32_t code, std::vector<bool>* at) {
    std::vector<bool> next(tokens.size() + 1, false);
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (!(*at)[i]) continue;
        const Token& token = tokens[i];
        if (token.piece == Pattern::Piece::kAny) next[i] = true;
        if (token.piece == Pattern::Piece::kOne ||
            (token.piece == Pattern::Piece::kText && token.code == code))
            next[i + 1] = true;
    }
    *at = std::move(next);
}

bool Reaches(const std::vector<Token>& tokens, absl::string_view value, bool some) {
    std::vector<bool> at(tokens.size() + 1, false);
    at[0] = true;
    PassStars(tokens, &at);
    while (!value.empty()) {
        if (value[0] == kHole) {
            StepHole(tokens, some, &at);
            value.remove_prefix(1);
        } else {
            const model::Utf8Char c = model::NextChar(value);
            StepChar(tokens, CodeOf(c, value), &at);
            value.remove_prefix(c.bytes);
        }
        PassStars(tokens, &at);
    }
    return at[tokens.size()];
}

}  // namespace

Pattern::Pattern(std::vector<Part> parts) {
    for (Part& part : parts) {
        const bool merge = !parts_.empty() && parts_.back().piece == part.piece && part.piece != Piece::kOne;
        if (part.piece == Piece::kText && part.text.empty()) continue;
        if (!merge) {
            parts_.push_back(std::move(part));
        } else if (part.piece == Piece::kText) {
            parts_.back().text += part.text;
        }
    }
    const auto is = [&](size_t i, Piece piece) { return i < parts_.size() && parts_[i].piece == piece; };
    literal_ = parts_.empty() || (parts_.size() == 1 && is(0, Piece::kText));
    const size_t n = parts_.size();
    if (literal_) {
        shape_ = Shape::kExact;
    } else if (n == 2 && is(0, Piece::kText) && is(1, Piece::kAny)) {
        shape_ = Shape::kPrefix;
    } else if (n == 2 && is(0, Piece::kAny) && is(1, Piece::kText)) {
        shape_ = Shape::kSuffix;
    } else if ((n == 3 && is(0, Piece::kAny) && is(1, Piece::kText) && is(2, Piece::kAny)) ||
               (n == 1 && is(0, Piece::kAny))) {
        shape_ = Shape::kContains;
    } else {
        shape_ = Shape::kGeneral;
    }
    core_ = Plain();
}

std::string Pattern::Plain() const {
    std::string out;
    for (const Part& part : parts_) out += part.text;
    return out;
}

absl::string_view Pattern::LongestText() const {
    absl::string_view longest;
    for (const Part& part : parts_) {
        if (part.text.size() > longest.size()) longest = part.text;
    }
    return longest;
}

Pattern Pattern::WithStars(bool front, bool back) const {
    std::vector<Part> parts;
    if (front) parts.push_back({Piece::kAny, ""});
    parts.insert(parts.end(), parts_.begin(), parts_.end());
    if (back) parts.push_back({Piece::kAny, ""});
    return Pattern(std::move(parts));
}

Pattern Pattern::Folded() const {
    std::vector<Part> parts = parts_;
    for (Part& part : parts) part.text = detect::Folded(part.text);
    return Pattern(std::move(parts));
}

Truth Pattern::Match(absl::string_view value) const {
    if (absl::StrContains(value, kHole)) return MatchWithHoles(value);
    switch (shape_) {
        case Shape::kExact:
            return FromBool(value == core_);
        case Shape::kPrefix:
            return FromBool(absl::StartsWith(value, core_));
        case Shape::kSuffix:
            return FromBool(absl::EndsWith(value, core_));
        case Shape::kContains:
            return FromBool(absl::StrContains(value, core_));
        case Shape::kGeneral:
            break;
    }
    return FromBool(MatchGeneral(value));
}

// Greedy with one place to go back to: the last `*`. Linear in both but for what repeats.
bool Pattern::MatchGeneral(absl::string_view value) const {
    size_t part = 0, pos = 0, star_part = parts_.size(), star_pos = 0;
    const auto char_bytes = [&](size_t at) { return model::NextChar(value.substr(at)).bytes; };
    while (true) {
        if (part < parts_.size() && parts_[part].piece == Piece::kAny) {
            star_part = part++;
            star_pos = pos;
            continue;
        }
        if (part == parts_.size() && pos == value.size()) return true;
        if (part < parts_.size() && parts_[part].piece == Piece::kText &&
            absl::StartsWith(value.substr(pos), parts_[part].text)) {
            pos += parts_[part++].text.size();
            continue;
        }
        if (part < parts_.size() && parts_[part].piece == Piece::kOne && pos < value.size()) {
            pos += char_bytes(pos);
            ++part;
            continue;
        }
        if (star_part == parts_.size() || star_pos >= value.size()) return false;
        star_pos += char_bytes(star_pos);
        pos = star_pos;
        part = star_part + 1;
    }
}

Truth Pattern::MatchWithHoles(absl::string_view value) const {
    const std::vector<Token> tokens = TokensOf(parts_);
    if (!Reaches(tokens, value, true)) return Truth::kNo;
    return Reaches(tokens, value, false) ? Truth::kYes : Truth::kUndecidable;
}

std::string Pattern::ToString() const {
    std::string out;
    for (const Part& part : parts_) {
        if (part.piece == Piece::kAny) out += '*';
        if (part.piece == Piece::kOne) out += '?';
        for (size_t i = 0; i < part.text.size(); ++i) {
            const char c = part.text[i];
            const bool last = i + 1 == part.text.size();
            // A backslash is doubled only where it would escape what follows.
            const bool before_special = last || absl::StrContains("*?\\", part.text[i + 1]);
            if (c == '*' || c == '?' || (c == '\\' && before_special)) out += '\\';
            out += c;
        }
    }
    return out;
}

Pattern ParsePattern(absl::string_view text) {
    std::vector<Pattern::Part> parts;
    std::string run;
    const auto flush = [&] {
        if (!run.empty()) parts.push_back({Pattern::Piece::kText, std::exchange(run, "")});
    };
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\\' && i + 1 < text.size() && absl::StrContains("*?\\", text[i + 1])) {
            run += text[++i];
        } else if (c == '*' || c == '?') {
            flush();
            parts.push_back({c == '*' ? Pattern::Piece::kAny : Pattern::Piece::kOne, ""});
        } else {
            run += c;
        }
    }
    flush();
    return Pattern(std::move(parts));
}

Pattern LiteralPattern(absl::string_view text) {
    return Pattern({{Pattern::Piece::kText, std::string(text)}});
}

}  // namespace stockade::detect
