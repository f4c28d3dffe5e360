#include "userspace/contract/result_schema.h"

#include <re2/re2.h>

#include <algorithm>

#include <map>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/contract/json_value.h"
#include "userspace/policy/nearest.h"
#include "userspace/policy/reader.h"

namespace stockade::contract {
namespace {

// A schema is written by hand, and one of a tool list by somebody else's hand.
constexpr JsonBounds kSchemaBounds = {.max_bytes = 64 << 10, .max_depth = 48, .max_values = 5'000};
// As much of a hostile key or text as a message shows is Reader::Printable's affair; and so many errors.
constexpr size_t kMaxErrorsTold = 5;

const std::vector<std::string>& Types() {
    static const auto* types =
        new std::vector<std::string>{"object", "array", "string", "number", "integer", "boolean", "null"};
    return *types;
}

// Keywords, and whether they hold schemas: those are walked by CheckSchema.
const std::vector<std::string>& Keywords() {
    static const auto* keywords = new std::vector<std::string>{
        "type",      "properties", "required",  "additionalProperties", "items",    "enum",
        "const",     "minimum",    "maximum",   "exclusiveMinimum",     "exclusiveMaximum",
        "minLength", "maxLength",  "pattern",   "minItems",             "maxItems", "minProperties",
        "maxProperties", "title",  "description", "$schema",            "$comment", "default", "examples"};
    return *keywords;
}

Status Bad(const std::string& place, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(place.empty() ? "/" : place, ": ", what));
}

class Compiled : public ResultSchema {
  public:
    Status Load(JsonValue document);
    StatusOr<std::string> Clean(absl::string_view text, const Bounds& bounds) const override;

  private:
    Status CheckSchema(const JsonValue& schema, const std::string& place);
    Status CheckKeyword(const std::string& key, const JsonValue& value, const std::string& place);
    Status CheckType(const JsonValue& type, const std::string& place) const;
    Status Strip(const JsonValue& schema, JsonValue& value, const std::string& place) const;
    Status StripObject(const JsonValue& schema, JsonValue& value, const std::string& place) const;

