#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/detect/document.h"

namespace stockade::detect {
namespace {

// 2^12 assignments of truth; conditions with more parts are not looked at.
constexpr size_t kMaxVariables = 12;
// Pairs of values of two lists.
constexpr size_t kMaxPairs = 4096;

bool IsRange(const Predicate& atom) { return atom.op == Predicate::Op::kNumber; }

bool RangesExclude(const Predicate& a, const Predicate& b) {
    // One of the ends, or a step beside one, is in both where anything is: numbers in between are no nearer to a border.
    for (long double at : {a.number, b.number, a.number + 1, a.number - 1, b.number + 1, b.number - 1,
                           (a.number + b.number) / 2}) {
        if (Holds(a.compare, at, a.number) && Holds(b.compare, at, b.number)) return false;
    }
    return true;
}

bool IsPrefix(const Pattern& p) {
    return p.parts().size() == 2 && p.parts()[0].piece == Pattern::Piece::kText &&
           p.parts()[1].piece == Pattern::Piece::kAny;
}
bool IsSuffix(const Pattern& p) {
    return p.parts().size() == 2 && p.parts()[0].piece == Pattern::Piece::kAny &&
           p.parts()[1].piece == Pattern::Piece::kText;
}

bool PatternsExclude(const Predicate& a, const Predicate& b) {
    if (a.cased != b.cased) return false;
    if (!a.pattern.HasWildcard()) return b.pattern.Match(a.pattern.Plain()) == Truth::kNo;
    if (!b.pattern.HasWildcard()) return a.pattern.Match(b.pattern.Plain()) == Truth::kNo;
    const std::string x = a.pattern.Plain(), y = b.pattern.Plain();
    if (IsPrefix(a.pattern) && IsPrefix(b.pattern)) return !absl::StartsWith(x, y) && !absl::StartsWith(y, x);
    if (IsSuffix(a.pattern) && IsSuffix(b.pattern)) return !absl::EndsWith(x, y) && !absl::EndsWith(y, x);
    return false;
}

bool NeedsAbsence(const Predicate& atom) {
    return atom.op == Predicate::Op::kNull || (atom.op == Predicate::Op::kExists && !atom.exists);
}

// Whether one field has one value at a time.
bool IsSingle(const Field& field) {
    if (field.user) return false;
    for (size_t i = 0; i < field.steps.size(); ++i) {
        if (field.steps[i]->is_repeated() && !field.steps[i]->is_map() &&
            !(field.joined && i + 1 == field.steps.size()) && !field.first_only)
            return false;
    }
    return true;
}

// Sure that both cannot be so. Where in doubt, false.
bool Exclude(const Predicate& a, const Predicate& b) {
    if (a.field == nullptr || a.field != b.field) return false;
    if (NeedsAbsence(a) != NeedsAbsence(b)) return true;
    if (!IsSingle(*a.field)) return false;
    if (a.op == Predicate::Op::kPattern && b.op == Predicate::Op::kPattern) return PatternsExclude(a, b);
    return IsRange(a) && IsRange(b) && RangesExclude(a, b);
}

// A part of a condition that is true or false by itself: one atom, or a list of values.
struct Variable {
    const Expr* expr = nullptr;
    std::vector<const Predicate*> atoms{};
    bool all = false;
};

class Checker {
  public:
    Checker(const Rule& rule, std::vector<Diagnostic>& diagnostics)
        : rule_(rule), diagnostics_(diagnostics) {}

    void Check() {
        Collect(rule_.expr);
        if (variables_.empty() || variables_.size() > kMaxVariables) return;
        FindExclusions();
        bool ever = false, always = true;
        for (uint32_t assignment = 0; assignment < 1u << variables_.size(); ++assignment) {
            if (!Allowed(assignment)) continue;
            const bool holds = Holds(rule_.expr, assignment);
            ever = ever || holds;
            always = always && holds;
        }
        if (!ever) Error("this condition can never hold", Culprits());
        if (ever && always) Error("this condition holds for every event", "");
    }

  private:
    void Error(const char* what, const std::string& why) {
        diagnostics_.push_back({policy::Severity::kError, rule_.condition_at, absl::StrCat(what, why)});
    }

