#include "userspace/contract/json_value.h"

#include <gmock/gmock.h>

namespace stockade::contract {
namespace {

using ::testing::HasSubstr;

std::string Why(const std::string& text, const JsonBounds& bounds = {}) {
    const StatusOr<JsonValue> value = ParseJsonValue(text, bounds);
    return value.ok() ? "taken" : std::string(value.status().message());
}

TEST(JsonValue, WhatIsJsonIsTaken) {
    const auto value = ParseJsonValue(R"( {"a":[1,-2.5,"\u00e4",true,null,{}],"b":{"c":"d"}} )", {});
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value->dump(), "{\"a\":[1,-2.5,\"\xc3\xa4\",true,null,{}],\"b\":{\"c\":\"d\"}}");
    EXPECT_EQ(Why("7"), "taken");
    EXPECT_EQ(Why("[[[]]]", {.max_depth = 3}), "taken");
}

TEST(JsonValue, WhatReadersDifferInIsRefused) {
    EXPECT_THAT(Why(R"({"a":1,"a":2})"), HasSubstr("duplicate key 'a'"));
    EXPECT_THAT(Why(R"({"x":{"a":1,"b":2,"a":3}})"), HasSubstr("duplicate key"));
    EXPECT_EQ(Why(R"([{"a":1},{"a":2}])"), "taken");
    EXPECT_THAT(Why("\"\xff\xfe\""), HasSubstr("not JSON"));
    EXPECT_THAT(Why("\"\xed\xa0\x80\""), HasSubstr("not JSON"));  // half of a surrogate pair
    EXPECT_THAT(Why(R"("\ud800")"), HasSubstr("not JSON"));
    EXPECT_THAT(Why(R"("a\u0000b")"), HasSubstr("zero character"));
    EXPECT_THAT(Why(R"({"a\u0000":1})"), HasSubstr("zero character"));
    EXPECT_THAT(Why("1e999"), HasSubstr("too large"));
    for (const char* text : {"", "{", "[1,]", "{\"a\":1,}", "NaN", "01", "1 2", "{'a':1}", "// c\n1", "\xef\xbb\xbf"}) EXPECT_THAT(Why(text), HasSubstr("not JSON")) << text;
}

TEST(JsonValue, BoundsHoldBeforeTheyCost) {
    EXPECT_THAT(Why("[[[[]]]]", {.max_depth = 3}), HasSubstr("deeper than 3"));
    // As deep as a stack would not hold.
    EXPECT_THAT(Why(std::string(1'000'000, '[')), HasSubstr("deeper than 16"));
    std::string objects;
    for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
    EXPECT_THAT(Why(objects), HasSubstr("deeper than 16"));
    EXPECT_THAT(Why("[1,2,3]", {.max_values = 3}), HasSubstr("over 3 values"));
    EXPECT_EQ(Why("[1,2]", {.max_values = 3}), "taken");
    EXPECT_THAT(Why("[1,2,3]", {.max_bytes = 6}), HasSubstr("over 6 bytes"));
}

}  // namespace
}  // namespace stockade::contract
