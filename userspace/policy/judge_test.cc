#include "userspace/policy/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/policy/canonical.h"
#include "userspace/policy/diff.h"
#include "userspace/policy/lint.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::policy {
namespace {

using testing::HasSubstr;

struct Both {
    SandboxPolicy document;
    ResolvedPolicy resolved;
};

Both Parsed(const std::string& spec) {
    ParseResult parsed = ParseFiles(
        {{"t.yaml",
          absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: t}\nspec:\n",
                       spec)}});
    EXPECT_FALSE(HasErrors(parsed.diagnostics)) << ToString(parsed.diagnostics.at(0));
    Both both;
    both.document = parsed.policies[0];
    PolicyLibrary library;
    std::vector<Diagnostic> diagnostics;
    library.Add(std::move(parsed.policies), diagnostics);
    both.resolved = *library.Resolve("t");
    return both;
}

Decision Ask(const Both& policy, CaseKind kind, const std::string& object) {
    StatusOr<Judge> judge = Judge::Create(policy.resolved);
    EXPECT_TRUE(judge.ok()) << judge.status();
    TestCase question;
    question.kind = kind;
    question.object = object;
    return judge->Decide(question);
}

TEST(Judge, NamesTheRuleThatDecides) {
    const Both p = Parsed(
        "  files:\n    read: [/a/**]\n    deny: [\"**/key\"]\n  network:\n    allow: [{cidr: 10.0.0.0/8, "
        "ports: [443]}]\n");
    EXPECT_EQ(Ask(p, CaseKind::kRead, "/a/x").reason, "files.read '/a/**' (t.yaml:6:12) allows /a/x");
    EXPECT_EQ(Ask(p, CaseKind::kRead, "/a/key").reason, "files.deny '**/key' (t.yaml:7:12) refuses /a/key");
    EXPECT_EQ(Ask(p, CaseKind::kRead, "/b").reason, "no rule of files allows /b");
    EXPECT_FALSE(Ask(p, CaseKind::kRead, "/b").allowed);
    EXPECT_EQ(Ask(p, CaseKind::kConnect, "10.1.1.1:443").at.line, 9);
    EXPECT_FALSE(Ask(p, CaseKind::kConnect, "10.1.1.1:80").allowed);
    const Decision exec = Ask(p, CaseKind::kExec, "/b");
    EXPECT_TRUE(exec.allowed && !exec.enforced) << "no exec section";
}

// What a response took from a running sandbox, whatever the rules allow and whether they say anything.
TEST(Judge, ADeniedAddressIsRefusedAndNoOther) {
    NetworkRule address;
    address.family = 4;
    address.bits = 32;
    address.lo = 0x0a010101;
    for (const char* rules :
         {"  network:\n    allow: [{cidr: 10.0.0.0/8}, {cidr: 10.1.1.1/32, ports: [443]}]\n",
          "  network:\n    allow: [{cidr: 10.0.0.0/8}]\n    uids: {0: [{cidr: 10.0.0.0/8}]}\n"}) {
        Both p = Parsed(rules);
        EXPECT_TRUE(Ask(p, CaseKind::kConnect, "10.1.1.1:443").allowed);
        const std::string before = CanonicalText(p.resolved);
        p.resolved.denied.push_back(address);
        EXPECT_FALSE(Ask(p, CaseKind::kConnect, "10.1.1.1:443").allowed) << rules;
        EXPECT_TRUE(Ask(p, CaseKind::kConnect, "10.1.1.2:443").allowed) << rules;
        EXPECT_NE(CanonicalText(p.resolved), before);
    }
}

std::string LintOf(const std::string& spec) {
    const Both p = Parsed(spec);
    return absl::StrJoin(Lint(p.document, p.resolved), "\n",
                         [](std::string* out, const Diagnostic& d) { *out += ToString(d); });
}

