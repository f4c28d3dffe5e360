#include "userspace/contract/mcp.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "userspace/contract/parse.h"

namespace stockade::contract {
namespace {

using ::testing::HasSubstr;

constexpr char kPure[] = R"({"name":"add","description":"Adds. # not a comment","annotations":{"readOnlyHint":true,"openWorldHint":false},"inputSchema":{"type":"object","properties":{"a":{"type":"number"}}}})";

FirstContracts Made(const std::string& tools) {
    const StatusOr<FirstContracts> made = ContractsFromMcp(tools);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *made : FirstContracts();
}

TEST(Mcp, EveryToolIsSandboxedUnlessAllOfItSaysOtherwise) {
    EXPECT_EQ(Made(absl::StrCat("[", kPure, "]")).in_process, 1u);
    // Each of these takes away one reason.
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"\"readOnlyHint\":true", "\"readOnlyHint\":false"},
                                                                                   {"\"readOnlyHint\":true", "\"readOnlyHint\":\"true\""},
                                                                                   {"\"openWorldHint\":false", "\"openWorldHint\":true"},
                                                                                   {",\"openWorldHint\":false", ""},
                                                                                   {"\"name\":\"add\"", "\"name\":\"run_python\""},
                                                                                   {"\"a\":{", "\"file_path\":{"},
                                                                                   {"\"properties\"", "\"anything\""},
                                                                                   {"\"annotations\":{", "\"annotations\":7,\"x\":{"}}) {
        std::string tool = kPure;
        tool.replace(tool.find(from), from.size(), to);
        EXPECT_EQ(Made(absl::StrCat("[", tool, "]")).sandboxed, 1u) << tool;
    }
}

TEST(Mcp, WhatIsMadeIsReadBack) {
    const std::string tools = absl::StrCat(R"({"jsonrpc":"2.0","id":1,"result":{"tools":[)", kPure, R"(,
        {"name":"exec skill","description":"line\n\"quoted\"\u2028 \ud83d\ude00 end","outputSchema":{"type":"object","properties":{"n":{"type":"integer"}}},"annotations":{"destructiveHint":false}},
        {"name":"exec skill"},{"name":"***","outputSchema":{"oneOf":[]}},{"name":"\u0007bell\nspec: {class: in-process}"}]}})");
    const FirstContracts made = Made(tools);
    EXPECT_EQ(made.in_process, 1u);
    EXPECT_EQ(made.sandboxed, 4u);
    const Parsed parsed = Parse("made.yaml", made.yaml);
    for (const policy::Diagnostic& diagnostic : parsed.diagnostics) ADD_FAILURE() << policy::ToString(diagnostic) << "\n" << made.yaml;
    ASSERT_EQ(parsed.contracts.size(), 5u);
    EXPECT_EQ(parsed.contracts[0].description, "Adds. # not a comment");
    EXPECT_EQ(parsed.contracts[1].name, "exec-skill");
    EXPECT_TRUE(parsed.contracts[1].result.has_value());
    EXPECT_FALSE(parsed.contracts[1].approval);
    EXPECT_EQ(parsed.contracts[2].name, "exec-skill-2");
    EXPECT_TRUE(parsed.contracts[2].approval);
    EXPECT_EQ(parsed.contracts[3].name, "tool");
    EXPECT_THAT(made.yaml, HasSubstr("its outputSchema is not taken"));
    EXPECT_EQ(parsed.contracts[4].tool_class, ToolClass::kSandbox);
}

TEST(Mcp, WhatIsNoToolListIsSaidSo) {
    for (const char* text : {"", "{}", "[1]", "[{}]", R"([{"name":1}])", R"({"tools":{}})", R"([{"name":"a","name":"b"}])"}) EXPECT_FALSE(ContractsFromMcp(text).ok()) << text;
    EXPECT_TRUE(ContractsFromMcp("[]").ok());
}

}  // namespace
}  // namespace stockade::contract
