#include "userspace/detect/plan.h"

#include <re2/re2.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/match.h"
#include "userspace/detect/text.h"

namespace stockade::detect {
namespace {

// Shorter ones stand in every second text; RE2's own default for its atoms.
constexpr int kMinRegexAtom = 3;
// How telling a predicate without a text is: less than a word, more than a letter or two.
constexpr size_t kPlainWeight = 3;
// Beyond it a text tells no more.
constexpr size_t kEnoughText = 16;
// What is scanned for of a longer text: enough to be rare, and within what Vectorscan takes.
constexpr size_t kMaxScanned = 64;
// What each doubling of the number of rules takes away, in letters.
constexpr int kCommonWeight = 3;

bool NeedsText(const Predicate& atom) {
    return atom.op == Predicate::Op::kPattern && !atom.pattern.LongestText().empty();
}

bool IsUnrecorded(const Field* field) { return field != nullptr && field->kind == Field::Kind::kUnrecorded; }

// RE2 folds the texts it looks for by Unicode, we by a table that is nearly that: beyond ASCII none is left out.
bool CanFilter(const re2::RE2& regex) {
    const std::string& text = regex.pattern();
    return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; }) &&
           !absl::StrContains(text, "\\x");
}

}  // namespace

void RuleSet::Builder::AddRules() {
    for (const Rule& rule : set.rules_) {
        std::vector<int> ids;
        for (const Predicate& atom : rule.atoms) {
            const auto [it, added] = atom_ids.emplace(atom.Key(), static_cast<int>(set.atoms_.size()));
            if (added) set.atoms_.push_back(&atom);
            if (added) uses.push_back(0);
            ++uses[static_cast<size_t>(it->second)];
            ids.push_back(it->second);
        }
        const auto source = std::find(set.sources_.begin(), set.sources_.end(), rule.source);
        set.source_ids_.push_back(static_cast<uint32_t>(source - set.sources_.begin()));
        if (source == set.sources_.end()) set.sources_.push_back(rule.source);
        set.roots_.push_back(rule.correlation ? UINT32_MAX : AddNode(rule.expr, ids));
    }
    set.answers_.resize(set.atoms_.size());
    set.marked_.resize(set.rules_.size());
}

uint32_t RuleSet::Builder::AddNode(const Expr& expr, const std::vector<int>& ids) {
    const auto at = static_cast<uint32_t>(set.nodes_.size());
    set.nodes_.emplace_back();
    FillNode(at, expr, ids);
    return at;
}

void RuleSet::Builder::FillNode(uint32_t at, const Expr& expr, const std::vector<int>& ids) {
    if (expr.kind != Expr::Kind::kAtom && expr.kind != Expr::Kind::kNot && expr.kids.size() == 1)
        return FillNode(at, expr.kids[0], ids);
    Node node{.kind = expr.kind};
    if (expr.kind == Expr::Kind::kAtom) node.atom = ids[static_cast<size_t>(expr.atom)];
    node.first = static_cast<uint32_t>(set.nodes_.size());
    node.count = static_cast<uint32_t>(expr.kids.size());
    set.nodes_.resize(set.nodes_.size() + expr.kids.size());
    set.nodes_[at] = node;
    for (uint32_t i = 0; i < node.count; ++i) FillNode(node.first + i, expr.kids[i], ids);
}

// A long text is rarer than a short one; and what many rules look for is what many events have.
int RuleSet::Builder::WeightOf(int atom) const {
    const Predicate& predicate = *set.atoms_[static_cast<size_t>(atom)];
    const size_t size = NeedsText(predicate) ? predicate.pattern.LongestText().size() : kPlainWeight;
    const auto common =
        static_cast<int>(std::bit_width(static_cast<unsigned>(uses[static_cast<size_t>(atom)])));
    return static_cast<int>(std::min(size, kEnoughText)) - kCommonWeight * common;
}

std::optional<RuleSet::Builder::Needed> RuleSet::Builder::Required(uint32_t at, bool positive) const {
    const Node& node = set.nodes_[at];
    if (node.kind == Expr::Kind::kNot) return Required(node.first, !positive);
    if (node.kind == Expr::Kind::kAtom) {
        // What is always undecidable can hold without anything being there.
        const Predicate& atom = *set.atoms_[static_cast<size_t>(node.atom)];
        if (!positive || IsUnrecorded(atom.field) || IsUnrecorded(atom.other)) return std::nullopt;
        return Needed{{node.atom}, WeightOf(node.atom)};
    }
    const bool all = (node.kind == Expr::Kind::kAnd) == positive;
    std::optional<Needed> best;
    for (uint32_t i = 0; i < node.count; ++i) {
        std::optional<Needed> each = Required(node.first + i, positive);
        if (!all && !each) return std::nullopt;
        if (!each) continue;
        if (!best) {
            best = std::move(each);
        } else if (all) {
            const bool better = std::pair(each->weight, -static_cast<int>(each->atoms.size())) >
                                std::pair(best->weight, -static_cast<int>(best->atoms.size()));
            if (better) best = std::move(each);
        } else {
            best->atoms.insert(best->atoms.end(), each->atoms.begin(), each->atoms.end());
            best->weight = std::min(best->weight, each->weight);
        }
    }
    return best;
}

