#include "userspace/k8s/runtime_config.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace stockade::k8s {
namespace {

constexpr char kNri[] = "plugins/io.containerd.nri.v1.nri";
constexpr char kValidator[] = "plugins/io.containerd.nri.v1.nri/default_validator";

// Cuts a line at its comment, outside of quotes.
absl::string_view WithoutComment(absl::string_view line) {
    char quote = 0;
    for (size_t i = 0; i < line.size(); ++i) {
        if (quote != 0) {
            if (line[i] == quote) quote = 0;
        } else if (line[i] == '"' || line[i] == '\'') {
            quote = line[i];
        } else if (line[i] == '#') {
            return line.substr(0, i);
        }
    }
    return line;
}

// The first '=' outside of quotes.
size_t EqualSign(absl::string_view line) {
    char quote = 0;
    for (size_t i = 0; i < line.size(); ++i) {
        if (quote != 0) {
            if (line[i] == quote) quote = 0;
        } else if (line[i] == '"' || line[i] == '\'') {
            quote = line[i];
        } else if (line[i] == '=') {
            return i;
        }
    }
    return absl::string_view::npos;
}

// plugins.'io.containerd.nri.v1.nri'.disable -> plugins/io.containerd.nri.v1.nri/disable
std::string KeyPath(absl::string_view key) {
    std::vector<std::string> parts = {""};
    char quote = 0;
    for (const char c : key) {
        if (quote != 0) {
            if (c == quote) quote = 0;
            else parts.back().push_back(c);
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '.') {
            parts.emplace_back();
        } else if (!absl::ascii_isspace(static_cast<unsigned char>(c))) {
            parts.back().push_back(c);
        }
    }
    return absl::StrJoin(parts, "/");
}

bool Unquote(absl::string_view text, std::string* out) {
    text = absl::StripAsciiWhitespace(text);
    if (text.size() < 2 || text.front() != text.back() || (text.front() != '"' && text.front() != '\'')) return false;
    *out = std::string(text.substr(1, text.size() - 2));
    // Names of plugins and annotations have none of what would be escaped.
    return !absl::StrContains(*out, '\\') && out->find(text.front()) == std::string::npos;
}

bool ReadList(absl::string_view text, std::vector<std::string>* out) {
    if (!absl::ConsumePrefix(&text, "[") || !absl::ConsumeSuffix(&text, "]")) return false;
    for (const absl::string_view item : absl::StrSplit(text, ',')) {
        if (absl::StripAsciiWhitespace(item).empty()) continue;  // after the last comma
        if (!Unquote(item, &out->emplace_back())) return false;
    }
    return true;
}

bool ReadFlag(absl::string_view text, bool* out) {
    *out = text == "true";
    return *out || text == "false";
}

// False where the value is not understood. Keys that do not matter are.
bool Take(const std::string& path, absl::string_view value, RuntimeConfig* out) {
    if (path == absl::StrCat(kNri, "/disable")) return ReadFlag(value, &out->nri_off);
    if (path == absl::StrCat(kValidator, "/enable")) return ReadFlag(value, &out->validates);
    if (path == absl::StrCat(kValidator, "/required_plugins")) {
        out->required.clear();
        return ReadList(value, &out->required);
    }
    if (path == absl::StrCat(kValidator, "/tolerate_missing_plugins_annotation")) return Unquote(value, &out->tolerated_by);
    // A table on one line may hold any of them.
    return !(path == "plugins" || path == kNri || path == kValidator) || !absl::StartsWith(value, "{");
}

}  // namespace

StatusOr<RuntimeConfig> ReadRuntimeConfig(const std::string& file, const std::string& text) {
    RuntimeConfig config;
    config.file = file;
    std::string table, key, value;
    size_t number = 0;
    const auto wrong = [&](absl::string_view what) {
        return absl::InvalidArgumentError(absl::StrCat(file, ":", number, ": ", what, "; give the output of `containerd config dump`"));
    };
    for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
        ++number;
        const absl::string_view line = absl::StripAsciiWhitespace(WithoutComment(whole));
        if (line.empty()) continue;
        if (absl::StrContains(line, "\"\"\"") || absl::StrContains(line, "'''")) return wrong("a text of several lines is not understood");
        if (!value.empty()) {
            absl::StrAppend(&value, line);  // of a list that goes on
        } else if (line.front() == '[') {
            if (line.back() != ']') return wrong("a table's name has no end");
            table = KeyPath(line.substr(1, line.size() - 2));
            continue;
        } else {
            const size_t equal = EqualSign(line);
            if (equal == absl::string_view::npos) return wrong("neither a table nor a key");
            key = KeyPath(line.substr(0, equal));
            value = std::string(absl::StripAsciiWhitespace(line.substr(equal + 1)));
            if (value.empty()) return wrong("a key without a value");
        }
        if (value.front() == '[' && value.back() != ']') continue;
        if (!Take(table.empty() ? key : absl::StrCat(table, "/", key), value, &config)) return wrong(absl::StrCat(key, " is not understood"));
        value.clear();
    }
    if (!value.empty()) return wrong("a list has no end");
    return config;
}

}  // namespace stockade::k8s
