// Typed reading of a YAML tree: each wrong thing becomes a diagnostic and reading goes on, so
// that one run shows all errors.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/policy/document.h"
#include "userspace/policy/nearest.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::policy {

class Reader {
  public:
    using OnValue = std::function<void(const YamlNode& value)>;
    struct Field {
        std::string key;
        OnValue read;
        bool required = false;
    };

    Reader(std::string file, std::vector<Diagnostic>& diagnostics)
        : file_(std::move(file)), diagnostics_(diagnostics) {}

    // Diagnostics so far.
    size_t found() const { return diagnostics_.size(); }
    Position At(const YamlNode& node) const { return {file_, node.line, node.column}; }
    void Error(const YamlNode& node, std::string message) {
        diagnostics_.push_back({Severity::kError, At(node), std::move(message)});
    }
    void ErrorAt(const Position& at, std::string message) {
        diagnostics_.push_back({Severity::kError, at, std::move(message)});
    }
    void Warn(const YamlNode& node, std::string message) {
        diagnostics_.push_back({Severity::kWarning, At(node), std::move(message)});
    }

    // A map with these keys. Unknown, duplicate and missing ones are errors. `what` names it in
    // messages. False when it is no map.
    bool Map(const YamlNode& node, absl::string_view what, const std::vector<Field>& fields);
    // A map with keys of the document's own choice.
    bool FreeMap(const YamlNode& node, absl::string_view what,
                 const std::function<void(const YamlNode& key, const YamlNode& value)>& fn);
    // A list; nothing at all counts as an empty one.
    void List(const YamlNode& node, absl::string_view what, const OnValue& each);

    std::optional<std::string> Text(const YamlNode& node, absl::string_view what);
    // A decimal number without quotes.
    std::optional<uint64_t> Number(const YamlNode& node, absl::string_view what, uint64_t least,
                                   uint64_t most);

    template <typename T>
    std::optional<T> Choice(const YamlNode& node, absl::string_view what,
                            const std::vector<std::pair<std::string, T>>& choices) {
        std::optional<std::string> text = Text(node, what);
        if (!text) return std::nullopt;
        std::vector<std::string> words;
        for (const auto& [word, value] : choices) {
            if (word == *text) return value;
            words.push_back(word);
        }
        Error(node, absl::StrCat("unknown ", what, " '", Printable(*text), "'", Suggest(*text, words)));
        return std::nullopt;
    }

    // Bounded and escaped, for messages.
    static std::string Printable(absl::string_view text);

  private:
    void WrongType(const YamlNode& node, absl::string_view what, absl::string_view wanted);

    std::string file_;
    std::vector<Diagnostic>& diagnostics_;
};

}  // namespace stockade::policy
