// A Sigma condition: and, or, not, parentheses, "1 of", "all of", patterns of identifiers.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "userspace/detect/rule.h"
#include "userspace/policy/reader.h"

namespace stockade::detect {

// SigmaHQ's longest condition for Linux has 40 words.
inline constexpr size_t kMaxConditionWords = 1000;
// Parentheses and nots within each other: each is a call.
inline constexpr int kMaxConditionDepth = 64;

// `identifiers`: expressions by search identifier. Adds those it uses to `used`.
std::optional<Expr> ParseCondition(const policy::YamlNode& node,
                                   const std::map<std::string, Expr>& identifiers,
                                   std::set<std::string>* used, policy::Reader& reader);

}  // namespace stockade::detect