TEST(Lint, AbsentSectionsAreTold) {
    EXPECT_THAT(LintOf("  exec: {}\n  files: {}\n"), HasSubstr("no network section"));
    EXPECT_EQ(LintOf("  exec: {}\n  files: {}\n  network: {}\n"), "");
}

TEST(Lint, AnAllowThatDeniesSwallowTogetherIsFound) {
    const std::string rest = "  exec: {}\n  network: {}\n";
    EXPECT_THAT(LintOf(rest + "  files: {read: [/a/b, /c], deny: [/a/**]}\n"),
                HasSubstr("t.yaml:7:18: warning: files.read '/a/b' allows nothing"));
    EXPECT_THAT(LintOf(rest + "  files: {read: [/a/.ssh/id], deny: [\"**/.ssh/**\"]}\n"),
                HasSubstr("allows nothing"));
    EXPECT_EQ(LintOf(rest + "  files: {read: [/a/**], deny: [/a/b]}\n"), "");
    EXPECT_EQ(LintOf(rest + "  files: {read: [\"/a/*.txt\"], deny: [\"/a/b*\"]}\n"), "");
}

TEST(Lint, OneUidGuardsNothing) {
    const std::string rest = "  exec: {}\n  files: {}\n";
    EXPECT_THAT(LintOf(rest + "  network: {uids: {7: [{cidr: 10.0.0.0/8}]}}\n"),
                HasSubstr("uids lists 7 alone"));
    EXPECT_EQ(LintOf(rest + "  network: {uids: {7: [{cidr: 10.0.0.0/8}], 8: []}}\n"), "");
    EXPECT_THAT(LintOf(rest + "  network: {allow: [{unix: /run/*}]}\n"),
                HasSubstr("under the backend `lsm` only"));
}

TEST(Explain, ANameByItsRuleOrByTheMode) {
    const char* rest = "  exec: {}\n  files: {}\n";
    const Both names = Parsed(absl::StrCat(rest, "  network: {allow: [{name: \"*.pypi.org\", ports: [443]}]}\n  dns: {allow: [pypi.org]}\n"));
    EXPECT_EQ(Ask(names, CaseKind::kDns, "files.pypi.org").reason, "network.allow '*.pypi.org' (t.yaml:7:21) allows files.pypi.org");
    EXPECT_THAT(Ask(names, CaseKind::kDns, "pypi.org").reason, HasSubstr("dns.allow 'pypi.org'"));
    EXPECT_FALSE(Ask(names, CaseKind::kDns, "evil.test").allowed);
    EXPECT_EQ(Ask(names, CaseKind::kDns, "evil.test").reason, "no rule of dns allows evil.test");
    EXPECT_FALSE(Ask(names, CaseKind::kDns, "Pypi.org").allowed);
    EXPECT_FALSE(Ask(Parsed(rest), CaseKind::kDns, "pypi.org").allowed);
    EXPECT_THAT(Ask(Parsed(rest), CaseKind::kDns, "pypi.org").reason, HasSubstr("nothing resolves"));
    EXPECT_TRUE(Ask(Parsed(absl::StrCat(rest, "  dns: {mode: open}\n")), CaseKind::kDns, "any.test").allowed);
    EXPECT_FALSE(Ask(Parsed(absl::StrCat(rest, "  dns: {mode: closed, allow: [a.test]}\n")), CaseKind::kDns, "a.test").allowed);
}

std::string DiffOf(const std::string& from, const std::string& to) {
    StatusOr<std::vector<Change>> changes = Diff(Parsed(from).resolved, Parsed(to).resolved);
    EXPECT_TRUE(changes.ok()) << changes.status();
    return absl::StrJoin(*changes, "; ", [](std::string* out, const Change& c) {
        absl::StrAppend(out,
                        c.kind == Change::kAllowed   ? "+"
                        : c.kind == Change::kRefused ? "-"
                                                     : "~",
                        c.what, " ", c.object, c.rule.empty() ? "" : absl::StrCat(" by ", c.rule));
    });
}

