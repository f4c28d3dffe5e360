#include "userspace/policy/learn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/policy/judge.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Event Make(const std::string& outcome = "done") {
    v1::Event event;
    event.set_id("sbx_1.7");
    event.mutable_sandbox()->set_id("sbx_1");
    event.mutable_process()->set_exe("/usr/bin/python3.11");
    event.set_outcome(outcome);
    event.set_dry_run(true);
    return event;
}
v1::Event File(const std::string& op, const std::string& path, const std::string& outcome = "done") {
    v1::Event event = Make(outcome);
    event.mutable_file()->set_op(op);
    event.mutable_file()->set_path(path);
    return event;
}
v1::Event Exec(const std::string& role, const std::string& path) {
    v1::Event event = Make();
    event.mutable_exec()->set_role(role);
    event.mutable_exec()->set_path(path);
    return event;
}
v1::Event Net(const std::string& op, const std::string& address, uint32_t port) {
    v1::Event event = Make();
    event.mutable_net()->set_op(op);
    event.mutable_net()->set_type("stream");
    event.mutable_net()->set_address(address);
    event.mutable_net()->set_port(port);
    return event;
}
v1::Event Dns(const std::string& name) {
    v1::Event event = Make();
    event.mutable_dns()->set_name(name);
    return event;
}

Proposal Learn(const std::vector<v1::Event>& events) {
    Learner learner;
    for (const v1::Event& event : events) learner.Add(event);
    return learner.Propose();
}

std::vector<std::string> Texts(const std::vector<LearnedLine>& lines) {
    std::vector<std::string> out;
    for (const LearnedLine& line : lines) out.push_back(line.text);
    return out;
}

// The document that comes out, as the agent would take it.
StatusOr<Judge> JudgeOf(const Proposal& proposal) {
    ParseResult parsed = ParseFiles({{"learned", ToYaml(proposal, {.name = "learned"})}});
    for (const Diagnostic& diagnostic : parsed.diagnostics) {
        if (diagnostic.severity == Severity::kError) return absl::InvalidArgumentError(ToString(diagnostic));
    }
    PolicyLibrary library;
    library.Add(std::move(parsed.policies), parsed.diagnostics);
    SK_ASSIGN_OR_RETURN(ResolvedPolicy policy, library.Resolve("learned"));
    return Judge::Create(std::move(policy));
}

bool Allows(const Judge& judge, CaseKind kind, const std::string& object) {
    TestCase question;
    question.kind = kind;
    question.object = object;
    return judge.Decide(question).allowed;
}

TEST(GeneralPattern, KeepsWhatTheNextRunSharesAndNoMore) {
    const std::pair<const char*, const char*> kCases[] = {
        {"/usr/bin/python3.11", "/usr/bin/python3.*"},
        {"/opt/node-18.19.0/bin/node", "/opt/node-18.*/bin/node"},
        {"/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.6"},
        {"/srv/cache/0f3a9c2b77de/data", "/srv/cache/*/data"},
        {"/srv/feedface/data", "/srv/feedface/data"},
        {"/proc/4711/status", "/proc/self/status"},
        {"/proc/4711/task/4712/comm", "/proc/self/task/*/comm"},
        {"/tmp/tmpab12/x", "/tmp/**"},
        {"/out/a.txt", "/out/**"},
        {"/tmpfiles/x", "/tmpfiles/x"},
        {"/data/a[1]{x}*", "/data/a\\[1\\]\\{x\\}\\*"},
    };
    for (const auto& [path, pattern] : kCases) EXPECT_EQ(GeneralPattern(path), pattern);
}

TEST(GeneralPatterns, ADirectoryStandsForManyOfItsFilesBelowProgramsAlone) {
    std::map<std::string, Evidence> paths;
    for (int i = 0; i < 6; ++i) {
        for (const char* directory : {"/usr/lib/python3.11/", "/etc/app/", "/home/me/work/", "/usr/"})
            paths[absl::StrCat(directory, "f", i)] = {.count = 1, .program = "x", .event = "e", .sample = ""};
    }
    std::vector<std::string> patterns;
    for (const auto& [pattern, evidence] : GeneralPatterns(paths, true)) patterns.push_back(pattern);
    EXPECT_EQ(patterns.size(), 19u) << "/etc, /home and /usr itself are named file by file";
    EXPECT_THAT(patterns, testing::Contains("/usr/lib/python3.*/**"));
    EXPECT_THAT(patterns, Not(testing::Contains("/etc/app/**")));
}

