#include "userspace/detect/pattern.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/detect/text.h"
#include "userspace/model/utf8.h"

namespace stockade::detect {
namespace {

// A code of its own for a byte that is no UTF-8: patterns may hold such after utf16 modifiers.
uint32_t CodeOf(const model::Utf8Char& c, absl::string_view text) {
    return c.valid ? c.code : 0x110000u + static_cast<unsigned char>(text[0]);
}

std::vector<Pattern::Token> TokensOf(const std::vector<Pattern::Part>& parts) {
    std::vector<Pattern::Token> tokens;
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

// The places in a pattern that a value can have reached, when holes stand for something (`some`), or for anything at all. Few at a
// time but right behind a hole: as many as the pattern has stars. Nothing is allocated for a character.
class Places {
  public:
    Places(const std::vector<Pattern::Token>& tokens, bool some)
        : tokens_(tokens), some_(some), turns_(tokens.size() + 1, 0) {
        Add(0);
    }
    void Char(uint32_t code) {
        Turn();
        for (const uint32_t i : before_) {
            if (i == tokens_.size()) continue;
            const Pattern::Token& token = tokens_[i];
            if (token.piece == Pattern::Piece::kAny) Add(i);
            if (token.piece == Pattern::Piece::kOne || (token.piece == Pattern::Piece::kText && token.code == code)) Add(i + 1);
        }
    }
    void Hole() {
        Turn();
        const auto first = std::min_element(before_.begin(), before_.end());
        if (some_ && first != before_.end()) {
            for (uint32_t i = *first; i <= tokens_.size(); ++i) Add(i);
        }
        for (const uint32_t i : before_) {
            if (i < tokens_.size() && tokens_[i].piece == Pattern::Piece::kAny) Add(i);
        }
    }
    bool empty() const { return at_.empty(); }
    bool AtEnd() const { return turns_[tokens_.size()] == turn_; }

  private:
    void Turn() {
        at_.swap(before_);
        at_.clear();
        ++turn_;
    }
    // And where a `*` leads that stands for nothing.
    void Add(uint32_t i) {
        for (;; ++i) {
            if (turns_[i] == turn_) return;
            turns_[i] = turn_;
            at_.push_back(i);
            if (i == tokens_.size() || tokens_[i].piece != Pattern::Piece::kAny) return;
        }
    }

    const std::vector<Pattern::Token>& tokens_;
    const bool some_;
    std::vector<uint64_t> turns_;  // by place: when it was reached last
    std::vector<uint32_t> at_, before_;
    uint64_t turn_ = 1;
};

bool Reaches(const std::vector<Pattern::Token>& tokens, absl::string_view value, bool some) {
    Places places(tokens, some);
    while (!value.empty() && !places.empty()) {
        if (value[0] == kHole) {
            places.Hole();
            value.remove_prefix(1);
        } else {
            const model::Utf8Char c = model::NextChar(value);
            places.Char(CodeOf(c, value));
            value.remove_prefix(c.bytes);
        }
    }
    return places.AtEnd();
}

// `text` with something in the place of each hole of `value`, which has one.
bool Fills(absl::string_view value, absl::string_view text) {
    const size_t first = value.find(kHole), last = value.rfind(kHole);
    const absl::string_view front = value.substr(0, first), back = value.substr(last + 1);
    if (front.size() + back.size() > text.size() || !absl::StartsWith(text, front) || !absl::EndsWith(text, back)) return false;
    text = text.substr(front.size(), text.size() - front.size() - back.size());
    for (size_t at = first; at < last;) {
        const size_t next = value.find(kHole, at + 1);
        const absl::string_view part = value.substr(at + 1, next - at - 1);
        const size_t found = text.find(part);
        if (found == text.npos) return false;
        text.remove_prefix(found + part.size());
        at = next;
    }
    return true;
}

// A pattern may hold the byte that a hole is, after utf16.
bool AnyPartContains(absl::string_view value, absl::string_view text) {
    for (const absl::string_view part : absl::StrSplit(value, kHole)) {
        if (absl::StrContains(part, text)) return true;
    }
    return false;
}

Truth SomeAndAll(bool some, bool all) { return !some ? Truth::kNo : all ? Truth::kYes : Truth::kUndecidable; }

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
    if (shape_ == Shape::kGeneral) tokens_ = std::make_shared<const std::vector<Token>>(TokensOf(parts_));
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

// Of all shapes but kGeneral what lies between the holes decides, without a look at each character.
Truth Pattern::MatchWithHoles(absl::string_view value) const {
    const absl::string_view front = value.substr(0, value.find(kHole)), back = value.substr(value.rfind(kHole) + 1);
    switch (shape_) {
        case Shape::kExact:
            return SomeAndAll(Fills(value, core_), false);
        case Shape::kPrefix: {
            const bool all = absl::StartsWith(front, core_);
            return SomeAndAll(all || absl::StartsWith(core_, front), all);
        }
        case Shape::kSuffix: {
            const bool all = absl::EndsWith(back, core_);
            return SomeAndAll(all || absl::EndsWith(core_, back), all);
        }
        case Shape::kContains:
            return SomeAndAll(true, AnyPartContains(value, core_));
        case Shape::kGeneral:
            break;
    }
    if (!Reaches(*tokens_, value, true)) return Truth::kNo;
    return Reaches(*tokens_, value, false) ? Truth::kYes : Truth::kUndecidable;
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
