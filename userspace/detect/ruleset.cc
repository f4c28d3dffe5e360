#include "userspace/detect/ruleset.h"

#include <algorithm>

#include "userspace/detect/evaluate.h"
#include "userspace/detect/plan.h"

namespace stockade::detect {
namespace {

// Stands between the texts of two fields in the buffer: a text that runs over it is looked at and found wanting.
constexpr char kBetween = '\n';

size_t LastPayload() {
    size_t last = 0;
    const auto* payload = v1::Event::descriptor()->FindOneofByName("payload");
    for (int i = 0; i < payload->field_count(); ++i)
        last = std::max(last, static_cast<size_t>(payload->field(i)->number()));
    return last;
}

}  // namespace

RuleSet::~RuleSet() = default;

std::unique_ptr<RuleSet> RuleSet::Create(std::vector<Rule> rules, const Options& options) {
    std::unique_ptr<RuleSet> set(new RuleSet);
    set->rules_ = std::move(rules);
    Builder builder{*set};
    builder.AddRules();
    set->plans_.resize(LastPayload() + 1);
    const auto* payload = v1::Event::descriptor()->FindOneofByName("payload");
    for (int i = 0; i < payload->field_count(); ++i) {
        const int number = payload->field(i)->number();
        set->plans_[static_cast<size_t>(number)] =
            builder.MakePlan(static_cast<v1::Event::PayloadCase>(number), options.prefilter);
    }
    set->source_fits_.resize(set->sources_.size());
    return set;
}

size_t RuleSet::scanner_bytes() const {
    size_t bytes = 0;
    for (const auto& plan : plans_)
        bytes += plan != nullptr && plan->scanner != nullptr ? plan->scanner->bytes() : 0;
    return bytes;
}

Truth RuleSet::Ask(int atom, EventView& view) {
    auto& [stamp, truth] = answers_[static_cast<size_t>(atom)];
    if (stamp == stamp_) return truth;
    stamp = stamp_;
    return truth = Evaluate(*atoms_[static_cast<size_t>(atom)], view);
}

Truth RuleSet::Run(uint32_t at, EventView& view) {
    const Node& node = nodes_[at];
    if (node.kind == Expr::Kind::kAtom) return Ask(node.atom, view);
    if (node.kind == Expr::Kind::kNot) return Not(Run(node.first, view));
    const bool all = node.kind == Expr::Kind::kAnd;
    const Truth decided = all ? Truth::kNo : Truth::kYes;
    Truth truth = Not(decided);
    for (uint32_t i = 0; i < node.count && truth != decided; ++i) {
        const Truth each = Run(node.first + i, view);
        truth = all ? And(truth, each) : Or(truth, each);
    }
    return truth;
}

bool RuleSet::HasHoles(const Plan& plan, EventView& view) const {
    for (const Field* field : plan.fields) {
        if (view.Get(*field).HasHole()) return true;
    }
    return plan.keywords && view.Keywords().HasHole();
}

void RuleSet::Mark(const Plan& plan, int atom) {
    const auto it = plan.rules_of_atom.find(atom);
    if (it == plan.rules_of_atom.end()) return;
    for (uint32_t rule : it->second) {
        if (marked_[rule] == stamp_) continue;
        marked_[rule] = stamp_;
        candidates_.push_back(rule);
    }
}

bool RuleSet::FindCandidates(Plan& plan, EventView& view) {
    found_.clear();
    if (plan.scanner != nullptr) {
        buffer_.clear();
        for (const Field* field : plan.scanned) {
            for (const Text& text : view.Get(*field).texts) (buffer_ += text.folded) += kBetween;
        }
        if (plan.keywords) {
            for (const Text& text : view.Keywords().texts) (buffer_ += text.folded) += kBetween;
        }
        if (!plan.scanner->Scan(buffer_, &found_)) return false;
    }
    const auto try_atom = [&](int atom) {
        if (Ask(atom, view) != Truth::kNo) Mark(plan, atom);
    };
    regex_found_.clear();
    for (int literal : found_) {
        for (int atom : plan.atoms_of_literal[static_cast<size_t>(literal)]) try_atom(atom);
        if (const int number = plan.regex_literal[static_cast<size_t>(literal)]; number >= 0)
            regex_found_.push_back(number);
    }
    if (plan.regexes != nullptr) {
        regex_atoms_.clear();
        plan.regexes->AllPotentials(regex_found_, &regex_atoms_);
        for (int number : regex_atoms_) try_atom(plan.regex_atoms[static_cast<size_t>(number)]);
    }
    for (int atom : plan.direct) try_atom(atom);
    candidates_.insert(candidates_.end(), plan.always.begin(), plan.always.end());
    return true;
}

void RuleSet::Judge(uint32_t rule, EventView& view, std::vector<Hit>* hits) {
    if (!source_fits_[source_ids_[rule]]) return;
    ++counters_.evaluated;
    const Truth truth = Run(roots_[rule], view);
    if (truth != Truth::kNo) hits->push_back({rule, truth});
}

void RuleSet::Match(EventView& view, std::vector<Hit>* hits) {
    ++counters_.events;
    ++stamp_;
    const auto payload = static_cast<size_t>(view.event().payload_case());
    if (payload >= plans_.size() || plans_[payload] == nullptr || plans_[payload]->rules.empty()) return;
    Plan& plan = *plans_[payload];
    for (size_t i = 0; i < sources_.size(); ++i) source_fits_[i] = Belongs(sources_[i], view.event());
    candidates_.clear();
    if (plan.scan_failed || HasHoles(plan, view) || !FindCandidates(plan, view)) {
        ++counters_.unfiltered;
        for (uint32_t rule : plan.rules) Judge(rule, view, hits);
        return;
    }
    std::sort(candidates_.begin(), candidates_.end());
    for (uint32_t rule : candidates_) Judge(rule, view, hits);
}

}  // namespace stockade::detect
