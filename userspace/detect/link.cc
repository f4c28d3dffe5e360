#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "userspace/detect/document.h"
#include "userspace/detect/link.h"
#include "userspace/policy/reader.h"

namespace stockade::detect {
namespace {

using policy::Reader;
using policy::Severity;

class Linker {
  public:
    Linker(Documents* documents, std::vector<Diagnostic>& diagnostics)
        : rules_(documents->rules), filters_(documents->filters), diagnostics_(diagnostics) {}

    void Run() {
        FindDuplicates();
        for (const Filter& filter : filters_) Fold(filter);
        for (Rule& rule : rules_) {
            if (rule.correlation) CheckReferences(rule);
        }
        if (!FindCycles()) return;
        for (const Rule& rule : rules_) {
            if (rule.correlation) CheckFields(rule);
        }
    }

  private:
    void Error(const Position& at, std::string message) {
        diagnostics_.push_back({Severity::kError, at, std::move(message)});
    }

    void FindDuplicates() {
        std::map<std::string, Position> ids, names;
        const auto see = [&](std::map<std::string, Position>& seen, const char* what, const std::string& text,
                             const Position& at) {
            if (text.empty()) return;
            const auto [it, added] = seen.emplace(text, at);
            if (!added)
                Error(at, absl::StrCat("duplicate ", what, " '", Reader::Printable(text), "', first at ",
                                       policy::ToString(it->second)));
        };
        for (const Rule& rule : rules_) {
            see(ids, "id", rule.id, rule.at);
            see(names, "name", rule.name, rule.at);
        }
        for (const Filter& filter : filters_) see(ids, "id", filter.id, filter.at);
        for (const Rule& rule : rules_) {
            for (const std::string& key : {rule.id, rule.name}) {
                if (!key.empty()) by_ref_.emplace(key, &rule - rules_.data());
            }
        }
    }

    std::vector<std::string> Known() const {
        std::vector<std::string> words;
        for (const auto& [ref, place] : by_ref_) words.push_back(ref);
        return words;
    }

