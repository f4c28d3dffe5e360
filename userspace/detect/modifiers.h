// One detection item, "Field|modifier|...: values", to an expression over predicates.
#pragma once

#include <optional>

#include "userspace/detect/rule.h"
#include "userspace/policy/reader.h"

namespace stockade::detect {

// A pattern longer than any argument list that a record holds matches nothing.
inline constexpr size_t kMaxValueBytes = 16 << 10;
// RE2 compiles a program per expression; 4 KiB is ten times the longest of SigmaHQ's for Linux.
inline constexpr size_t kMaxRegexBytes = 4 << 10;
// Of windash: five characters for each dash.
inline constexpr size_t kMaxDashes = 3;

struct ItemContext {
    const Source& source;
    policy::Reader& reader;
    std::vector<Predicate>& atoms;
};

// `key` is the map's key; empty text for keywords. nullopt after an error was reported.
std::optional<Expr> ParseItem(const policy::YamlNode& key_node, absl::string_view key,
                              const policy::YamlNode& value, ItemContext& context);

// A scalar as Sigma's YAML 1.1 readers understand it.
struct Scalar {
    enum class Kind { kText, kNumber, kBool, kNull };
    Kind kind = Kind::kText;
    std::string text;
    long double number = 0;
    bool truth = false;
};
std::optional<Scalar> ReadScalar(const policy::YamlNode& node, absl::string_view what,
                                 policy::Reader& reader);

}  // namespace stockade::detect
