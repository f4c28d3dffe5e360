#include "userspace/detect/text_index.h"

#include <re2/filtered_re2.h>
#include <re2/re2.h>

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "userspace/detect/text.h"

namespace stockade::detect {
namespace {

// Shorter ones stand in every second text; RE2's own default for its atoms.
constexpr int kMinRegexAtom = 3;
// What is scanned for of a longer text: enough to be rare, and within what Vectorscan takes.
constexpr size_t kMaxScanned = 64;
// A pass of the scanner costs as much as looking for about so many texts one by one.
constexpr size_t kFewTexts = 6;
// Stands between the texts of a field in the buffer: a text that runs over it is looked at and found wanting.
constexpr char kBetween = '\n';

bool IsAscii(const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; });
}

// RE2 folds the texts it looks for by Unicode, we by a table that is nearly that: beyond ASCII none is left out.
bool CanFilter(const re2::RE2& regex) {
    return IsAscii(regex.pattern()) && !absl::StrContains(regex.pattern(), "\\x");
}

}  // namespace

TextIndex::TextIndex(const Field* field) : field_(field) {}
TextIndex::~TextIndex() = default;

bool TextIndex::Add(int needle, const Predicate& atom) {
    if (atom.op == Predicate::Op::kPattern) {
        const std::string text(atom.pattern.LongestText());
        // What is compared with case is found by its folded text: of a part of a letter beyond ASCII there is none.
        if (text.empty() || (atom.cased && !IsAscii(text))) return false;
        AddText(needle, atom);
    } else if (atom.op != Predicate::Op::kRegex || !AddRegex(needle, atom)) {
        return false;
    }
    needles_.push_back(needle);
    return true;
}

// By the longest of its texts; where one as long stands at an end, by that one.
void TextIndex::AddText(int needle, const Predicate& atom) {
    const std::vector<Pattern::Part>& parts = atom.pattern.parts();
    const absl::string_view longest = atom.pattern.LongestText();
    const bool front = parts.front().text.size() == longest.size();
    const bool back = !front && parts.back().text.size() == longest.size();
    const std::string text = Folded(front ? parts.front().text : back ? parts.back().text : longest);
    if (!front && !back) {
        const bool sure = !atom.cased && parts.size() == 3 && parts[0].piece == Pattern::Piece::kAny &&
                          parts[2].piece == Pattern::Piece::kAny && text.size() <= kMaxScanned &&
                          !absl::StrContains(text, kBetween);
        contained_.push_back({{needle, sure}, text.substr(0, kMaxScanned)});
        return;
    }
    const bool whole = parts.size() == 1;
    const bool open = parts.size() == 2 && parts[front ? 1 : 0].piece == Pattern::Piece::kAny;
    (front ? front_ : back_).Add(text, static_cast<int>(affixes_.size()));
    affixes_.push_back({{needle, !atom.cased && (whole || open)}, whole});
}

bool TextIndex::AddRegex(int needle, const Predicate& atom) {
    if (!CanFilter(*atom.regex)) return false;
    if (regexes_ == nullptr) regexes_ = std::make_unique<re2::FilteredRE2>(kMinRegexAtom);
    re2::RE2::Options options;
    options.set_log_errors(false);
    int number = -1;
    if (regexes_->Add(atom.regex->pattern(), options, &number) != re2::RE2::NoError) return false;
    regex_needles_.push_back(needle);
    return true;
}

void TextIndex::Build() {
    front_.Build();
    back_.Build();
    if (!regex_needles_.empty() || contained_.size() > kFewTexts) BuildScanner();
}

void TextIndex::BuildScanner() {
    absl::flat_hash_map<std::string, size_t> ids;
    std::vector<std::string> texts;
    const auto place_of = [&](const std::string& text) {
        const auto [it, added] = ids.emplace(text, texts.size());
        if (added) {
            texts.push_back(text);
            of_text_.emplace_back();
            regex_text_.push_back(-1);
        }
        return it->second;
    };
    for (const Contained& each : contained_) of_text_[place_of(each.text)].push_back(each.candidate);
    contained_.clear();
    if (!regex_needles_.empty()) {
        std::vector<std::string> needed;
        regexes_->Compile(&needed);
        for (size_t i = 0; i < needed.size(); ++i) regex_text_[place_of(needed[i])] = static_cast<int>(i);
        regexes_->AllPotentials({}, &regex_always_);
    }
    if (texts.empty()) return;
    StatusOr<std::unique_ptr<LiteralScanner>> scanner = LiteralScanner::Create(texts);
    scan_failed_ = !scanner.ok();
    if (scanner.ok()) scanner_ = *std::move(scanner);
}

bool TextIndex::Scan(const FieldValue& value, std::vector<Candidate>* out) {
    absl::string_view scanned = value.texts[0].folded;
    if (value.texts.size() > 1) {
        buffer_.clear();
        for (const Text& text : value.texts) (buffer_ += text.folded) += kBetween;
        scanned = buffer_;
    }
    found_.clear();
    regex_found_.clear();
    if (!scanner_->Scan(scanned, &found_)) return false;
    for (int text : found_) {
        const std::vector<Candidate>& needing = of_text_[static_cast<size_t>(text)];
        out->insert(out->end(), needing.begin(), needing.end());
        if (const int number = regex_text_[static_cast<size_t>(text)]; number >= 0)
            regex_found_.push_back(number);
    }
    return true;
}

bool TextIndex::Find(const FieldValue& value, std::vector<Candidate>* out) {
    if (scan_failed_ || value.HasHole()) return false;
    if (value.texts.empty()) return true;
    for (const Text& text : value.texts) {
        const auto add = [&](int at, bool whole) {
            const Affix& affix = affixes_[static_cast<size_t>(at)];
            if (whole || !affix.whole) out->push_back(affix.candidate);
        };
        front_.Find(text.folded, add);
        back_.Find(text.folded, add);
    }
    for (const Contained& each : contained_) out->push_back({each.candidate.needle, false});
    if (scanner_ != nullptr && !Scan(value, out)) return false;
    const std::vector<int>* numbers = &regex_always_;
    if (!regex_found_.empty()) {
        regexes_->AllPotentials(regex_found_, &regex_numbers_);
        numbers = &regex_numbers_;
    }
    for (int number : *numbers) out->push_back({regex_needles_[static_cast<size_t>(number)], false});
    return true;
}

}  // namespace stockade::detect
