#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/detect/modifiers.h"

namespace stockade::detect {
namespace {

using policy::YamlNode;

bool AllOf(absl::string_view text, absl::string_view allowed) {
    return !text.empty() && text.find_first_not_of(allowed) == text.npos;
}

absl::string_view WithoutSign(absl::string_view text) {
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
    return text;
}

bool IsDecimal(absl::string_view text) {
    text = WithoutSign(text);
    return AllOf(text, "0123456789") && (text.size() == 1 || text[0] != '0');
}

bool IsFraction(absl::string_view text) {
    text = WithoutSign(text);
    const size_t dot = text.find('.');
    return dot != text.npos && dot > 0 && AllOf(text.substr(0, dot), "0123456789") &&
           (dot + 1 == text.size() || AllOf(text.substr(dot + 1), "0123456789"));
}

// What YAML 1.1 takes for a number or a truth value, and YAML 1.2 for text: no two readers agree.
bool IsAmbiguous(absl::string_view text) {
    for (const char* word : {"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF",
                             ".inf", "-.inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"}) {
        if (text == word) return true;
    }
    text = WithoutSign(text);
    if (text.empty() || text[0] < '0' || text[0] > '9') return false;
    if (absl::StartsWith(text, "0x") || absl::StartsWith(text, "0X"))
        return AllOf(text.substr(2), "0123456789abcdefABCDEF_");
    if (absl::StartsWith(text, "0b") || absl::StartsWith(text, "0o"))
        return AllOf(text.substr(2), "01234567_");
    const bool octal = text[0] == '0' && text.size() > 1 && AllOf(text, "01234567_");
    const bool grouped = AllOf(text, "0123456789_") && absl::StrContains(text, '_');
    const bool sexagesimal =
        AllOf(text, "0123456789:") && absl::StrContains(text, ':') && text.back() != ':' && text[0] != '0';
    return octal || grouped || sexagesimal;
}

}  // namespace

std::optional<Scalar> ReadScalar(const YamlNode& node, absl::string_view what, policy::Reader& reader) {
    Scalar scalar;
    if (node.kind == YamlNode::Kind::kNull) {
        scalar.kind = Scalar::Kind::kNull;
        return scalar;
    }
    std::optional<std::string> text = reader.Text(node, what);
    if (!text) return std::nullopt;
    if (text->size() > kMaxValueBytes) {
        reader.Error(node, absl::StrCat(what, " has more than ", kMaxValueBytes, " bytes"));
        return std::nullopt;
    }
    scalar.text = *std::move(text);
    if (node.quoted) return scalar;
    if (scalar.text == "true" || scalar.text == "True" || scalar.text == "TRUE" || scalar.text == "false" ||
        scalar.text == "False" || scalar.text == "FALSE") {
        scalar.kind = Scalar::Kind::kBool;
        scalar.truth = absl::EqualsIgnoreCase(scalar.text, "true");
        return scalar;
    }
    if (IsAmbiguous(scalar.text)) {
        reader.Error(node,
                     absl::StrCat("write '", policy::Reader::Printable(scalar.text),
                                  "' in quotes, or as a decimal number: readers of YAML differ about it"));
        return std::nullopt;
    }
    if (IsDecimal(scalar.text) || IsFraction(scalar.text)) {
        scalar.kind = Scalar::Kind::kNumber;
        scalar.number = std::strtold(scalar.text.c_str(), nullptr);
    }
    return scalar;
}

}  // namespace stockade::detect
