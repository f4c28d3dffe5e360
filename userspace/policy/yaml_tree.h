// YAML text to a tree with positions, within bounds. The only file that knows yaml-cpp.
//
// The tree is built from parser events and not from yaml-cpp's nodes: those merge duplicate keys
// silently and have no bound.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

// A policy of 1,000 long patterns has 100 KB.
inline constexpr size_t kMaxYamlBytes = 512 << 10;
// The document of the schema is 6 deep.
inline constexpr size_t kMaxYamlDepth = 32;
// Nodes of a file, with those that aliases repeat: a bomb of nested aliases ends here.
inline constexpr size_t kMaxYamlNodes = 200'000;

struct YamlNode;
using YamlPtr = std::shared_ptr<const YamlNode>;

struct YamlNode {
    enum class Kind { kNull, kScalar, kSequence, kMap };
    Kind kind = Kind::kNull;
    std::string value;    // kScalar
    bool quoted = false;  // kScalar: written in quotes, so never a number
    std::string tag;      // explicit tag, if any
    int line = 0;         // from 1
    int column = 0;
    std::vector<YamlPtr> items;  // kSequence; kMap: key, value, key, value, ...
};

// All documents of a text; what stands before a syntax error is kept. Errors are appended.
std::vector<YamlPtr> ReadYaml(const std::string& file, const std::string& text,
                              std::vector<Diagnostic>& diagnostics);

// "a map", "a list", "a text", "nothing".
absl::string_view KindName(YamlNode::Kind kind);

}  // namespace stockade::policy