    static bool IsValues(const Expr& expr) {
        if (expr.kind != Expr::Kind::kAnd && expr.kind != Expr::Kind::kOr) return false;
        for (const Expr& kid : expr.kids) {
            if (kid.kind != Expr::Kind::kAtom) return false;
        }
        return true;
    }

    std::string KeyOf(const Expr& expr) const {
        if (expr.kind == Expr::Kind::kAtom) return rule_.atoms[static_cast<size_t>(expr.atom)].Key();
        if (expr.kids.size() == 1) return KeyOf(expr.kids[0]);
        std::string key = expr.kind == Expr::Kind::kAnd ? "all" : "any";
        for (const Expr& kid : expr.kids) absl::StrAppend(&key, "\n", KeyOf(kid));
        return key;
    }

    void Collect(const Expr& expr) {
        if (variables_.size() > kMaxVariables) return;
        if (expr.kind != Expr::Kind::kAtom && !IsValues(expr)) {
            for (const Expr& kid : expr.kids) Collect(kid);
            return;
        }
        const auto [it, added] = index_.emplace(KeyOf(expr), variables_.size());
        places_[&expr] = it->second;
        if (!added) return;
        Variable variable{.expr = &expr, .all = expr.kind == Expr::Kind::kAnd && expr.kids.size() > 1};
        if (expr.kind == Expr::Kind::kAtom)
            variable.atoms.push_back(&rule_.atoms[static_cast<size_t>(expr.atom)]);
        for (const Expr& kid : expr.kids)
            variable.atoms.push_back(&rule_.atoms[static_cast<size_t>(kid.atom)]);
        variables_.push_back(std::move(variable));
    }

    // Of two lists: no value of one goes with any that the other needs.
    static bool Exclude(const Variable& a, const Variable& b) {
        if (a.atoms.size() * b.atoms.size() > kMaxPairs) return false;
        const auto against_all = [&](const Predicate& one) {
            for (const Predicate* other : b.atoms) {
                const bool excluded = detect::Exclude(one, *other);
                if (b.all && excluded) return true;
                if (!b.all && !excluded) return false;
            }
            return !b.all;
        };
        for (const Predicate* one : a.atoms) {
            const bool excluded = against_all(*one);
            if (a.all && excluded) return true;
            if (!a.all && !excluded) return false;
        }
        return !a.all;
    }

    void FindExclusions() {
        for (size_t i = 0; i < variables_.size(); ++i) {
            if (variables_[i].all && Exclude(variables_[i], variables_[i])) exclusions_.emplace_back(i, i);
            for (size_t j = 0; j < i; ++j) {
                if (Exclude(variables_[i], variables_[j])) exclusions_.emplace_back(i, j);
            }
        }
    }

    bool Allowed(uint32_t assignment) const {
        for (const auto& [i, j] : exclusions_) {
            if ((assignment >> i & 1) && (assignment >> j & 1)) return false;
        }
        return true;
    }

    bool Holds(const Expr& expr, uint32_t assignment) const {
        if (const auto it = places_.find(&expr); it != places_.end()) return assignment >> it->second & 1;
        if (expr.kind == Expr::Kind::kNot) return !Holds(expr.kids[0], assignment);
        const bool all = expr.kind == Expr::Kind::kAnd;
        for (const Expr& kid : expr.kids) {
            if (Holds(kid, assignment) != all) return !all;
        }
        return all;
    }

    std::string Culprits() const {
        std::vector<std::string> pairs;
        for (const auto& [i, j] : exclusions_)
            pairs.push_back(absl::StrCat("'", variables_[j].atoms[0]->written, "' and '",
                                         variables_[i].atoms.back()->written, "'"));
        if (pairs.empty()) return "";
        pairs.resize(std::min<size_t>(pairs.size(), 3));
        return absl::StrCat(": both cannot be: ", absl::StrJoin(pairs, "; "));
    }

    const Rule& rule_;
    std::vector<Diagnostic>& diagnostics_;
    std::vector<Variable> variables_;
    std::map<std::string, size_t> index_;
    std::map<const Expr*, size_t> places_;
    std::vector<std::pair<size_t, size_t>> exclusions_;
};

}  // namespace

void CheckPossible(const Rule& rule, std::vector<Diagnostic>& diagnostics) {
    if (!rule.correlation && !rule.atoms.empty()) Checker(rule, diagnostics).Check();
}

}  // namespace stockade::detect