TEST(Diff, ShowsWhatChangesAndNothingElse) {
    const std::string files = "  extends: []\n  exec: {}\n  network: {}\n  files: ";
    EXPECT_EQ(DiffOf(files + "{read: [/a/**, /b]}\n", files + "{read: [/b, /a/**]}\n"), "");
    EXPECT_EQ(DiffOf(files + "{read: [/a/**, /a/b]}\n", files + "{read: [/a/**]}\n"), "") << "covered anyway";
    EXPECT_EQ(DiffOf(files + "{read: [/a]}\n", files + "{read: [/a], write: [/w]}\n"),
              "+read /w by /w; +write /w by /w");
    EXPECT_EQ(DiffOf(files + "{read: [/a/*]}\n", files + "{read: [/a/*], deny: [/a/k]}\n"),
              "-read /a/k by /a/k");
}

TEST(Diff, NetworkAndGrants) {
    const std::string rest = "  exec: {}\n  files: {}\n";
    EXPECT_EQ(
        DiffOf(
            rest + "  network: {allow: [{cidr: 10.0.0.0/8}], loopback: [80]}\n",
            rest +
                "  network: {allow: [{cidr: 10.0.0.0/8, ports: [443]}], loopback: [80]}\n  grants: [bpf]\n"),
        "+grant bpf; +network 10.0.0.0/8 ports 443; -network 10.0.0.0/8 any port");
}

TEST(Diff, NamesAreComparedByWhatTheyLetBeAsked) {
    const std::string rest = "  exec: {}\n  files: {}\n  network: {}\n  dns: ";
    const std::string closed = rest + "{mode: closed}\n", open = rest + "{mode: open}\n";
    const std::string some = rest + "{allow: [a.test, \"*.b.test\"]}\n";
    EXPECT_EQ(DiffOf(closed, open), "+dns every name");
    EXPECT_EQ(DiffOf(open, closed), "-dns every name");
    EXPECT_EQ(DiffOf(closed, some), "+dns *.b.test; +dns a.test");
    EXPECT_EQ(DiffOf(some, open), "+dns every name");
    EXPECT_EQ(DiffOf(open, some), "-dns every name");
    EXPECT_EQ(DiffOf(some, rest + "{allow: [a.test, \"*.c.b.test\", b.test]}\n"),
              "+dns b.test; -dns *.b.test");
    EXPECT_EQ(DiffOf(some, some), "");
    EXPECT_EQ(DiffOf(closed, "  exec: {}\n  files: {}\n  network: {}\n"), "") << "neither resolves anything";
    EXPECT_EQ(DiffOf(closed, rest + "{mode: closed, allow: [a.test]}\n"), "") << "closed all the same";
    EXPECT_EQ(DiffOf("  exec: {}\n  files: {}\n  network: {}\n",
                     "  exec: {}\n  files: {}\n  network: {allow: [{name: a.test, ports: [443]}]}\n"),
              "+network a.test ports 443; +dns a.test");
    EXPECT_EQ(DiffOf("  exec: {}\n  files: {}\n  network: {allow: [{name: a.test}]}\n",
                     "  exec: {}\n  files: {}\n  network: {allow: [{name: a.test, tls_name: strict}]}\n"),
              "+network a.test any port tls_name strict; -network a.test any port");
    EXPECT_EQ(DiffOf(open, rest + "{mode: observe}\n"), "~dns.mode enforce -> observe");
    EXPECT_EQ(
        DiffOf(some, rest + "{allow: [a.test, \"*.b.test\"], budget: {zone: 4KiB, total: none}, resolvers: "
                            "[1.1.1.1], grants: {b.test: 1KiB}, violation: kill-sandbox}\n"),
        "~dns.budget.zone default -> 4096B; ~dns.budget.total default -> none; ~dns.grants.b.test default -> 1024B; "
        "~dns.resolvers the host's -> 1.1.1.1; ~dns.violation deny -> kill-sandbox");
}

}  // namespace
}  // namespace stockade::policy
