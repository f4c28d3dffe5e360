#include "userspace/contract/result_schema.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"

namespace stockade::contract {
namespace {

using ::testing::HasSubstr;

std::string Wrong(const std::string& schema) {
    const auto made = ResultSchema::Create(schema);
    return made.ok() ? "taken" : std::string(made.status().message());
}

std::string Clean(const std::string& schema, const std::string& text, const ResultSchema::Bounds& bounds = {}) {
    const auto made = ResultSchema::Create(schema);
    if (!made.ok()) return absl::StrCat("schema: ", made.status().message());
    const StatusOr<std::string> clean = (*made)->Clean(text, bounds);
    return clean.ok() ? *clean : absl::StrCat("refused: ", clean.status().message());
}

constexpr char kRows[] = R"({"type":"object","required":["rows"],"properties":{
    "rows":{"type":"array","maxItems":3,"items":{"type":"object","properties":{"n":{"type":"integer","minimum":0},"name":{"type":["string","null"],"pattern":"^[a-z]+$"}}}},
    "kind":{"enum":["a","b",{"deep":{"x":1}}]}}})";

TEST(ResultSchema, WhatTheSchemaDoesNotNameIsTakenOut) {
    EXPECT_EQ(Clean(kRows, R"({"rows":[{"n":1,"name":"x","instructions":"now delete"}],"system":"you are","kind":"a"})"), R"({"kind":"a","rows":[{"n":1,"name":"x"}]})");
    EXPECT_EQ(Clean(kRows, R"({"rows":[]})"), R"({"rows":[]})");
    EXPECT_EQ(Clean(R"({"type":"object"})", R"({"a":1})"), "{}");
    // A map of free keys is one where the schema says what its values are.
    EXPECT_EQ(Clean(R"({"type":"object","additionalProperties":{"type":"object","properties":{"v":{"type":"number"}}}})", R"({"any":{"v":1.5,"w":2}})"), R"({"any":{"v":1.5}})");
    EXPECT_EQ(Clean(R"({"type":"array","items":{"type":["object","integer"],"properties":{"a":{"type":"boolean"}}}})", R"([1,{"a":true,"b":1}])"), R"([1,{"a":true}])");
}

TEST(ResultSchema, WhatIsNotAsItSaysIsRefused) {
    EXPECT_THAT(Clean(kRows, R"({})"), HasSubstr("refused: "));
    EXPECT_THAT(Clean(kRows, R"({"rows":[{"n":-1}]})"), HasSubstr("refused: "));
    EXPECT_THAT(Clean(kRows, R"({"rows":[{"n":"1"}]})"), HasSubstr("refused: "));
    EXPECT_THAT(Clean(kRows, R"({"rows":[{},{},{},{}]})"), HasSubstr("refused: "));
    EXPECT_THAT(Clean(kRows, R"({"rows":[],"kind":"c"})"), HasSubstr("refused: "));
    EXPECT_THAT(Clean(kRows, R"({"rows":[{"name":"X1"}]})"), HasSubstr("/rows/0/name: does not match its pattern"));
    EXPECT_THAT(Clean(kRows, R"([])"), HasSubstr("refused: "));
    EXPECT_THAT(Clean(kRows, "{\"rows\":[]"), HasSubstr("refused: not JSON"));
    EXPECT_THAT(Clean(R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false})", R"({"a":1,"b":2})"), HasSubstr("refused: "));
    EXPECT_EQ(Clean(R"({"const":3})", "3"), "3");
    EXPECT_THAT(Clean(R"({"const":3})", "4"), HasSubstr("refused: "));
}

TEST(ResultSchema, PatternsAndTextsOfHostileSizeCostLinearTime) {
    const std::string schema = R"({"type":"string","pattern":"^(a+)+$"})";
    const ResultSchema::Bounds bounds = {.max_bytes = 4 << 20, .max_depth = 1};
    EXPECT_EQ(Clean(schema, absl::StrCat("\"", std::string(1 << 20, 'a'), "\""), bounds).size(), (1u << 20) + 2);
    EXPECT_THAT(Clean(schema, absl::StrCat("\"", std::string(1 << 20, 'a'), "b\""), bounds), HasSubstr("pattern"));
}

TEST(ResultSchema, KeywordsWithoutEffectAreNoKeywords) {
    for (const char* keyword : {"oneOf", "anyOf", "allOf", "not", "$ref", "if", "format", "uniqueItems", "patternProperties", "dependencies", "contains"})
        EXPECT_THAT(Wrong(absl::StrCat(R"({"type":"object","properties":{"a":{"type":"string",")", keyword, R"(":{}}}})")), HasSubstr(absl::StrCat("/properties/a: keyword '", keyword, "' is not taken"))) << keyword;
    EXPECT_THAT(Wrong("{}"), HasSubstr("anything would pass"));
    EXPECT_THAT(Wrong("true"), HasSubstr("a schema is an object"));
    EXPECT_THAT(Wrong(R"({"type":"array"})"), HasSubstr("needs items"));
    EXPECT_THAT(Wrong(R"({"type":["null","array"]})"), HasSubstr("needs items"));
    EXPECT_THAT(Wrong(R"({"type":"array","items":[{"type":"string"}]})"), HasSubstr("one schema for all"));
    EXPECT_THAT(Wrong(R"({"type":"object","additionalProperties":true})"), HasSubstr("nobody has named"));
    EXPECT_THAT(Wrong(R"({"type":"strin"})"), HasSubstr("did you mean 'string'"));
    EXPECT_THAT(Wrong(R"({"type":"string","pattern":"(["})"), HasSubstr("pattern: "));
    EXPECT_NE(Wrong(R"({"type":"string","minLength":"x"})"), "taken");
    EXPECT_EQ(Wrong(kRows), "taken");
}

}  // namespace
}  // namespace stockade::contract
