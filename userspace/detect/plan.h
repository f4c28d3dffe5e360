// How the rules for one class of events are found; used by ruleset.cc and plan.cc only.
#pragma once

#include <cmath>
#include <map>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "userspace/detect/ruleset.h"
#include "userspace/detect/text_index.h"

namespace stockade::detect {

struct RuleSet::Node {
    Expr::Kind kind = Expr::Kind::kAnd;
    int atom = -1;
    uint32_t first = 0;  // kids are nodes_[first .. first + count)
    uint32_t count = 0;
};

struct RuleSet::Plan {
    // A predicate of which rules need that it holds.
    struct Needle {
        int atom = -1;
        std::vector<uint32_t> rules;
    };
    // Numbers that a field is asked to be.
    struct Numbers {
        const Field* field = nullptr;
        absl::flat_hash_map<int64_t, int> needles;
    };

    std::vector<uint32_t> rules;   // all of the class
    std::vector<uint32_t> always;  // those that no predicate can stand for
    std::vector<Needle> needles;
    std::vector<std::unique_ptr<TextIndex>> texts;
    std::vector<Numbers> numbers;
    std::vector<int> direct;  // needles that are asked for each event: ranges, addresses, absence
};

// Whole numbers; beyond the bound two that differ could be one to a table.
inline std::optional<int64_t> WholeNumber(long double number) {
    constexpr long double kLargest = 1LL << 62;
    if (std::fabs(number) > kLargest || std::floor(number) != number) return std::nullopt;
    return static_cast<int64_t>(number);
}

// Makes plans; a friend in all but name.
struct RuleSet::Builder {
    RuleSet& set;
    absl::flat_hash_map<std::string, int> atom_ids{};
    std::vector<int> uses{};  // predicate -> how many rules have it
    std::map<std::vector<uint32_t>, uint32_t> known{};  // rules -> their plan

    void AddRules();
    uint32_t AddNode(const Expr& expr, const std::vector<int>& ids);
    void FillNode(uint32_t at, const Expr& expr, const std::vector<int>& ids);
    // Classes of the same rules have one plan.
    uint32_t PlanOf(const EventClass& events);
    void Index(Plan* plan);
    void AddNeedle(Plan* plan, int needle);

    // Predicates of which one must hold for the node to hold (or, negated, not to hold); nullopt where
    // there are none such. `weight`: how telling the worst of them is.
    struct Needed {
        std::vector<int> atoms;
        int weight = 0;
    };
    std::optional<Needed> Required(uint32_t node, bool positive) const;
    int WeightOf(int atom) const;
};

}  // namespace stockade::detect
