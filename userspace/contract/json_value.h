// JSON of strangers as a value, within bounds.
//
// Refused, beside what is no JSON: keys that stand twice in an object (readers differ in which they take), text that is not UTF-8,
// numbers that no double holds, more depth, bytes or values than allowed. A zero character in a text is refused as well: what cuts
// strings there would see another value than we did.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::contract {

using JsonValue = nlohmann::json;

struct JsonBounds {
    size_t max_bytes = 1 << 20;
    uint32_t max_depth = 16;      // objects and lists in each other
    size_t max_values = 200'000;  // of the whole text; the schema is tried on each
};

// kInvalidArgument for what is wrong with the text, kResourceExhausted for what is too large.
StatusOr<JsonValue> ParseJsonValue(absl::string_view text, const JsonBounds& bounds);

// A text as a scalar that readers of JSON and of YAML 1.1 and 1.2 take for the same text. What is not UTF-8 becomes U+FFFD.
std::string QuotedText(absl::string_view text);
// Nothing of it becomes another: UTF-8 without a zero character.
bool CanBeQuoted(absl::string_view text);

}  // namespace stockade::contract
