// The parts of the parser, by section of the document. Used by parse.cc only.
#pragma once

#include <vector>

#include "userspace/policy/document.h"
#include "userspace/policy/reader.h"

namespace stockade::policy {

const std::vector<std::pair<std::string, sk_verdict>>& ViolationChoices();
void ReadSpec(Reader& reader, const YamlNode& node, SandboxPolicy& policy);
void ReadNetwork(Reader& reader, const YamlNode& node, NetworkSection& section);
void ReadTests(Reader& reader, const YamlNode& node, std::vector<TestCase>& cases);
// The two lists of a SandboxPolicyTest, which stand at its top level.
std::vector<Reader::Field> TestFields(Reader& reader, std::vector<TestCase>& cases);
// A list of path patterns, each checked; a pattern that stands twice is an error.
void ReadPatterns(Reader& reader, const YamlNode& node, absl::string_view what, std::vector<Entry>& out);

}  // namespace stockade::policy