    JsonValue document_;  // with its patterns
    valijson::Schema schema_;
    std::map<std::string, std::unique_ptr<re2::RE2>> patterns_;
};

Status Compiled::CheckType(const JsonValue& type, const std::string& place) const {
    std::vector<JsonValue> names;
    if (type.is_array()) {
        names.assign(type.begin(), type.end());
    } else {
        names.push_back(type);
    }
    if (names.empty()) return Bad(place, "type is an empty list");
    for (const JsonValue& name : names) {
        if (!name.is_string()) return Bad(place, "type is a word or a list of words");
        const std::string word = name.get<std::string>();
        if (std::find(Types().begin(), Types().end(), word) == Types().end())
            return Bad(place, absl::StrCat("unknown type '", policy::Reader::Printable(word), "'",
                                           policy::Suggest(word, Types())));
    }
    return absl::OkStatus();
}

Status Compiled::CheckKeyword(const std::string& key, const JsonValue& value, const std::string& place) {
    if (key == "type") return CheckType(value, place);
    if (key == "properties") {
        if (!value.is_object()) return Bad(place, "properties is an object");
        for (const auto& [name, schema] : value.items())
            SK_RETURN_IF_ERROR(CheckSchema(schema, absl::StrCat(place, "/properties/", policy::Reader::Printable(name))));
        return absl::OkStatus();
    }
    if (key == "items") {
        if (value.is_array()) return Bad(place, "items is one schema for all; a list of schemas is not taken");
        return CheckSchema(value, place + "/items");
    }
    if (key == "additionalProperties") {
        if (value.is_boolean() && !value.get<bool>()) return absl::OkStatus();
        if (value.is_boolean()) return Bad(place, "additionalProperties: true would let through what nobody has named: leave it out, or give a schema");
        return CheckSchema(value, place + "/additionalProperties");
    }
    if (key == "pattern") {
        if (!value.is_string()) return Bad(place, "pattern is a text");
        const std::string text = value.get<std::string>();
        auto compiled = std::make_unique<re2::RE2>(text, re2::RE2::Quiet);
        if (!compiled->ok()) return Bad(place, absl::StrCat("pattern: ", compiled->error()));
        patterns_[text] = std::move(compiled);
    }
    return absl::OkStatus();
}

Status Compiled::CheckSchema(const JsonValue& schema, const std::string& place) {
    if (!schema.is_object()) return Bad(place, "a schema is an object");
    for (const auto& [key, value] : schema.items()) {
        if (std::find(Keywords().begin(), Keywords().end(), key) == Keywords().end()) {
            return Bad(place, absl::StrCat("keyword '", policy::Reader::Printable(key), "' is not taken",
                                           policy::Suggest(key, Keywords())));
        }
        SK_RETURN_IF_ERROR(CheckKeyword(key, value, place));
    }
    if (!schema.contains("type") && !schema.contains("enum") && !schema.contains("const"))
        return Bad(place, "says neither type nor enum nor const: anything would pass");
    const JsonValue type = schema.value("type", JsonValue());
    const bool may_be_list = type == "array" || (type.is_array() && std::find(type.begin(), type.end(), "array") != type.end());
    if (may_be_list && !schema.contains("items")) return Bad(place, "type array needs items");
    return absl::OkStatus();
}

// What valijson is given: patterns are ours, as its own are std::regex's, which a long text overflows the stack of.
JsonValue WithoutPatterns(JsonValue schema) {
    schema.erase("pattern");
    for (const char* key : {"items", "additionalProperties"}) {
        if (schema.contains(key) && schema[key].is_object()) schema[key] = WithoutPatterns(schema[key]);
    }
    if (schema.contains("properties")) {
        for (auto& [name, property] : schema["properties"].items()) property = WithoutPatterns(property);
    }
    return schema;
}

Status Compiled::Load(JsonValue document) {
    SK_RETURN_IF_ERROR(CheckSchema(document, ""));
    document_ = std::move(document);
    const JsonValue plain = WithoutPatterns(document_);
    try {
        valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
        parser.populateSchema(valijson::adapters::NlohmannJsonAdapter(plain), schema_);
    } catch (const std::exception& error) {
        return absl::InvalidArgumentError(error.what());
    }
    return absl::OkStatus();
}

Status Compiled::StripObject(const JsonValue& schema, JsonValue& value, const std::string& place) const {
    const JsonValue none = JsonValue::object();
    const JsonValue& properties = schema.contains("properties") ? schema["properties"] : none;
    const JsonValue* others = nullptr;
    if (schema.contains("additionalProperties") && schema["additionalProperties"].is_object())
        others = &schema["additionalProperties"];
    for (auto member = value.begin(); member != value.end();) {
        const auto known = properties.find(member.key());
        const JsonValue* below = known != properties.end() ? &*known : others;
        if (below == nullptr) {
            member = value.erase(member);
            continue;
        }
        SK_RETURN_IF_ERROR(Strip(*below, member.value(), absl::StrCat(place, "/", policy::Reader::Printable(member.key()))));
        ++member;
    }
    return absl::OkStatus();
}

// After validation: the types are the schema's. A value that enum or const lists stays as it is.
Status Compiled::Strip(const JsonValue& schema, JsonValue& value, const std::string& place) const {
    if (value.is_string() && schema.contains("pattern")) {
        const std::string pattern = schema["pattern"].get<std::string>();
        if (!re2::RE2::PartialMatch(value.get_ref<const std::string&>(), *patterns_.at(pattern)))
            return Bad(place, "does not match its pattern");
    }
    if (schema.contains("enum") || schema.contains("const")) return absl::OkStatus();
    if (value.is_object()) return StripObject(schema, value, place);
    if (!value.is_array()) return absl::OkStatus();
    size_t index = 0;
    for (JsonValue& item : value) SK_RETURN_IF_ERROR(Strip(schema["items"], item, absl::StrCat(place, "/", index++)));
    return absl::OkStatus();
}

StatusOr<std::string> Compiled::Clean(absl::string_view text, const Bounds& bounds) const {
    SK_ASSIGN_OR_RETURN(JsonValue value,
                        ParseJsonValue(text, {.max_bytes = bounds.max_bytes, .max_depth = bounds.max_depth}));
    try {
        valijson::Validator validator(valijson::Validator::kStrongTypes);
        valijson::ValidationResults results;
        const valijson::adapters::NlohmannJsonAdapter adapter(value);
        if (!validator.validate(schema_, adapter, &results)) {
            std::vector<std::string> errors;
            for (const auto& error : results) {
                if (errors.size() == kMaxErrorsTold) break;
                errors.push_back(policy::Reader::Printable(
                    absl::StrCat(absl::StrJoin(error.context, ""), ": ", error.description)));
            }
            return absl::InvalidArgumentError(absl::StrJoin(errors, "; "));
        }
        SK_RETURN_IF_ERROR(Strip(document_, value, ""));
        return value.dump();
    } catch (const std::exception& error) {
        return absl::InvalidArgumentError(policy::Reader::Printable(error.what()));
    }
}

}  // namespace

StatusOr<std::shared_ptr<const ResultSchema>> ResultSchema::Create(const std::string& schema_json) {
    SK_ASSIGN_OR_RETURN(JsonValue document, ParseJsonValue(schema_json, kSchemaBounds));
    auto compiled = std::make_shared<Compiled>();
    SK_RETURN_IF_ERROR(compiled->Load(std::move(document)));
    return std::shared_ptr<const ResultSchema>(std::move(compiled));
}

}  // namespace stockade::contract
