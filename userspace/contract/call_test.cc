#include "userspace/contract/call.h"

#include <gmock/gmock.h>

#include <set>

#include "userspace/contract/parse.h"
#include "userspace/contract/refusal.h"

namespace stockade::contract {
namespace {

using ::testing::HasSubstr;

ToolContract Contract(const std::string& tool_class = "sandbox") {
    const std::string rest = tool_class == "sandbox" ? R"(, policy: p, timeout: 1s, command: {allow: ["/usr/bin/python3*", /opt/tools/**], deny_arguments: ['\.\./', '^-c$', 'rm -rf', 'evil.*now']})" : "";
    auto contract = ParseOne("c", "apiVersion: stockade.dev/v1\nkind: ToolContract\nmetadata: {name: t}\nspec: {class: " + tool_class + rest + "}\n");
    EXPECT_TRUE(contract.ok()) << contract.status();
    return *std::move(contract);
}

std::string Code(const std::vector<std::string>& argv) {
    const Status status = CheckCall(Contract(), argv);
    return status.ok() ? "allowed" : RefusalCode(status);
}

TEST(Call, OnlyDeclaredProgramsAndArgumentsPass) {
    EXPECT_EQ(Code({"/usr/bin/python3", "/in/job.py"}), "allowed");
    EXPECT_EQ(Code({"/usr/bin/python3.11"}), "allowed");
    EXPECT_EQ(Code({"/opt/tools/a/b"}), "allowed");
    EXPECT_EQ(Code({"/usr/bin/perl"}), "contract.command");
    EXPECT_EQ(Code({"/opt/tools/../../bin/sh"}), "contract.command");
    EXPECT_EQ(Code({"/usr/bin//python3"}), "contract.command");
    EXPECT_EQ(Code({"python3"}), "contract.command");
    EXPECT_EQ(Code({""}), "contract.command");
    EXPECT_EQ(Code({"/usr/bin/python3", "-c", "1"}), "contract.argument");
    EXPECT_EQ(Code({"/usr/bin/python3", "a/../b"}), "contract.argument");
    EXPECT_EQ(Code({"/usr/bin/python3", "rm", "-rf"}), "contract.argument");  // over two of them
    EXPECT_EQ(Code({"/usr/bin/python3", "x -c y"}), "allowed");
    EXPECT_EQ(Code({"/usr/bin/python3", "\xff\n/../x"}), "contract.argument");
    EXPECT_EQ(Code({"/usr/bin/python3", "evil \xff\n now"}), "contract.argument");
    EXPECT_THAT(CheckCall(Contract(), {"/usr/bin/python3", "-c"}).message(), HasSubstr("'^-c$'"));
}

TEST(Call, InProcessIsNotStarted) {
    const Status status = CheckCall(Contract("in-process"), {"/usr/bin/python3"});
    EXPECT_EQ(RefusalCode(status), "contract.class");
}

TEST(Call, ABareNameIsAProgramOfTheSandboxesPath) {
    EXPECT_EQ(*FindProgram("sh"), "/usr/bin/sh");
    EXPECT_EQ(*FindProgram("/opt/x"), "/opt/x");
    EXPECT_EQ(RefusalCode(FindProgram("no-such-program-here").status()), "contract.command");
    for (const char* word : {"", "./sh", "bin/sh", "/bin/../bin/sh", "/bin/./sh", "/bin//sh", "/bin/"}) EXPECT_FALSE(FindProgram(word).ok()) << word;
}

TEST(Call, EveryPartChangesTheDigest) {
    const Call base = {.argv = {"a", "b"}, .env = {"K=V"}, .cwd = "/", .inputs = {{"x", 1, "00"}}, .contract_sha256 = "c", .policy_sha256 = "p"};
    std::set<std::string> seen = {DigestsOf(base).all};
    std::vector<Call> others(9, base);
    others[0].argv = {"ab"};
    others[1].argv = {"a", "b", ""};
    others[2].argv = {"b", "a"};
    others[3].env = {"K=W"};
    others[4].cwd = "/tmp";
    others[5].inputs[0].sha256 = "01";
    others[6].inputs[0].path = "y";
    others[7].contract_sha256 = "d";
    others[8].policy_sha256 = "q";
    for (const Call& other : others) EXPECT_TRUE(seen.insert(DigestsOf(other).all).second);
    EXPECT_EQ(seen.size(), 10u);
    EXPECT_TRUE(seen.count(DigestsOf(base).all) == 1);
}

}  // namespace
}  // namespace stockade::contract