TEST(Learner, WhatItSawIsAllowedByWhatItProposes) {
    const Proposal proposal = Learn({Exec("program", "/usr/bin/python3.11"), Exec("interpreter", "/usr/local/bin/tool"),
                                     Exec("mapped", "/opt/x/libfoo.so.1.2"), File("open-read", "/data/in.csv"), File("create", "/out/r.json"),
                                     File("open-read", "/out/r.json"), Net("connect", "192.0.2.7", 443), Net("connect", "127.0.0.1", 8123),
                                     Net("connect", "2001:db8::7", 443), Net("bind", "0.0.0.0", 9000)});
    EXPECT_THAT(Texts(proposal.exec), ElementsAre("/usr/bin/python3.*", "/usr/local/bin/tool"));
    EXPECT_THAT(Texts(proposal.libraries), ElementsAre("/opt/x/*.so*"));
    EXPECT_THAT(Texts(proposal.read), ElementsAre("/data/in.csv")) << "what is written may be read back";
    EXPECT_THAT(Texts(proposal.write), ElementsAre("/out/**"));
    const StatusOr<Judge> judge = JudgeOf(proposal);
    ASSERT_TRUE(judge.ok()) << judge.status() << ToYaml(proposal, {.name = "learned"});
    EXPECT_GE(proposal.seen.size(), 7u);
    for (const TestCase& seen : proposal.seen) EXPECT_TRUE(judge->Decide(seen).allowed) << seen.object;
    EXPECT_FALSE(Allows(*judge, CaseKind::kExec, "/usr/bin/bash"));
    EXPECT_FALSE(Allows(*judge, CaseKind::kRead, "/etc/shadow"));
    EXPECT_FALSE(Allows(*judge, CaseKind::kWrite, "/data/in.csv"));
    EXPECT_FALSE(Allows(*judge, CaseKind::kConnect, "192.0.2.7:80"));
}

TEST(Learner, WhatTheBaseAllowsIsNotSaidAgain) {
    EXPECT_TRUE(Learn({File("open-read", "/usr/lib/locale/C.utf8/LC_CTYPE"), File("open-read", "/dev/null")}).read.empty());
}

TEST(Learner, WhatWasRefusedOrIsDangerousIsNotLearned) {
    v1::Event killed = Exec("program", "/usr/bin/bash");
    killed.set_outcome("killed after effect");
    v1::Event ptrace = Make();
    ptrace.mutable_escape()->set_op("ptrace");
    const Proposal proposal = Learn({killed, File("open-read", "/etc/passwd", "prevented"), File("open-read", "/in/home/.ssh/id_ed25519"),
                                     File("open-read", "/run/secrets/token"), Net("connect", "169.254.169.254", 80), ptrace});
    EXPECT_TRUE(proposal.exec.empty() && proposal.read.empty() && proposal.connect.empty());
    const std::string yaml = ToYaml(proposal, {.name = "learned"});
    EXPECT_THAT(yaml, HasSubstr("# left out: /in/home/.ssh/id_ed25519"));
    EXPECT_THAT(yaml, HasSubstr("# left out: 169.254.169.254"));
    EXPECT_THAT(yaml, HasSubstr("# left out: ptrace needs grants: [ptrace]"));
    EXPECT_TRUE(JudgeOf(proposal).ok());
}

TEST(Learner, NamesStandForTheirAddresses) {
    const Proposal with = Learn({Dns("pypi.org"), Net("connect", "151.101.0.223", 443), Net("connect", "10.1.2.3", 5432)});
    EXPECT_THAT(Texts(with.connect), ElementsAre("{cidr: \"10.1.2.3/32\", ports: [5432]}", "{name: \"pypi.org\", ports: [443]}"));
    EXPECT_THAT(Texts(Learn({Dns("pypi.org")}).names), ElementsAre("pypi.org"));
    EXPECT_TRUE(JudgeOf(with).ok());
}

TEST(Learner, PortsThatTheKernelChoseAreAnyPort) {
    const Proposal proposal = Learn({Net("connect", "127.0.0.1", 40'001)});
    const StatusOr<Judge> judge = JudgeOf(proposal);
    ASSERT_TRUE(judge.ok()) << judge.status();
    EXPECT_TRUE(Allows(*judge, CaseKind::kConnect, "127.0.0.1:51234"));
}

// A sandbox chooses the names of its files, and a file of events may hold anything.
TEST(Learner, NamesOfOthersStayInTheirPlace) {
    v1::Event event = File("open-read", "/data/x\"\n    write: [/**]");
    event.mutable_process()->set_exe("/usr/bin/a\nspec: {}");
    event.set_id("e\n#");
    v1::Event escaped = File("open-read", "/data/\\x0a");
    escaped.mutable_file()->mutable_path_detail()->set_escaped(true);
    const Proposal proposal = Learn({event, escaped, File("open-read", "/data/it's \"a\": *b [c]")});
    const StatusOr<Judge> judge = JudgeOf(proposal);
    ASSERT_TRUE(judge.ok()) << judge.status() << ToYaml(proposal, {.name = "learned"});
    EXPECT_FALSE(Allows(*judge, CaseKind::kWrite, "/etc/passwd"));
    EXPECT_TRUE(Allows(*judge, CaseKind::kRead, "/data/it's \"a\": *b [c]"));
    EXPECT_THAT(ToYaml(proposal, {.name = "learned"}), HasSubstr("# left out: no pattern can name /data/\\x0a"));
}

}  // namespace
}  // namespace stockade::policy
