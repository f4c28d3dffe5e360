// All rules compiled together: what an event matches, at a cost that grows far slower than their number.
//
//   auto set = RuleSet::Create(std::move(parsed.rules));
//   set->Match(view, &hits);
//
// Predicates that several rules share are asked once. A rule is looked at only when one of the predicates
// without which it cannot match holds; which of those do is found by tables and by one pass over each text.
#pragma once

#include <memory>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/detect/rule.h"
#include "userspace/detect/text_index.h"
#include "userspace/detect/truth.h"
#include "userspace/detect/view.h"

namespace stockade::detect {

struct Hit {
    size_t rule = 0;
    Truth truth = Truth::kYes;  // never kNo
    bool operator==(const Hit&) const = default;
};

struct RuleSetOptions {
    bool prefilter = true;  // without it every rule of a source is looked at for each event
};

class RuleSet {
  public:
    using Options = RuleSetOptions;
    struct Counters {
        uint64_t events = 0;
        uint64_t evaluated = 0;   // rules looked at
        // Events of which each needed predicate of a field was asked: its value had a hole, or scanning failed.
        uint64_t unfiltered = 0;
    };
    // The rules must come from ParseRules without errors. A scanner that cannot be made is no failure:
    // predicates are asked one by one then, and unfiltered tells.
    static std::unique_ptr<RuleSet> Create(std::vector<Rule> rules, const Options& options);
    static std::unique_ptr<RuleSet> Create(std::vector<Rule> rules) {
        return Create(std::move(rules), Options{});
    }
    ~RuleSet();

    const std::vector<Rule>& rules() const { return rules_; }
    // Rules that match or are undecidable, by place; correlations are not among them. One thread.
    void Match(EventView& view, std::vector<Hit>* hits);
    const Counters& counters() const { return counters_; }
    // Distinct predicates, and bytes of the scanners.
    size_t predicates() const { return atoms_.size(); }
    size_t scanner_bytes() const;

  private:
    struct Node;
    struct Plan;
    struct Builder;

    static constexpr uint32_t kNoPlan = UINT32_MAX;

    RuleSet() = default;
    Truth Ask(int atom, EventView& view);
    Truth Run(uint32_t node, EventView& view);
    void FindCandidates(Plan& plan, EventView& view);
    void FindByText(Plan& plan, EventView& view);
    void FindByNumber(const Plan& plan, EventView& view);
    void Try(const Plan& plan, int needle, bool sure, EventView& view);
    void Judge(uint32_t rule, EventView& view, std::vector<Hit>* hits);

    std::vector<Rule> rules_;
    bool prefilter_ = true;
    std::vector<const Predicate*> atoms_;
    std::vector<Node> nodes_;
    std::vector<uint32_t> roots_;  // by rule; UINT32_MAX for correlations
    std::vector<std::unique_ptr<Plan>> plans_;
    std::vector<uint32_t> plan_of_class_;  // kNoPlan where there are no rules
    Counters counters_;
    // Of the event at hand. An answer is valid where its stamp is that of the event.
    uint64_t stamp_ = 0;
    struct Answer {
        uint64_t stamp = 0;
        Truth truth = Truth::kNo;
    };
    std::vector<Answer> answers_;
    std::vector<uint64_t> marked_;
    std::vector<uint32_t> candidates_;
    std::vector<TextIndex::Candidate> found_;
};

}  // namespace stockade::detect
