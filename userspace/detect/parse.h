// YAML files to rules: every error with file, line and column, and the nearest right word.
//
//   ParsedRules parsed = ParseRules({{"my.yaml", text}});
//   if (!HasErrors(parsed.diagnostics)) RuleSet::Create(parsed.rules)
#pragma once

#include <string>
#include <vector>

#include "userspace/detect/rule.h"
#include "userspace/policy/parse.h"

namespace stockade::detect {

// SigmaHQ has 4,000 in all.
inline constexpr size_t kMaxRules = 20'000;
// Predicates of one rule, expansions counted. Lists of addresses and names are that long at most.
inline constexpr size_t kMaxAtoms = 20'000;
// Each item of a list of maps costs a node per event; more is no rule but a table.
inline constexpr size_t kMaxExprNodes = 100'000;

struct ParsedRules {
    std::vector<Rule> rules;
    std::vector<Diagnostic> diagnostics;  // sorted by file as given, then line and column
};

// Filters are folded into the rules they name; correlations are checked against the rules they name.
ParsedRules ParseRules(const std::vector<policy::SourceFile>& files);

// Words that the parser takes, for the JSON Schema's test.
std::vector<std::string> TopLevelKeys();

}  // namespace stockade::detect
