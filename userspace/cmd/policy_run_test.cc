#include "userspace/cmd/policy_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace stockade::cmd {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string Shipped(const std::string& name) {
    const char* source = std::getenv("STOCKADE_SOURCE_DIR");
    return absl::StrCat(source == nullptr ? "." : source, "/rules/policies/", name, ".yaml");
}

const char* const kShipped[] = {"python-tool", "node-tool",   "build-tool",
                                "shell-tool",  "networkless", "deny-all"};

class PolicyRunTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "sk-policy-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        dir_ = name;
        args_.root = "";
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    std::string Write(const std::string& name, const std::string& policy, const std::string& spec,
                      const std::string& rest = "") {
        const std::string path = (dir_ / name).string();
        std::ofstream(path) << "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: " << policy
                            << "}\nspec: " << spec << "\n"
                            << rest;
        return path;
    }

    std::filesystem::path dir_;
    PolicyArgs args_;
    PolicyOutput io_;
};

TEST_F(PolicyRunTest, ShippedPoliciesHaveNoFindingsAndPassTheirCases) {
    for (const char* name : kShipped) args_.files.push_back(Shipped(name));
    args_.strict = true;
    EXPECT_EQ(PolicyCheck(args_, io_), kPolicyOk) << io_.out << io_.err;
    EXPECT_THAT(io_.out, HasSubstr("6 policies, 0 errors, 0 warnings"));
    for (const char* root : {"", "/"}) {
        args_.root = root;
        io_ = {};
        EXPECT_EQ(PolicyTestCases(args_, io_), kPolicyOk) << root << "\n" << io_.out << io_.err;
    }
}

TEST_F(PolicyRunTest, CheckShowsAllErrorsOfAllFiles) {
    args_.files = {Write("a.yaml", "a", "{mode: x}"), Write("b.yaml", "b", "{extends: [aa]}"),
                   (dir_ / "absent.yaml").string()};
    EXPECT_EQ(PolicyCheck(args_, io_), kPolicyFindings);
    EXPECT_THAT(io_.out, HasSubstr("a.yaml:4:14: error: unknown mode 'x'"));
    EXPECT_THAT(io_.out, HasSubstr("b.yaml:4:18: error: extends the unknown policy 'aa'"));
    EXPECT_THAT(io_.out, HasSubstr("absent.yaml: error: "));
}

TEST_F(PolicyRunTest, WarningsAreFindingsOnlyWhenStrict) {
    args_.files = {Write("a.yaml", "a", "{exec: {}}")};
    EXPECT_EQ(PolicyCheck(args_, io_), kPolicyOk);
    args_.strict = true;
    EXPECT_EQ(PolicyCheck(args_, io_), kPolicyFindings);
    args_.json = true;
    io_ = {};
    PolicyCheck(args_, io_);
    EXPECT_THAT(io_.out,
                StartsWith("{\"errors\":0,\"warnings\":2,\"diagnostics\":[{\"severity\":\"warning\""));
}

TEST_F(PolicyRunTest, ExplainByFileAndByName) {
    args_.policy = Shipped("python-tool");
    args_.questions.resize(1);
    args_.questions[0].kind = policy::CaseKind::kExec;
    args_.questions[0].object = "/usr/bin/bash";
    EXPECT_EQ(PolicyExplain(args_, io_), kPolicyFindings);
    EXPECT_THAT(io_.out, HasSubstr("exec.deny '**/bash'"));
    EXPECT_THAT(io_.out, HasSubstr("kill-sandbox"));
    args_.policy = "networkless";
    args_.json = true;
    io_ = {};
    EXPECT_EQ(PolicyExplain(args_, io_), kPolicyOk);
    EXPECT_THAT(io_.out, HasSubstr("\"allowed\":true"));
    args_.policy = "networkles";
    io_ = {};
    EXPECT_EQ(PolicyExplain(args_, io_), kPolicyUsage);
    EXPECT_THAT(io_.err, HasSubstr("did you mean 'networkless'?"));
}

