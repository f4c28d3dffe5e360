#include "userspace/detect/condition.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/detect/pattern.h"

namespace stockade::detect {
namespace {

using policy::YamlNode;

struct Word {
    std::string text;
    size_t offset = 0;
};

bool IsIdentifierChar(char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '*';
}

class Parser {
  public:
    Parser(const YamlNode& node, const std::map<std::string, Expr>& identifiers, std::set<std::string>* used,
           policy::Reader& reader)
        : node_(node), identifiers_(identifiers), used_(*used), reader_(reader) {}

    std::optional<Expr> Parse() {
        if (!Split()) return std::nullopt;
        if (words_.empty()) return Fail(0, "an empty condition");
        std::optional<Expr> expr = Or(0);
        if (!expr) return std::nullopt;
        if (at_ < words_.size()) return Unexpected();
        return expr;
    }

  private:
    std::nullopt_t Fail(size_t offset, std::string why) {
        policy::Position at = reader_.At(node_);
        // In a text that is quoted or folded over lines the column would be wrong; its start is not.
        if (!node_.quoted) at.column += static_cast<int>(offset);
        reader_.ErrorAt(at, absl::StrCat("condition: ", why));
        return std::nullopt;
    }
    std::nullopt_t Unexpected() {
        if (at_ >= words_.size()) return Fail(node_.value.size(), "it ends where an identifier should stand");
        const Word& word = words_[at_];
        std::string hint;
        if (absl::EqualsIgnoreCase(word.text, "and") || absl::EqualsIgnoreCase(word.text, "or"))
            hint = "; 'and' and 'or' stand between two identifiers, in small letters";
        return Fail(word.offset,
                    absl::StrCat("unexpected '", policy::Reader::Printable(word.text), "'", hint));
    }

    bool Split() {
        const std::string& text = node_.value;
        for (size_t i = 0; i < text.size();) {
            if (absl::ascii_isspace(static_cast<unsigned char>(text[i]))) {
                ++i;
                continue;
            }
            size_t end = i + 1;
            if (text[i] == '|') {
                Fail(i, "aggregations after '|' are no longer Sigma: write a correlation document");
                return false;
            }
            if (IsIdentifierChar(text[i])) {
                while (end < text.size() && IsIdentifierChar(text[end])) ++end;
            } else if (text[i] != '(' && text[i] != ')') {
                Fail(i, absl::StrCat("unexpected character '", policy::Reader::Printable(text.substr(i, 1)),
                                     "'"));
                return false;
            }
            words_.push_back({text.substr(i, end - i), i});
            if (words_.size() > kMaxConditionWords) {
                Fail(i, absl::StrCat("more than ", kMaxConditionWords, " words"));
                return false;
            }
            i = end;
        }
        return true;
    }

    bool Is(absl::string_view text) const { return at_ < words_.size() && words_[at_].text == text; }
    bool Take(absl::string_view text) {
        if (!Is(text)) return false;
        ++at_;
        return true;
    }

    std::optional<Expr> Or(int depth) { return List(depth, "or", Expr::Kind::kOr, &Parser::And); }
    std::optional<Expr> And(int depth) { return List(depth, "and", Expr::Kind::kAnd, &Parser::Unary); }

    std::optional<Expr> List(int depth, absl::string_view word, Expr::Kind kind,
                             std::optional<Expr> (Parser::*next)(int)) {
        Expr list{.kind = kind};
        do {
            std::optional<Expr> each = (this->*next)(depth);
            if (!each) return std::nullopt;
            list.kids.push_back(*std::move(each));
        } while (Take(word));
        if (list.kids.size() > 1) return list;
        Expr only = std::move(list.kids[0]);
        return only;
    }

    std::optional<Expr> Unary(int depth) {
        if (depth > kMaxConditionDepth)
            return Fail(words_[std::min(at_, words_.size() - 1)].offset,
                        absl::StrCat("nested deeper than ", kMaxConditionDepth, " levels"));
        if (Take("not")) {
            std::optional<Expr> inner = Unary(depth + 1);
            if (!inner) return std::nullopt;
            Expr negated{.kind = Expr::Kind::kNot};
            negated.kids.push_back(*std::move(inner));
            return negated;
        }
        if (Take("(")) {
            const size_t opened = words_[at_ - 1].offset;
            std::optional<Expr> inner = Or(depth + 1);
            if (!inner) return std::nullopt;
            if (at_ >= words_.size()) return Fail(opened, "this parenthesis is not closed");
            if (!Take(")")) return Unexpected();
            return inner;
        }
        if (at_ + 1 < words_.size() && words_[at_ + 1].text == "of") return Selector();
        return Identifier();
    }

    std::optional<Expr> Selector() {
        const Word quantifier = words_[at_];
        if (quantifier.text != "1" && quantifier.text != "any" && quantifier.text != "all")
            return Fail(quantifier.offset, absl::StrCat("'", policy::Reader::Printable(quantifier.text),
                                                        " of' is not supported: write '1 of' or 'all of'"));
        at_ += 2;
        if (at_ >= words_.size() || Is("(") || Is(")")) return Unexpected();
        const Word target = words_[at_++];
        const bool them = target.text == "them";
        const Pattern pattern = ParsePattern(target.text);
        Expr list{.kind = quantifier.text == "all" ? Expr::Kind::kAnd : Expr::Kind::kOr};
        for (const auto& [name, expr] : identifiers_) {
            if (them ? name[0] == '_' : pattern.Match(name) != Truth::kYes) continue;
            used_.insert(name);
            list.kids.push_back(expr);
        }
        if (list.kids.empty())
            return Fail(target.offset,
                        absl::StrCat("no search identifier matches '", policy::Reader::Printable(target.text),
                                     "'", policy::Suggest(target.text, Names())));
        return list;
    }

    std::optional<Expr> Identifier() {
        if (at_ >= words_.size()) return Unexpected();
        const Word& word = words_[at_];
        const auto it = identifiers_.find(word.text);
        if (it != identifiers_.end()) {
            ++at_;
            used_.insert(it->first);
            return it->second;
        }
        static constexpr absl::string_view kWords[] = {"and", "or", "of", "(", ")"};
        for (absl::string_view reserved : kWords) {
            if (absl::EqualsIgnoreCase(word.text, reserved)) return Unexpected();
        }
        std::vector<std::string> known = Names();
        known.insert(known.end(), {"and", "or", "not"});
        return Fail(word.offset,
                    absl::StrCat("unknown search identifier '", policy::Reader::Printable(word.text), "'",
                                 policy::Suggest(word.text, known)));
    }

    std::vector<std::string> Names() const {
        std::vector<std::string> names;
        for (const auto& [name, expr] : identifiers_) names.push_back(name);
        return names;
    }

    const YamlNode& node_;
    const std::map<std::string, Expr>& identifiers_;
    std::set<std::string>& used_;
    policy::Reader& reader_;
    std::vector<Word> words_;
    size_t at_ = 0;
};

}  // namespace

std::optional<Expr> ParseCondition(const YamlNode& node, const std::map<std::string, Expr>& identifiers,
                                   std::set<std::string>* used, policy::Reader& reader) {
    if (!reader.Text(node, "condition")) return std::nullopt;
    return Parser(node, identifiers, used, reader).Parse();
}

}  // namespace stockade::detect
