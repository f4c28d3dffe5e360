#include "userspace/detect/ruleset.h"

#include <algorithm>

#include "userspace/detect/evaluate.h"
#include "userspace/detect/plan.h"

namespace stockade::detect {
RuleSet::~RuleSet() = default;

std::unique_ptr<RuleSet> RuleSet::Create(std::vector<Rule> rules, const Options& options) {
    std::unique_ptr<RuleSet> set(new RuleSet);
    set->rules_ = std::move(rules);
    set->prefilter_ = options.prefilter;
    Builder builder{*set};
    builder.AddRules();
    for (const EventClass& events : EventClasses()) set->plan_of_class_.push_back(builder.PlanOf(events));
    return set;
}

size_t RuleSet::scanner_bytes() const {
    size_t bytes = 0;
    for (const auto& plan : plans_) {
        for (const auto& text : plan->texts) bytes += text->scanner_bytes();
    }
    return bytes;
}

Truth RuleSet::Ask(int atom, EventView& view) {
    Answer& answer = answers_[static_cast<size_t>(atom)];
    if (answer.stamp == stamp_) return answer.truth;
    answer.stamp = stamp_;
    return answer.truth = Evaluate(*atoms_[static_cast<size_t>(atom)], view);
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

void RuleSet::Try(const Plan& plan, int needle, bool sure, EventView& view) {
    const Plan::Needle& needed = plan.needles[static_cast<size_t>(needle)];
    if (sure) {
        answers_[static_cast<size_t>(needed.atom)] = {stamp_, Truth::kYes};
    } else if (Ask(needed.atom, view) == Truth::kNo) {
        return;
    }
    for (uint32_t rule : needed.rules) {
        if (marked_[rule] == stamp_) continue;
        marked_[rule] = stamp_;
        candidates_.push_back(rule);
    }
}

void RuleSet::FindByText(Plan& plan, EventView& view) {
    bool unfiltered = false;
    for (const auto& text : plan.texts) {
        const FieldValue& value = text->field() == nullptr ? view.Keywords() : view.Get(*text->field());
        found_.clear();
        if (text->Find(value, &found_)) {
            for (const TextIndex::Candidate& each : found_) Try(plan, each.needle, each.sure, view);
        } else {
            unfiltered = true;
            for (int needle : text->needles()) Try(plan, needle, false, view);
        }
    }
    counters_.unfiltered += unfiltered;
}

void RuleSet::FindByNumber(const Plan& plan, EventView& view) {
    for (const Plan::Numbers& numbers : plan.numbers) {
        for (long double number : view.Get(*numbers.field).numbers) {
            const std::optional<int64_t> whole = WholeNumber(number);
            const auto it = whole ? numbers.needles.find(*whole) : numbers.needles.end();
            if (it != numbers.needles.end()) Try(plan, it->second, true, view);
        }
    }
}

void RuleSet::FindCandidates(Plan& plan, EventView& view) {
    FindByText(plan, view);
    FindByNumber(plan, view);
    for (int needle : plan.direct) Try(plan, needle, false, view);
    candidates_.insert(candidates_.end(), plan.always.begin(), plan.always.end());
    // In the order of the rules, as findings are told.
    std::sort(candidates_.begin(), candidates_.end());
}

void RuleSet::Judge(uint32_t rule, EventView& view, std::vector<Hit>* hits) {
    ++counters_.evaluated;
    const Truth truth = Run(roots_[rule], view);
    if (truth != Truth::kNo) hits->push_back({rule, truth});
}

void RuleSet::Match(EventView& view, std::vector<Hit>* hits) {
    ++counters_.events;
    ++stamp_;
    const size_t events = ClassOf(view.event());
    if (events >= plan_of_class_.size() || plan_of_class_[events] == kNoPlan) return;
    Plan& plan = *plans_[plan_of_class_[events]];
    candidates_.clear();
    if (prefilter_) FindCandidates(plan, view);
    for (uint32_t rule : prefilter_ ? candidates_ : plan.rules) Judge(rule, view, hits);
}

}  // namespace stockade::detect
