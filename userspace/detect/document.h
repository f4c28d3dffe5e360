// The parts of reading a rule document; used by parse.cc only.
#pragma once

#include <optional>
#include <vector>

#include "userspace/detect/rule.h"
#include "userspace/policy/reader.h"

namespace stockade::detect {

// `detection:` of a rule or `filter:` of a filter; keys of `skip` are not search identifiers.
struct Detection {
    std::vector<Predicate> atoms{};
    Expr expr{};
    Position condition_at{};
};
std::optional<Detection> ReadDetection(const policy::YamlNode& node, absl::string_view what,
                                       const Source& source, const std::vector<std::string>& skip,
                                       policy::Reader& reader);

std::optional<Correlation> ReadCorrelation(const policy::YamlNode& node, policy::Reader& reader);
// "10s", "5m", "1h", "7d". nullopt after an error.
std::optional<int64_t> ReadTimespan(const policy::YamlNode& node, absl::string_view what,
                                    policy::Reader& reader);
// Fields of the response are looked up in `source`; of correlations in the last rule's.
std::optional<Response> ReadResponse(const policy::YamlNode& node, const Source& source, bool correlation,
                                     policy::Reader& reader);
std::vector<RuleTest> ReadTests(const policy::YamlNode& node, const Source& source, policy::Reader& reader);

// Across documents: duplicates, filters, references, cycles.
struct Documents {
    std::vector<Rule> rules{};
    std::vector<Filter> filters{};
};
void Link(Documents* documents, std::vector<Diagnostic>& diagnostics);
// Conditions that can never hold, or always do.
void CheckPossible(const Rule& rule, std::vector<Diagnostic>& diagnostics);

}  // namespace stockade::detect
