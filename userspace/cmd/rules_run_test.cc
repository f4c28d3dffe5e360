#include "userspace/cmd/rules_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
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

// Each of the files has one fault, and says in its first line what `check` has to say of it.
TEST_F(RulesRunTest, CheckHelpsWithEachOfTheBrokenFiles) {
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(Source("tests/data/rules/broken")))
        files.insert(entry.path().string());
    EXPECT_GE(files.size(), 30u);
    args_.paths = {Source("tests/data/rules/broken")};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesFindings);
    EXPECT_THAT(io_.out, HasSubstr(absl::StrCat(files.size(), " errors, 0 warnings"))) << io_.out;
    for (const std::string& file : files) {
        std::ifstream in(file);
        std::string says;
        std::getline(in, says);
        ASSERT_THAT(says, StartsWith("# says: "));
        says.erase(0, std::string("# says: ").size());
        std::vector<std::string> of_file;
        for (absl::string_view line : absl::StrSplit(io_.out, '\n')) {
            if (absl::StrContains(line, absl::StrCat(file, ":"))) of_file.emplace_back(line);
        }
        ASSERT_EQ(of_file.size(), 1u) << file << "\n" << io_.out;
        EXPECT_THAT(of_file[0], testing::ContainsRegex(":[0-9]+:[0-9]+: error: .+"));
        EXPECT_THAT(of_file[0], HasSubstr(says));
    }
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

// A real tunnel (tests/data/dns): its queries, and the datagrams that carry them.
TEST_F(RulesRunTest, ReplayOfACapture) {
    constexpr char kDns[] =
        "title: Long name\nname: long_name\nlogsource: {category: dns}\ndetection:\n"
        "  s: {query|re: '[^.]{20}', record_type: TXT}\n  condition: s\n---\n"
        "title: To the resolver\nname: resolver\nlogsource: {product: linux, category: network_connection}\n"
        "detection:\n  s: {DestinationPort: 53, Protocol: udp}\n  condition: s\n---\n"
        "title: Many names of one client\nname: many\ncorrelation:\n  type: value_count\n  rules: "
        "[long_name]\n"
        "  group-by: [SandboxId]\n  timespan: 1h\n  condition: {field: query, gte: 3}\n  generate: true\n";
    args_.paths = {Write("a.yaml", kDns)};
    args_.pcap = Source("tests/data/dns/tunnel-captures/dns2tcp-TXT.pcap");
    EXPECT_EQ(RulesReplay(args_, io_), kRulesFindings) << io_.err;
    EXPECT_THAT(io_.out, testing::ContainsRegex(" [1-9][0-9]* findings         0 undecidable  Long name\n"));
    EXPECT_THAT(io_.out,
                testing::ContainsRegex(" [1-9][0-9]* findings         0 undecidable  To the resolver\n"));
    EXPECT_THAT(io_.out,
                testing::ContainsRegex(" [1-9][0-9]* findings         0 undecidable  Many names of one"));
    EXPECT_THAT(io_.out, testing::ContainsRegex("[1-9][0-9]* packets, of which "));
    // The same file, and names that a person asks for.
    io_ = {};
    args_.paths = {Write("a.yaml", absl::StrReplaceAll(kDns, {{"{20}", "{64}"}, {": 53", ": 54"}}))};
    EXPECT_EQ(RulesReplay(args_, io_), kRulesOk) << io_.out;
    args_.json = true;
    io_ = {};
    EXPECT_EQ(RulesReplay(args_, io_), kRulesOk);
    EXPECT_THAT(io_.out, HasSubstr("{\"capture\":{\"packets\":"));
}

TEST_F(RulesRunTest, ReplayOfABrokenCapture) {
    args_.paths = {Write("a.yaml", kRule)};
    std::ifstream in(Source("tests/data/dns/tunnel-captures/iodine-TXT.pcap"), std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    ASSERT_GT(whole.size(), 1000u);
    args_.pcap = Write("cut.pcap", whole.substr(0, 901));
    EXPECT_EQ(RulesReplay(args_, io_), kRulesUsage);
    EXPECT_THAT(io_.err, HasSubstr("cut.pcap: byte "));
    EXPECT_THAT(io_.out, HasSubstr(" packets, ")) << "what stands before the broken place";
    io_ = {};
    args_.pcap = Write("text.pcap", "no capture at all");
    EXPECT_EQ(RulesReplay(args_, io_), kRulesUsage);
    EXPECT_THAT(io_.err, HasSubstr("is no pcap or pcapng file"));
    io_ = {};
    args_.pcap = dir_.string();
    EXPECT_EQ(RulesReplay(args_, io_), kRulesUsage);
    EXPECT_THAT(io_.err, HasSubstr("is a directory"));
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

// `stockade rules test rules/`: policies lie there, too.
TEST_F(RulesRunTest, PoliciesInADirectoryOfRulesAreLeftOutAndCounted) {
    args_.paths = {Source("rules")};
    EXPECT_EQ(RulesTest(args_, io_), kRulesOk) << io_.err;
    EXPECT_THAT(io_.err, HasSubstr("rules: left out 6 files with apiVersion, which no rule has"));
    EXPECT_THAT(io_.err, HasSubstr(", 0 failed, 0 rules without tests"));
    io_ = {};
    args_.paths = {Source("rules/policies")};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesUsage);
    EXPECT_THAT(io_.err, HasSubstr("only policies and the like, and no rules"));
    // One that is named is asked about.
    io_ = {};
    args_.paths = {Source("rules/policies/deny-all.yaml")};
    EXPECT_EQ(RulesCheck(args_, io_), kRulesFindings);
    EXPECT_THAT(io_.out, HasSubstr("a document needs exactly one of detection, correlation and filter"));
}

}  // namespace
}  // namespace stockade::cmd
