#include "userspace/detect/rule.h"

#include <re2/re2.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace stockade::detect {

std::optional<Compare> CompareNamed(absl::string_view word) {
    static constexpr std::pair<const char*, Compare> kWords[] = {
        {"eq", Compare::kEq},   {"neq", Compare::kNeq}, {"lt", Compare::kLt},
        {"lte", Compare::kLte}, {"gt", Compare::kGt},   {"gte", Compare::kGte}};
    for (const auto& [name, compare] : kWords) {
        if (word == name) return compare;
    }
    return std::nullopt;
}

bool Holds(Compare compare, long double left, long double right) {
    switch (compare) {
        case Compare::kEq:
            return left == right;
        case Compare::kNeq:
            return left != right;
        case Compare::kLt:
            return left < right;
        case Compare::kLte:
            return left <= right;
        case Compare::kGt:
            return left > right;
        case Compare::kGte:
            return left >= right;
    }
    return false;
}

std::string Predicate::Key() const {
    std::string key =
        absl::StrCat(static_cast<int>(op), "|", field == nullptr ? "" : field->path, "|", cased, "|");
    switch (op) {
        case Op::kPattern:
            return absl::StrCat(key, pattern.ToString());
        case Op::kRegex:
            return absl::StrCat(key, regex->pattern());
        case Op::kNumber:
        case Op::kTimePart:
            return absl::StrCat(key, static_cast<int>(compare), "|", static_cast<int>(part), "|",
                                absl::StrFormat("%.21Lg", number));
        case Op::kCidr:
            return absl::StrCat(key, network.text);
        case Op::kFieldRef:
            return absl::StrCat(key, other->path, "|", front, back);
        case Op::kExists:
            return absl::StrCat(key, exists);
        case Op::kNull:
            break;
    }
    return key;
}

absl::string_view LevelName(Level level) {
    static constexpr absl::string_view kNames[] = {"informational", "low", "medium", "high", "critical"};
    return kNames[static_cast<int>(level)];
}

absl::string_view SeverityName(Level level) {
    return level == Level::kInformational ? absl::string_view("info") : LevelName(level);
}

absl::string_view ActionName(ResponseAction action) {
    static constexpr absl::string_view kNames[] = {"alert",           "deny",  "kill-process", "kill-sandbox",
                                                   "isolate-network", "freeze"};
    return kNames[static_cast<int>(action)];
}

}  // namespace stockade::detect
