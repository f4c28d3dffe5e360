#include "userspace/cmd/rules_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "userspace/model/json.h"

namespace stockade::cmd {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kRule[] =
    "title: Shell & more\nid: r-1\nname: shell\nlevel: high\nlogsource: {product: linux, category: "
    "process_creation}\n"
    "detection:\n  shell:\n    Image|endswith: [/sh, /bash]\n  make:\n    ParentImage|endswith: /make\n"
    "  condition: shell and not make\n"
    "tests:\n  fires:\n    - {Image: /bin/sh}\n  silent:\n    - {Image: /bin/sh, ParentImage: "
    "/usr/bin/make}\n";

std::string Source(const std::string& path) {
    const char* source = std::getenv("STOCKADE_SOURCE_DIR");
    return absl::StrCat(source == nullptr ? "." : source, "/", path);
}

class RulesRunTest : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "sk-rules-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        dir_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }

    std::string Write(const std::string& name, const std::string& text) {
        const std::string path = (dir_ / name).string();
        std::ofstream(path) << text;
        return path;
    }
    static std::string Exec(const std::string& path, const std::string& parent, bool redacted = false) {
        v1::Event event;
        event.set_id("e1");
        event.mutable_exec()->set_path(path);
        event.mutable_exec()->set_role("program");
        event.mutable_process()->add_ancestry()->set_exe(parent);
        if (redacted) event.add_redactions()->set_count(1);
        return model::ToJsonLine(event) + "\n";
    }

    std::filesystem::path dir_;
    RulesArgs args_;
    RulesOutput io_;
};

TEST_F(RulesRunTest, CheckTellsAllErrorsOfAllFiles) {
    Write("a.yaml", kRule);
    Write("b.yml",
          "title: x\nlogsource: {product: linux, category: dns_query}\ndetection: {s: {Qery: x}, condition: "
          "t}\n");
    Write("notes.txt", "no rule");
    args_.paths = {dir_.string()};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesFindings);
    EXPECT_THAT(
        io_.out,
        HasSubstr("b.yml:3:17: error: unknown field 'Qery' of linux/dns_query; did you mean 'query'?"));
    EXPECT_THAT(io_.out, HasSubstr("in 2 files: 1 error, 0 warnings\n"));
    args_.json = true;
    io_ = {};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesFindings);
    EXPECT_THAT(io_.out, HasSubstr("\"line\":3,\"column\":17"));
    args_.paths = {Write("a.yaml", kRule)};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesOk);
    args_.paths = {(dir_ / "missing").string()};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesUsage);
    EXPECT_THAT(io_.err, HasSubstr("missing"));
}

TEST_F(RulesRunTest, CheckWarnsOfWarningsAndStrictCounts) {
    args_.paths = {Write("a.yaml", std::string(kRule) + "custom_key: 5\n")};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesOk);
    EXPECT_THAT(io_.out, HasSubstr("1 warning"));
    args_.strict = true;
    EXPECT_EQ(RulesCheck(args_, io_), kRulesFindings);
}

TEST_F(RulesRunTest, CheckKnowsWhatAPolicyRecords) {
    args_.paths = {Write("a.yaml", kRule)};
    const std::string policy =
        "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: p}\nspec: {record: {exec: ";
    args_.policies = {Write("few.policy", policy + "violations}}\n")};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesOk) << io_.out << io_.err;
    EXPECT_THAT(
        io_.out,
        HasSubstr("policy 'p' records only violations of exec: 1 rules see no more than that: Shell & more"));
    args_.policies = {Write("all.policy", policy + "all}}\n")};
    io_ = {};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesOk);
    EXPECT_THAT(io_.out, Not(HasSubstr("records only")));
}