    Rule* Find(const policy::Entry& ref) {
        const auto it = by_ref_.find(ref.text);
        if (it != by_ref_.end()) return &rules_[static_cast<size_t>(it->second)];
        const std::string nearest = policy::NearestWord(ref.text, Known());
        Error(ref.at,
              absl::StrCat("no rule with the id or name '", Reader::Printable(ref.text), "' in these files",
                           nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?")));
        return nullptr;
    }

    static void Shift(Expr& expr, int by) {
        if (expr.kind == Expr::Kind::kAtom) expr.atom += by;
        for (Expr& kid : expr.kids) Shift(kid, by);
    }

    void FoldInto(const Filter& filter, Rule* rule) {
        Expr added = filter.expr;
        Shift(added, static_cast<int>(rule->atoms.size()));
        if (added.name.empty()) added.name = absl::StrCat("filter ", filter.title);
        rule->atoms.insert(rule->atoms.end(), filter.atoms.begin(), filter.atoms.end());
        Expr both{.kind = Expr::Kind::kAnd};
        both.kids.push_back(std::move(rule->expr));
        both.kids.push_back(std::move(added));
        rule->expr = std::move(both);
        rule->filters.push_back(filter.title);
    }

    void Fold(const Filter& filter) {
        if (filter.expr.kind != Expr::Kind::kNot)
            diagnostics_.push_back({Severity::kWarning, filter.at,
                                    "a filter's condition is added with 'and': to suppress matches of a "
                                    "selection write 'not selection'"});
        if (filter.any) {
            for (Rule& rule : rules_) {
                if (!rule.correlation && Covers(filter.source, rule.source)) FoldInto(filter, &rule);
            }
            return;
        }
        for (const policy::Entry& ref : filter.rules) {
            Rule* rule = Find(ref);
            if (rule == nullptr) continue;
            if (rule->correlation) {
                Error(ref.at, "a filter cannot be applied to a correlation: name its rules");
            } else if (!Covers(filter.source, rule->source)) {
                Error(ref.at, absl::StrCat("the filter is for ", ToString(filter.source), ", this rule for ",
                                           ToString(rule->source)));
            } else {
                FoldInto(filter, rule);
            }
        }
    }

    void CheckReferences(const Rule& rule) {
        std::set<const Rule*> seen;
        for (const policy::Entry& ref : rule.correlation->rules) {
            const Rule* found = Find(ref);
            if (found != nullptr && !seen.insert(found).second)
                Error(ref.at, absl::StrCat("rule '", Reader::Printable(ref.text), "' twice"));
        }
        for (const auto& [alias, fields] : rule.correlation->aliases) {
            for (const auto& [name, field] : fields) {
                bool known = false;
                std::vector<std::string> words;
                for (const policy::Entry& ref : rule.correlation->rules) {
                    words.push_back(ref.text);
                    known = known || ref.text == name;
                }
                if (!known)
                    Error(field.at,
                          absl::StrCat("alias '", Reader::Printable(alias), "': '", Reader::Printable(name),
                                       "' is not among the rules of the correlation",
                                       policy::Suggest(name, words)));
            }
        }
    }

    // False where there are cycles: then fields cannot be looked up.
    bool FindCycles() {
        std::map<const Rule*, int> state;  // 1: being visited, 2: done
        bool fine = true;
        std::function<void(const Rule&)> visit = [&](const Rule& rule) {
            state[&rule] = 1;
            for (const policy::Entry& ref : rule.correlation->rules) {
                const auto it = by_ref_.find(ref.text);
                if (it == by_ref_.end()) continue;
                const Rule& next = rules_[static_cast<size_t>(it->second)];
                if (!next.correlation || state[&next] == 2) continue;
                if (state[&next] == 1) {
                    Error(ref.at, absl::StrCat("this correlation is built on itself, by way of '",
                                               Reader::Printable(ref.text), "'"));
                    fine = false;
                    continue;
                }
                if (++depth_ > kMaxChain) {
                    Error(ref.at, absl::StrCat("a chain of more than ", kMaxChain, " correlations"));
                    fine = false;
                } else {
                    visit(next);
                }
                --depth_;
            }
            state[&rule] = 2;
        };
        for (const Rule& rule : rules_) {
            if (rule.correlation && state[&rule] == 0) visit(rule);
        }
        return fine;
    }

    // Sources of the events that a rule may stand for.
    void Leaves(const Rule& rule, std::vector<const Source*>* out) {
        if (!rule.correlation) return out->push_back(&rule.source);
        for (const policy::Entry& ref : rule.correlation->rules) {
            const auto it = by_ref_.find(ref.text);
            if (it != by_ref_.end()) Leaves(rules_[static_cast<size_t>(it->second)], out);
        }
    }

    void CheckField(const Position& at, const std::string& name, const Rule& rule) {
        std::vector<const Source*> sources;
        Leaves(rule, &sources);
        for (const Source* source : sources) {
            if (*source == Source()) continue;  // of a rule that could not be read
            const Field* field = FindField(*source, name);
            if (field != nullptr && field->kind != Field::Kind::kUnrecorded) continue;
            return Error(at, absl::StrCat("field '", Reader::Printable(name), "' is not in events of ",
                                          ToString(*source), policy::Suggest(name, FieldNames(*source))));
        }
    }

    void CheckFields(const Rule& rule) {
        const Correlation& correlation = *rule.correlation;
        for (const policy::Entry& ref : correlation.rules) {
            const auto it = by_ref_.find(ref.text);
            if (it == by_ref_.end()) continue;
            const Rule& base = rules_[static_cast<size_t>(it->second)];
            for (const std::string& name : correlation.group_by) {
                const auto alias = correlation.aliases.find(name);
                if (alias == correlation.aliases.end()) {
                    CheckField(correlation.group_at, name, base);
                } else if (const auto field = alias->second.find(ref.text); field != alias->second.end()) {
                    CheckField(field->second.at, field->second.text, base);
                } else {
                    Error(correlation.group_at,
                          absl::StrCat("alias '", Reader::Printable(name), "' says nothing about rule '",
                                       Reader::Printable(ref.text), "'"));
                }
            }
            for (const std::string& name : correlation.fields) CheckField(correlation.field_at, name, base);
        }
        for (const auto& [alias, fields] : correlation.aliases) {
            if (std::find(correlation.group_by.begin(), correlation.group_by.end(), alias) ==
                correlation.group_by.end())
                Error(correlation.at,
                      absl::StrCat("alias '", Reader::Printable(alias), "' is not used in group-by"));
        }
    }

    std::vector<Rule>& rules_;
    std::vector<Filter>& filters_;
    std::vector<Diagnostic>& diagnostics_;
    std::map<std::string, std::ptrdiff_t> by_ref_;
    int depth_ = 0;
};

}  // namespace

void Link(Documents* documents, std::vector<Diagnostic>& diagnostics) {
    Linker(documents, diagnostics).Run();
}

}  // namespace stockade::detect
