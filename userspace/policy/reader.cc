#include "userspace/policy/reader.h"

#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"

namespace stockade::policy {
namespace {

// As much of a hostile text as a message shows.
constexpr size_t kShownBytes = 200;

}  // namespace

std::string Reader::Printable(absl::string_view text) {
    // Quotes and backslashes are harmless here and part of what was written.
    std::string shown = absl::StrReplaceAll(absl::Utf8SafeCHexEscape(text.substr(0, kShownBytes)),
                                            {{"\\'", "'"}, {"\\\"", "\""}, {"\\\\", "\\"}});
    return text.size() > kShownBytes ? shown + "..." : shown;
}

void Reader::WrongType(const YamlNode& node, absl::string_view what, absl::string_view wanted) {
    Error(node, absl::StrCat(what, " must be ", wanted, ", not ", KindName(node.kind)));
}

bool Reader::FreeMap(const YamlNode& node, absl::string_view what,
                     const std::function<void(const YamlNode& key, const YamlNode& value)>& fn) {
    if (node.kind == YamlNode::Kind::kNull) return true;
    if (node.kind != YamlNode::Kind::kMap) {
        WrongType(node, what, "a map");
        return false;
    }
    std::map<std::string, int> seen;
    for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
        const YamlNode& key = *node.items[i];
        if (key.kind != YamlNode::Kind::kScalar) {
            WrongType(key, absl::StrCat("a key of ", what), "a text");
            continue;
        }
        auto [it, added] = seen.emplace(key.value, key.line);
        if (!added) {
            Error(key, absl::StrCat("duplicate key '", Printable(key.value), "' in ", what,
                                    ", first on line ", it->second));
            continue;
        }
        fn(key, *node.items[i + 1]);
    }
    return true;
}

bool Reader::Map(const YamlNode& node, absl::string_view what, const std::vector<Field>& fields) {
    std::vector<std::string> known;
    for (const Field& field : fields) known.push_back(field.key);
    std::map<std::string, bool> seen;
    const bool is_map = FreeMap(node, what, [&](const YamlNode& key, const YamlNode& value) {
        seen[key.value] = true;
        for (const Field& field : fields) {
            if (field.key == key.value) return field.read(value);
        }
        Error(key,
              absl::StrCat("unknown key '", Printable(key.value), "' in ", what, Suggest(key.value, known)));
    });
    if (!is_map) return false;
    for (const Field& field : fields) {
        if (field.required && !seen[field.key]) Error(node, absl::StrCat(what, " lacks '", field.key, "'"));
    }
    return true;
}

void Reader::List(const YamlNode& node, absl::string_view what, const OnValue& each) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (node.kind != YamlNode::Kind::kSequence) return WrongType(node, what, "a list");
    for (const YamlPtr& item : node.items) each(*item);
}

std::optional<std::string> Reader::Text(const YamlNode& node, absl::string_view what) {
    if (node.kind != YamlNode::Kind::kScalar) {
        WrongType(node, what, "a text");
        return std::nullopt;
    }
    if (!node.tag.empty()) {
        Error(node, absl::StrCat("tags are not taken: ", Printable(node.tag)));
        return std::nullopt;
    }
    return node.value;
}

std::optional<uint64_t> Reader::Number(const YamlNode& node, absl::string_view what, uint64_t least,
                                       uint64_t most) {
    std::optional<std::string> text = Text(node, what);
    if (!text) return std::nullopt;
    uint64_t value = 0;
    if (node.quoted || !absl::SimpleAtoi(*text, &value) || value < least || value > most) {
        Error(node, absl::StrCat(what, " must be a number from ", least, " to ", most, ", not '",
                                 Printable(*text), "'"));
        return std::nullopt;
    }
    return value;
}

}  // namespace stockade::policy
