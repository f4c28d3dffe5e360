#include "userspace/contract/parse.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace stockade::contract {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kWhole[] = R"(apiVersion: stockade.dev/v1
kind: ToolContract
metadata: {name: csv-stats}
spec:
  tool: csv_stats
  description: Counts rows.
  class: sandbox
  command:
    allow: [/usr/bin/python3*]
    deny_arguments: ['\.\./', 'rm\s+-rf']
  policy: python-tool
  require: signal
  inputs:
    - {path: "*.csv", max_size: 1MiB, max_files: 3}
    - {path: config/settings.json, max_size: 4KiB, optional: true}
  outputs:
    files: [{path: "report/*.txt", max_size: 64KiB, max_files: 10}]
    result:
      file: result.json
      max_size: 32KiB
      max_depth: 4
      schema: {type: object, required: [rows], properties: {rows: {type: integer, minimum: 0}, "1": {enum: [yes, "2", 2, null]}}}
    stdout: {max_size: 10KiB}
  limits: {memory: 256MiB, pids: 32, cpu_percent: 50, out_size: 16MiB}
  timeout: 30s
  approval: {timeout: 2m}
)";

std::string Errors(const std::string& text) {
    std::string all;
    for (const policy::Diagnostic& diagnostic : Parse("c.yaml", text).diagnostics) absl::StrAppend(&all, policy::ToString(diagnostic), "\n");
    return all;
}

// The whole contract with one of its lines as another.
std::string With(const std::string& from, const std::string& to) {
    const std::string text = absl::StrReplaceAll(kWhole, {{from, to}});
    EXPECT_NE(text, kWhole) << from;
    return text;
}

TEST(ContractParse, AWholeOne) {
    const StatusOr<ToolContract> contract = ParseOne("c.yaml", kWhole);
    ASSERT_TRUE(contract.ok()) << contract.status();
    EXPECT_EQ(contract->name, "csv-stats");
    EXPECT_EQ(contract->tool, "csv_stats");
    EXPECT_EQ(contract->tool_class, ToolClass::kSandbox);
    ASSERT_EQ(contract->commands.size(), 1u);
    ASSERT_EQ(contract->deny_arguments.size(), 2u);
    ASSERT_EQ(contract->inputs.size(), 2u);
    EXPECT_TRUE(contract->inputs[0].required);
    EXPECT_FALSE(contract->inputs[1].required);
    EXPECT_EQ(contract->inputs[0].max_bytes, 1u << 20);
    EXPECT_EQ(contract->inputs[0].max_files, 3u);
    ASSERT_TRUE(contract->result.has_value());
    EXPECT_EQ(contract->result->schema, R"({"type":"object","required":["rows"],"properties":{"rows":{"type":"integer","minimum":0},"1":{"enum":["yes","2",2,null]}}})");
    EXPECT_EQ(contract->result->max_depth, 4u);
    EXPECT_EQ(contract->stdout_bytes, 10u << 10);
    EXPECT_EQ(contract->limits.memory_bytes, 256ull << 20);
    EXPECT_EQ(contract->limits.out_bytes, 16ull << 20);
    EXPECT_EQ(contract->timeout_ns, 30'000'000'000u);
    EXPECT_TRUE(contract->approval);
    EXPECT_EQ(contract->approval_timeout_ns, 120'000'000'000u);
    EXPECT_EQ(contract->require, "signal");
}

TEST(ContractParse, WhatIsWrongIsToldWithItsPlace) {
    EXPECT_THAT(Errors(With("  timeout: 30s", "  timeuot: 30s")), HasSubstr("c.yaml:25:3: error: unknown key 'timeuot' in spec; did you mean 'timeout'?"));
    EXPECT_THAT(Errors(With("  timeout: 30s\n", "")), HasSubstr("needs a timeout"));
    EXPECT_THAT(Errors(With("  policy: python-tool\n", "")), HasSubstr("needs a policy"));
    EXPECT_THAT(Errors(With("class: sandbox", "class: sandboxed")), HasSubstr("did you mean 'sandbox'"));
    EXPECT_THAT(Errors(With("class: sandbox", "class: in-process")), HasSubstr("would have no effect"));
    EXPECT_THAT(Errors(With("\"*.csv\"", "/etc/*.csv")), HasSubstr("path is relative"));
    EXPECT_THAT(Errors(With("\"*.csv\"", "a/../b")), HasSubstr("component '..'"));
    EXPECT_THAT(Errors(With("\"*.csv\"", "a//b")), HasSubstr("component ''"));
    EXPECT_THAT(Errors(With("file: result.json", "file: a/b.json")), HasSubstr("directly in /out"));
    EXPECT_THAT(Errors(With("file: result.json", "file: ..")), HasSubstr("directly in /out"));
    EXPECT_THAT(Errors(With("max_size: 32KiB", "max_size: 32TiB")), HasSubstr("max_size takes a size"));
    EXPECT_THAT(Errors(With("max_depth: 4", "max_depth: 65")), HasSubstr("from 1 to 64"));
    EXPECT_THAT(Errors(With("minimum: 0", "oneOf: []")), HasSubstr("schema: /properties/rows: keyword 'oneOf' is not taken"));
    EXPECT_THAT(Errors(With("rows: {type: integer, minimum: 0}", "rows: {type: integer, type: string}")), HasSubstr("duplicate key 'type'"));
    EXPECT_THAT(Errors(With(R"('\.\./')", "'(['")), HasSubstr("bad pattern"));
    EXPECT_THAT(Errors(With(R"('\.\./')", "'x*'")), HasSubstr("every argument"));
    EXPECT_THAT(Errors(With("[/usr/bin/python3*]", "[python3]")), HasSubstr("c.yaml:9:"));
    EXPECT_THAT(Errors(With("{timeout: 2m}", "sometimes")), HasSubstr("approval"));
    EXPECT_THAT(Errors(With("{timeout: 2m}", "{timeout: 0s}")), HasSubstr("duration"));
    EXPECT_THAT(Errors(With("kind: ToolContract", "kind: SandboxPolicy")), HasSubstr("kind"));
    EXPECT_THAT(Errors(""), HasSubstr("no ToolContract"));
    EXPECT_THAT(Errors("[1, 2]"), HasSubstr("must be a map"));
    EXPECT_THAT(Errors(absl::StrCat(kWhole, "---\n", kWhole)), HasSubstr("duplicate name"));
    EXPECT_THAT(Errors(kWhole), IsEmpty());
    EXPECT_THAT(ParseOne("c.yaml", absl::StrCat(kWhole, "---\n", absl::StrReplaceAll(kWhole, {{"csv-stats", "other"}}))).status().message(), HasSubstr("2 contracts"));
}

}  // namespace
}  // namespace stockade::contract