TEST_F(PolicyRunTest, WhatIsNoQuestionIsNotAnswered) {
    args_.policy = "networkless";
    args_.questions.resize(1);
    const std::pair<policy::CaseKind, const char*> cases[] = {{policy::CaseKind::kConnect, "1.2.3.4"},
                                                              {policy::CaseKind::kConnect, "foo:80"},
                                                              {policy::CaseKind::kBind, "127.0.0.1:99999"},
                                                              {policy::CaseKind::kUnix, "socket"}};
    for (const auto& [kind, object] : cases) {
        args_.questions[0].kind = kind;
        args_.questions[0].object = object;
        io_ = {};
        EXPECT_EQ(PolicyExplain(args_, io_), kPolicyUsage) << object;
        EXPECT_THAT(io_.err, HasSubstr(object));
        EXPECT_EQ(io_.out, "");
    }
    args_.questions[0].kind = policy::CaseKind::kBind;
    args_.questions[0].object = "0.0.0.0:0";
    EXPECT_EQ(PolicyExplain(args_, io_), kPolicyOk) << "the kernel allows it under every policy";
}

TEST_F(PolicyRunTest, ExplainExtendsAFileGivenWithIt) {
    args_.with = {Write("base.yaml", "ours", "{exec: {allow: [/a]}}")};
    args_.policy = Write("a.yaml", "a", "{extends: [ours]}");
    args_.questions.resize(1);
    args_.questions[0].kind = policy::CaseKind::kExec;
    args_.questions[0].object = "/a";
    EXPECT_EQ(PolicyExplain(args_, io_), kPolicyOk) << io_.err;
    EXPECT_THAT(io_.out, HasSubstr("base.yaml:4:"));
}

TEST_F(PolicyRunTest, ATestThatFailsIsAFindingWithItsLine) {
    args_.files = {
        Write("a.yaml", "a", "{files: {read: [/a]}}", "tests:\n  allow: [{read: /a}, {read: /b}]\n")};
    EXPECT_EQ(PolicyTestCases(args_, io_), kPolicyFindings);
    EXPECT_THAT(io_.out,
                HasSubstr("a.yaml:6:23: failed: read /b should be allowed, but no rule of files allows /b"));
    EXPECT_THAT(io_.out, HasSubstr("a: 1 passed, 1 failed"));
    args_.files = {Write("b.yaml", "b", "{}")};
    EXPECT_EQ(PolicyTestCases(args_, io_), kPolicyUsage) << "nothing tested is no success";
}

TEST_F(PolicyRunTest, ABrokenFileOfADirectoryIsAWarningForTheOthers) {
    std::filesystem::create_directories(dir_ / "d");
    std::filesystem::create_directories(dir_ / "e");
    const std::string broken = Write("d/broken.yaml", "broken", "{mode: x, exec: {allow: [/a]}}");
    (void)Write("e/ours.yaml", "ours", "{exec: {allow: [/a]}, files: {}, network: {}}");
    args_.dirs = {(dir_ / "d").string(), (dir_ / "e").string(), (dir_ / "absent").string()};
    args_.questions.resize(1);
    args_.questions[0].kind = policy::CaseKind::kExec;
    args_.questions[0].object = "/a";
    args_.policy = "ours";
    EXPECT_EQ(PolicyExplain(args_, io_), kPolicyOk) << io_.err;
    EXPECT_THAT(io_.err, HasSubstr("broken.yaml:4:14: warning: not used: unknown mode 'x'"));
    args_.policy = "broken";
    EXPECT_EQ(PolicyExplain(args_, io_), kPolicyUsage) << "half a policy is none";
    args_.files = {broken};
    EXPECT_EQ(PolicyCheck(args_, io_), kPolicyFindings);
}

TEST_F(PolicyRunTest, DiffOfFileAndName) {
    args_.files = {"deny-all", Write("a.yaml", "a", "{extends: [deny-all], exec: {allow: [/a]}}")};
    EXPECT_EQ(PolicyDiff(args_, io_), kPolicyFindings);
    EXPECT_THAT(io_.out, HasSubstr("+ allowed  exec /a  by '/a'"));
    args_.files = {"deny-all", "deny-all"};
    EXPECT_EQ(PolicyDiff(args_, io_), kPolicyOk);
}

TEST_F(PolicyRunTest, DiffSeesHowRefusalsAreDealtWith) {
    const std::string spec = "exec: {allow: [/a]}, files: {}, network: {}";
    const std::string before = Write("a.yaml", "a", "{" + spec + "}");
    const std::pair<const char*, const char*> changes[] = {
        {"mode: observe", "~ changed  mode enforce -> observe"},
        {"violation: kill-process", "~ changed  exec.violation deny -> kill-process"},
        {"violation: kill-sandbox", "~ changed  violation deny -> kill-sandbox"},
        {"entered: observe", "~ changed  entered deny -> observe"}};
    for (const auto& [line, shown] : changes) {
        io_ = {};
        args_.files = {before, Write("b.yaml", "b", "{" + spec + ", " + line + "}")};
        EXPECT_EQ(PolicyDiff(args_, io_), kPolicyFindings) << line;
        EXPECT_THAT(io_.out, HasSubstr(shown));
    }
    io_ = {};
    args_.files = {before, Write("b.yaml", "b",
                                 "{exec: {allow: [/a], violation: kill-sandbox}, files: {}, network: {}}")};
    EXPECT_EQ(PolicyDiff(args_, io_), kPolicyFindings);
    EXPECT_EQ(io_.out, "~ changed  exec.violation deny -> kill-sandbox\n");
}

