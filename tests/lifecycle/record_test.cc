// `stockade record`: of a sandbox that runs, and of a policy and a contract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/lifecycle/call.h"
#include "userspace/base/sha256.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;

constexpr const char* kLines[] = {"workload", "source", "policy", "uids", "external_path", "credentials", "writable_scope", "lifecycle_owner", "evidence", "clean_up"};

TEST(Record, TenLinesOfASandboxAndOfItsFiles) {
    Tool tool("  approval: {timeout: 1s}\n  outputs: {files: [{path: \"*.txt\", max_size: 1}]}\n");
    const std::string contract = tool.product.Path("contract.yaml");
    const Ran files = tool.product.Stockade({"record", "--contract", contract, "-o", "json"});
    ASSERT_EQ(files.status, 0) << files.err;
    const Json record = ParseJson(files.out);
    EXPECT_EQ(record.struct_value().fields_size(), 10);
    for (const char* line : kLines) EXPECT_NE(At(record, line), "") << line;
    EXPECT_THAT(At(record, "source"), HasSubstr(Sha256Hex(tool.product.Get("contract.yaml"))));
    EXPECT_THAT(At(record, "external_path"), HasSubstr("none"));
    EXPECT_THAT(At(record, "writable_scope"), HasSubstr("/out/**, /tmp/**"));
    EXPECT_THAT(At(record, "writable_scope"), HasSubstr("*.txt"));
    EXPECT_THAT(At(record, "lifecycle_owner"), HasSubstr("after 60s; started when approved"));
    const Ran text = tool.product.Stockade({"record", "--policy", "python-tool"});
    EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 10) << text.out << text.err;
    EXPECT_THAT(tool.product.Stockade({"record", "--policy", "python-tool", "-o", "markdown"}).out, HasSubstr("| external path | "));
    EXPECT_EQ(tool.product.Stockade({"record"}).status, 125);
    tool.WriteContract("");
    const pid_t client = tool.Start({"sleep", "1000"}, {}, "alive");
    ASSERT_TRUE(Until([&] { return !tool.product.Processes().empty(); }));
    const Ran alive = tool.product.Stockade({"record", tool.product.Sandboxes().front(), "-o", "json"});
    EXPECT_EQ(alive.status, 0) << alive.err;
    EXPECT_THAT(At(ParseJson(alive.out), "workload"), HasSubstr("sleep 1000"));
    EXPECT_THAT(At(ParseJson(alive.out), "source"), HasSubstr(Sha256Hex(tool.product.Get("contract.yaml"))));
    EXPECT_THAT(At(ParseJson(alive.out), "uids"), HasSubstr("of this sandbox alone"));
    EXPECT_EQ(tool.product.Stockade({"kill", tool.product.Sandboxes().front()}).status, 0);
    (void)tool.Finish(client, "alive");
}

}  // namespace
}  // namespace stockade::tests
