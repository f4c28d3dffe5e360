// Which of many predicates about one field may hold for a value, at a cost that hardly grows with their number:
// texts at an end by tables, texts within by one pass of a scanner, regular expressions by texts that they need.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "userspace/detect/affixes.h"
#include "userspace/detect/literals.h"
#include "userspace/detect/rule.h"
#include "userspace/detect/view.h"

namespace re2 {
class FilteredRE2;
}

namespace stockade::detect {

class TextIndex {
  public:
    struct Candidate {
        int needle = 0;
        bool sure = false;  // it does hold; else it has to be asked
    };

    explicit TextIndex(const Field* field);  // null: keywords
    ~TextIndex();

    // `needle` is what Find calls the predicate. False: it cannot be found here, and has to be asked each time.
    bool Add(int needle, const Predicate& atom);
    // After the last Add, before the first Find.
    void Build();

    const Field* field() const { return field_; }
    const std::vector<int>& needles() const { return needles_; }
    size_t scanner_bytes() const { return scanner_ == nullptr ? 0 : scanner_->bytes(); }

    // Appends what may hold, some of it more than once. False: nothing is known, any of needles() may, because
    // the value has a hole or could not be scanned. One thread.
    bool Find(const FieldValue& value, std::vector<Candidate>* out);

  private:
    struct Affix {
        Candidate candidate;
        bool whole = false;  // only as all of the value
    };
    struct Contained {
        Candidate candidate;
        std::string text;
    };

    void AddText(int needle, const Predicate& atom);
    bool AddRegex(int needle, const Predicate& atom);
    void BuildScanner();
    bool Scan(const FieldValue& value, std::vector<Candidate>* out);

    const Field* field_;
    std::vector<int> needles_;
    AffixTable front_{AffixTable::End::kFront}, back_{AffixTable::End::kBack};
    std::vector<Affix> affixes_;
    std::vector<Contained> contained_;
    std::unique_ptr<re2::FilteredRE2> regexes_;
    std::vector<int> regex_needles_;  // number in `regexes_` -> needle
    std::vector<int> regex_always_;   // numbers of those that need no text
    std::unique_ptr<LiteralScanner> scanner_;
    bool scan_failed_ = false;
    std::vector<std::vector<Candidate>> of_text_;  // text of the scanner -> what needs it
    std::vector<int> regex_text_;                  // text of the scanner -> its number for `regexes_`, or -1
    // Of the value at hand.
    std::vector<int> found_, regex_found_, regex_numbers_;
    std::string buffer_;
};

}  // namespace stockade::detect