void RuleSet::Builder::CollectFields(Plan* plan) {
    std::vector<uint32_t> nodes;
    for (uint32_t rule : plan->rules) nodes.push_back(set.roots_[rule]);
    const auto add = [&](const Field* field) {
        const bool text = field != nullptr && field->kind == Field::Kind::kText;
        if (text && std::find(plan->fields.begin(), plan->fields.end(), field) == plan->fields.end())
            plan->fields.push_back(field);
    };
    while (!nodes.empty()) {
        const Node& node = set.nodes_[nodes.back()];
        nodes.pop_back();
        for (uint32_t i = 0; i < node.count; ++i) nodes.push_back(node.first + i);
        if (node.kind != Expr::Kind::kAtom) continue;
        const Predicate& atom = *set.atoms_[static_cast<size_t>(node.atom)];
        add(atom.field);
        add(atom.other);
        if (atom.field == nullptr) plan->keywords = true;
    }
}

void RuleSet::Builder::AddScanner(Plan* plan, const std::vector<int>& atoms) {
    absl::flat_hash_map<std::string, int> ids;
    std::vector<std::string> texts;
    const auto literal = [&](const std::string& text) {
        const auto [it, added] = ids.emplace(text, static_cast<int>(texts.size()));
        if (added) {
            texts.push_back(text);
            plan->atoms_of_literal.emplace_back();
            plan->regex_literal.push_back(-1);
        }
        return static_cast<size_t>(it->second);
    };
    const auto scan = [&](const Field* field) {
        if (field != nullptr &&
            std::find(plan->scanned.begin(), plan->scanned.end(), field) == plan->scanned.end())
            plan->scanned.push_back(field);
    };
    auto regexes = std::make_unique<re2::FilteredRE2>(kMinRegexAtom);
    for (int id : atoms) {
        const Predicate& atom = *set.atoms_[static_cast<size_t>(id)];
        if (NeedsText(atom)) {
            plan->atoms_of_literal[literal(Folded(atom.pattern.LongestText()).substr(0, kMaxScanned))]
                .push_back(id);
            scan(atom.field);
            continue;
        }
        int number = -1;
        re2::RE2::Options options;
        options.set_log_errors(false);
        if (atom.op == Predicate::Op::kRegex && CanFilter(*atom.regex) &&
            regexes->Add(atom.regex->pattern(), options, &number) == re2::RE2::NoError) {
            plan->regex_atoms.push_back(id);
            scan(atom.field);
        } else {
            plan->direct.push_back(id);
        }
    }
    if (!plan->regex_atoms.empty()) {
        std::vector<std::string> needed;
        regexes->Compile(&needed);
        for (size_t i = 0; i < needed.size(); ++i)
            plan->regex_literal[literal(needed[i])] = static_cast<int>(i);
        plan->regexes = std::move(regexes);
    }
    plan->literals = texts.size();
    if (texts.empty()) return;
    StatusOr<std::unique_ptr<LiteralScanner>> scanner = LiteralScanner::Create(texts);
    plan->scan_failed = !scanner.ok();
    if (scanner.ok()) plan->scanner = *std::move(scanner);
}

void RuleSet::Builder::Index(Plan* plan) {
    std::vector<int> atoms;
    for (uint32_t rule : plan->rules) {
        std::optional<Needed> needed = Required(set.roots_[rule], true);
        if (!needed) {
            plan->always.push_back(rule);
            continue;
        }
        for (int atom : needed->atoms) {
            std::vector<uint32_t>& users = plan->rules_of_atom[atom];
            if (users.empty()) atoms.push_back(atom);
            if (users.empty() || users.back() != rule) users.push_back(rule);
        }
    }
    AddScanner(plan, atoms);
}

std::unique_ptr<RuleSet::Plan> RuleSet::Builder::MakePlan(v1::Event::PayloadCase payload, bool prefilter) {
    auto plan = std::make_unique<Plan>();
    for (uint32_t rule = 0; rule < set.rules_.size(); ++rule) {
        if (set.rules_[rule].correlation) continue;
        const std::vector<v1::Event::PayloadCase> payloads = PayloadsOf(set.rules_[rule].source);
        if (payloads.empty() || std::find(payloads.begin(), payloads.end(), payload) != payloads.end())
            plan->rules.push_back(rule);
    }
    CollectFields(plan.get());
    plan->scan_failed = !prefilter;
    if (prefilter) Index(plan.get());
    return plan;
}

}  // namespace stockade::detect