TEST_F(RulesRunTest, TestSpeaksTapAndJUnit) {
    args_.paths = {Write("a.yaml", kRule)};
    args_.junit = (dir_ / "junit.xml").string();
    EXPECT_EQ(RulesTest(args_, io_), kRulesOk);
    EXPECT_EQ(io_.out, "TAP version 13\n1..2\nok 1 - Shell & more: fires 1\nok 2 - Shell & more: silent 1\n");
    Write("a.yaml", std::string(kRule) + "    - {Image: /bin/bash}\n");
    io_ = {};
    EXPECT_EQ(RulesTest(args_, io_), kRulesFindings);
    EXPECT_THAT(
        io_.out,
        HasSubstr("not ok 3 - Shell & more: silent 2\n  ---\n  message: \"fired, should be silent\""));
    std::ifstream file(args_.junit);
    const std::string xml((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    EXPECT_THAT(xml, HasSubstr("<testsuites tests=\"3\" failures=\"1\">"));
    EXPECT_THAT(xml, HasSubstr("name=\"Shell &amp; more\""));
    EXPECT_THAT(xml, HasSubstr("<failure message=\"fired, should be silent\">"));
    Write("a.yaml", std::string(kRule).substr(0, std::string(kRule).find("tests:")));
    EXPECT_EQ(RulesTest(args_, io_), kRulesFindings);
    EXPECT_THAT(io_.err, HasSubstr("none of these rules has tests"));
}

TEST_F(RulesRunTest, ReplayCounts) {
    args_.paths = {Write("a.yaml", kRule)};
    args_.events = Write("e.jsonl", Exec("/bin/sh", "/bin/x") + Exec("/bin/sh", "/usr/bin/make") +
                                        "no event\n" + Exec("/bin/[redacted]", "/bin/x", true));
    EXPECT_EQ(RulesReplay(args_, io_), kRulesFindings);
    EXPECT_THAT(io_.out, HasSubstr("       1 findings         1 undecidable  Shell & more\n"));
    EXPECT_THAT(io_.out, HasSubstr("3 events, 1 findings, 1 undecidable, 1 lines that are no event"));
    args_.json = args_.timing = true;
    io_ = {};
    EXPECT_EQ(RulesReplay(args_, io_), kRulesFindings);
    EXPECT_THAT(io_.out, HasSubstr("\"rule\":\"r-1\",\"title\":\"Shell & "
                                   "more\",\"findings\":1,\"undecidable\":1,\"microseconds\":"));
    args_.events = Write("none.jsonl", "");
    EXPECT_EQ(RulesReplay(args_, io_), kRulesUsage);
    args_.events = (dir_ / "missing").string();
    EXPECT_EQ(RulesReplay(args_, io_), kRulesUsage);
}

TEST_F(RulesRunTest, ExplainShowsPartsAndValues) {
    args_.paths = {Write("a.yaml", kRule)};
    args_.rule = "shell";
    args_.events = Write("e.json", Exec("/bin/sh", "/usr/bin/make"));
    EXPECT_EQ(RulesExplain(args_, io_), kRulesFindings);
    EXPECT_THAT(io_.out, StartsWith("no          Shell & more\n"));
    EXPECT_THAT(io_.out, HasSubstr("yes             shell\n"));
    EXPECT_THAT(io_.out, HasSubstr("Image|endswith: /sh   <- \"/bin/sh\"\n"));
    EXPECT_THAT(io_.out, HasSubstr("ParentImage|endswith: /make   <- \"/usr/bin/make\"\n"));
    args_.events = Write("e.json", Exec("/bin/sh", "/x"));
    EXPECT_EQ(RulesExplain(args_, io_), kRulesOk);
    args_.rule = "shel";
    io_ = {};
    EXPECT_EQ(RulesExplain(args_, io_), kRulesUsage);
    EXPECT_THAT(io_.err, HasSubstr("did you mean 'shell'?"));
}

TEST_F(RulesRunTest, ListAndTheShippedRules) {
    args_.paths = {Source("rules/detections")};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesOk) << io_.out;
    io_ = {};
    EXPECT_EQ(RulesTest(args_, io_), kRulesOk) << io_.err;
    io_ = {};
    args_.json = true;
    EXPECT_EQ(RulesList(args_, io_), kRulesOk);
    EXPECT_THAT(io_.out, HasSubstr("\"name\":\"internal_scan\""));
}

}  // namespace
}  // namespace stockade::cmd