TEST_F(PolicyRunTest, DiffSeesNames) {
    args_.files = {Write("a.yaml", "a", "{exec: {}, files: {}, network: {}, dns: {mode: closed}}"),
                   Write("b.yaml", "b", "{exec: {}, files: {}, network: {}, dns: {mode: open}}")};
    EXPECT_EQ(PolicyDiff(args_, io_), kPolicyFindings);
    EXPECT_EQ(io_.out, "+ allowed  dns every name\n");
    io_ = {};
    args_.json = true;
    EXPECT_EQ(PolicyDiff(args_, io_), kPolicyFindings);
    EXPECT_THAT(io_.out, HasSubstr("{\"becomes\":\"allowed\",\"what\":\"dns\",\"object\":\"every name\""));
}

TEST_F(PolicyRunTest, CheckFindsWhatIsNoPolicyAtAll) {
    const std::pair<const char*, const char*> files[] = {
        {"---\n", "no document in this file"},
        {"null\n---\n~\n", "no document in this file"},
        {"apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: t}\nspec:\n  exec:\n\tallow: "
         "[/a]\n",
         "tab.yaml:6:1: error: not YAML: a tab as indentation: use spaces"}};
    for (const auto& [text, message] : files) {
        io_ = {};
        const std::string path = (dir_ / "tab.yaml").string();
        std::ofstream(path, std::ios::trunc) << text;
        args_.files = {path};
        EXPECT_EQ(PolicyCheck(args_, io_), kPolicyFindings) << text;
        EXPECT_THAT(io_.out, HasSubstr(message));
    }
}

TEST_F(PolicyRunTest, CheckWarnsOfNamesThatNeverResolve) {
    const std::string rest = "exec: {}, files: {}";
    args_.files = {Write("a.yaml", "a",
                         "{" + rest +
                             ", network: {allow: [{name: b.test, ports: [443]}]}, "
                             "dns: {mode: closed, allow: [a.test]}}")};
    EXPECT_EQ(PolicyCheck(args_, io_), kPolicyOk);
    EXPECT_THAT(io_.out, HasSubstr("warning: dns.allow has no effect: dns.mode is closed"));
    EXPECT_THAT(io_.out, HasSubstr("warning: the name 'b.test' opens nothing"));
    io_ = {};
    args_.files = {Write("a.yaml", "a", "{" + rest + ", network: {}, dns: {allow: [\"*.a.test\"], grants: {a.test: 1KiB, b.test: 1KiB}}}")};
    EXPECT_EQ(PolicyCheck(args_, io_), kPolicyOk);
    EXPECT_THAT(io_.out, HasSubstr("warning: dns.grants has no effect for 'b.test'"));
    EXPECT_THAT(io_.out, HasSubstr("1 warning"));
    io_ = {};
    args_.files = {Write("a.yaml", "a", "{" + rest + ", network: {}, dns: {allow: [a.test]}}")};
    EXPECT_EQ(PolicyCheck(args_, io_), kPolicyOk);
    EXPECT_THAT(io_.out, HasSubstr("0 warnings"));
}

TEST_F(PolicyRunTest, ADuplicateNameHidesNoWarningOfTheOtherFile) {
    const std::string fine = Write("a.yaml", "same", "{exec: {}, files: {}, network: {}}");
    args_.files = {fine,
                   Write("b.yaml", "same", "{exec: {}, network: {}, files: {read: [/x/y], deny: [/x/**]}}")};
    EXPECT_EQ(PolicyCheck(args_, io_), kPolicyFindings);
    EXPECT_THAT(io_.out, HasSubstr("duplicate policy name 'same'"));
    EXPECT_THAT(io_.out, HasSubstr("b.yaml:4:"));
    EXPECT_THAT(io_.out, HasSubstr("files.read '/x/y' allows nothing"));
    EXPECT_THAT(io_.out, HasSubstr("1 errors, 1 warnings"));
}

}  // namespace
}  // namespace stockade::cmd
