#include "userspace/detect/plan.h"

#include <algorithm>
#include <bit>

namespace stockade::detect {
namespace {

// How telling a predicate without a text is: less than a word, more than a letter or two.
constexpr size_t kPlainWeight = 3;
// Beyond it a text tells no more.
constexpr size_t kEnoughText = 16;
// What each doubling of the number of rules takes away, in letters.
constexpr int kCommonWeight = 3;

bool NeedsText(const Predicate& atom) {
    return atom.op == Predicate::Op::kPattern && !atom.pattern.LongestText().empty();
}

bool IsUnrecorded(const Field* field) { return field != nullptr && field->kind == Field::Kind::kUnrecorded; }

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

void RuleSet::Builder::AddNeedle(Plan* plan, int needle) {
    const int id = plan->needles[static_cast<size_t>(needle)].atom;
    const Predicate& atom = *set.atoms_[static_cast<size_t>(id)];
    const bool number = atom.op == Predicate::Op::kNumber && atom.compare == Compare::kEq &&
                        atom.field->kind == Field::Kind::kNumber;
    if (const std::optional<int64_t> wanted = WholeNumber(atom.number); number && wanted) {
        auto at = std::find_if(plan->numbers.begin(), plan->numbers.end(),
                               [&](const Plan::Numbers& each) { return each.field == atom.field; });
        if (at == plan->numbers.end()) at = plan->numbers.insert(at, {.field = atom.field, .needles = {}});
        if (at->needles.emplace(*wanted, needle).second) return;
    }
    const bool text = atom.op == Predicate::Op::kPattern || atom.op == Predicate::Op::kRegex;
    if (!text) return plan->direct.push_back(needle);
    auto at = std::find_if(plan->texts.begin(), plan->texts.end(),
                           [&](const auto& each) { return each->field() == atom.field; });
    if (at == plan->texts.end()) at = plan->texts.insert(at, std::make_unique<TextIndex>(atom.field));
    if (!(*at)->Add(needle, atom)) plan->direct.push_back(needle);
}

void RuleSet::Builder::Index(Plan* plan) {
    absl::flat_hash_map<int, size_t> of_atom;
    for (uint32_t rule : plan->rules) {
        std::optional<Needed> needed = Required(set.roots_[rule], true);
        if (!needed) {
            plan->always.push_back(rule);
            continue;
        }
        for (int atom : needed->atoms) {
            const auto [it, added] = of_atom.emplace(atom, plan->needles.size());
            if (added) plan->needles.push_back({.atom = atom, .rules = {}});
            std::vector<uint32_t>& rules = plan->needles[it->second].rules;
            if (rules.empty() || rules.back() != rule) rules.push_back(rule);
        }
    }
    for (size_t i = 0; i < plan->needles.size(); ++i) AddNeedle(plan, static_cast<int>(i));
    for (const auto& text : plan->texts) text->Build();
}

uint32_t RuleSet::Builder::PlanOf(const EventClass& events) {
    std::vector<uint32_t> rules;
    for (uint32_t rule = 0; rule < set.rules_.size(); ++rule) {
        if (!set.rules_[rule].correlation && Belongs(set.rules_[rule].source, events)) rules.push_back(rule);
    }
    if (rules.empty()) return kNoPlan;
    const auto [it, added] = known.emplace(rules, static_cast<uint32_t>(set.plans_.size()));
    if (!added) return it->second;
    auto plan = std::make_unique<Plan>();
    plan->rules = std::move(rules);
    if (set.prefilter_) Index(plan.get());
    set.plans_.push_back(std::move(plan));
    return it->second;
}

}  // namespace stockade::detect
