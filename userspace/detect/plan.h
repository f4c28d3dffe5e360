// How the rules for one kind of event are found; used by ruleset.cc and plan.cc only.
#pragma once

#include <re2/filtered_re2.h>

#include <optional>

#include "absl/container/flat_hash_map.h"
#include "userspace/detect/ruleset.h"

namespace stockade::detect {

struct RuleSet::Node {
    Expr::Kind kind = Expr::Kind::kAnd;
    int atom = -1;
    uint32_t first = 0;  // kids are nodes_[first .. first + count)
    uint32_t count = 0;
};

struct RuleSet::Plan {
    std::vector<uint32_t> rules;       // all of the payload
    std::vector<uint32_t> always;      // those that no predicate can stand for
    std::vector<const Field*> fields;  // all that may have holes
    std::vector<const Field*> scanned;
    bool keywords = false;
    std::unique_ptr<LiteralScanner> scanner;
    std::vector<std::vector<int>> atoms_of_literal;  // literal -> predicates that need it
    std::vector<int> regex_literal;                  // literal -> its number among `regexes`' atoms, or -1
    std::unique_ptr<re2::FilteredRE2> regexes;
    std::vector<int> regex_atoms;  // number in `regexes` -> predicate
    std::vector<int> direct;       // predicates asked for each event: numbers, addresses, absence
    absl::flat_hash_map<int, std::vector<uint32_t>> rules_of_atom;
    size_t literals = 0;
    bool scan_failed = false;
};

// Makes plans; a friend in all but name.
struct RuleSet::Builder {
    RuleSet& set;
    absl::flat_hash_map<std::string, int> atom_ids{};
    std::vector<int> uses{};  // predicate -> how many rules have it

    void AddRules();
    uint32_t AddNode(const Expr& expr, const std::vector<int>& ids);
    void FillNode(uint32_t at, const Expr& expr, const std::vector<int>& ids);
    std::unique_ptr<Plan> MakePlan(v1::Event::PayloadCase payload, bool prefilter);
    void CollectFields(Plan* plan);
    void Index(Plan* plan);
    void AddScanner(Plan* plan, const std::vector<int>& atoms);

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
