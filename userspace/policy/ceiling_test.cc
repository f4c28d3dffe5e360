#include "userspace/policy/ceiling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/policy/ceiling_dns.h"
#include "userspace/policy/judge.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ResolvedPolicy Policy(const std::string& name, const std::string& spec) {
    ParseResult parsed = ParseFiles(
        {{"t.yaml", absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name,
                                 "}\nspec: ", spec, "\n")}});
    EXPECT_FALSE(HasErrors(parsed.diagnostics)) << ToString(parsed.diagnostics.at(0));
    PolicyLibrary library;
    std::vector<Diagnostic> found;
    library.Add(std::move(parsed.policies), found);
    StatusOr<ResolvedPolicy> policy = library.Resolve(name);
    EXPECT_TRUE(policy.ok()) << policy.status();
    return *std::move(policy);
}

ResolvedPolicy Both(const std::string& ceiling, const std::string& own) {
    return Narrow(Policy("ceiling", ceiling), Policy("own", own)).policy;
}

Judge JudgeOf(const ResolvedPolicy& policy) {
    StatusOr<Judge> judge = Judge::Create(policy);
    EXPECT_TRUE(judge.ok()) << judge.status();
    return *std::move(judge);
}

bool Allowed(const Judge& judge, CaseKind kind, const std::string& object,
             std::optional<uint32_t> uid = std::nullopt) {
    TestCase question;
    question.kind = kind;
    question.object = object;
    question.uid = uid;
    return judge.Decide(question).allowed;
}

bool Allowed(const ResolvedPolicy& policy, CaseKind kind, const std::string& object) {
    return Allowed(JudgeOf(policy), kind, object);
}

struct Question {
    CaseKind kind;
    const char* object;
    std::optional<uint32_t> uid = std::nullopt;
};
// Each is allowed by some of the policies below and refused by others.
const Question kQuestions[] = {{CaseKind::kExec, "/usr/bin/python3"},
                               {CaseKind::kExec, "/usr/bin/git"},
                               {CaseKind::kExec, "/bin/sh"},
                               {CaseKind::kMap, "/usr/lib/libc.so.6"},
                               {CaseKind::kMap, "/opt/lib/x.so"},
                               {CaseKind::kRead, "/etc/passwd"},
                               {CaseKind::kRead, "/work/a/b"},
                               {CaseKind::kWrite, "/work/a/b"},
                               {CaseKind::kWrite, "/tmp/x"},
                               {CaseKind::kRead, "/home/u/.ssh/id"},
                               {CaseKind::kConnect, "10.1.2.3:443"},
                               {CaseKind::kConnect, "10.1.2.3:80"},
                               {CaseKind::kConnect, "10.2.0.1:443"},
                               {CaseKind::kConnect, "192.0.2.7:9000"},
                               {CaseKind::kConnect, "[2001:db8::1]:443"},
                               {CaseKind::kConnect, "[2001:db8:1::1]:1"},
                               {CaseKind::kConnect, "10.1.2.3:443", 1000u},
                               {CaseKind::kConnect, "192.0.2.7:9000", 1000u},
                               {CaseKind::kConnect, "10.1.2.3:80", 7u},
                               {CaseKind::kConnect, "127.0.0.1:8000"},
                               {CaseKind::kConnect, "127.0.0.1:8040"},
                               {CaseKind::kBind, "0.0.0.0:8000"},
                               {CaseKind::kBind, "0.0.0.0:9000"},
                               {CaseKind::kUnix, "/run/db.sock"},
                               {CaseKind::kUnix, "/run/other.sock"},
                               {CaseKind::kUnix, "@bus"},
                               {CaseKind::kDns, "pypi.org"},
                               {CaseKind::kDns, "files.pypi.org"},
                               {CaseKind::kDns, "a.files.pypi.org"},
                               {CaseKind::kDns, "example.com"}};

const char* const kSpecs[] = {
    "{exec: {allow: [/usr/bin/**], libraries: [/usr/lib/**]}, files: {read: [/**], deny: ['**/.ssh/**']}, "
    "network: {}}",
    "{exec: {allow: [/usr/bin/python3, '**/sh']}, files: {write: [/work/**, /tmp/*]}, network: {allow: "
    "[{cidr: 10.0.0.0/8}, {cidr: '2001:db8::/32'}]}}",
    "{extends: [], exec: {}, files: {read: ['/**/b']}, network: {allow: [{cidr: 10.1.0.0/16, ports: [443, "
    "8000-9000]}, {unix: '/run/*.sock'}, {unix: '@bus'}], "
    "loopback: [any], bind: [8000-8999]}}",
    "{files: {read: [/etc/**]}, network: {allow: [{cidr: 0.0.0.0/0, ports: [80-443, 9000]}, {unix: "
    "/run/db.sock}, {name: pypi.org}], "
    "loopback: [8000-8050], bind: [any], uids: {1000: [{cidr: 192.0.2.0/24}], 7: []}}, dns: {allow: "
    "['*.pypi.org']}}",
    "{network: {allow: [{cidr: 192.0.2.0/24}, {cidr: '2001:db8:1::/48', ports: [1]}, {unix: '@bus'}], host: "
    "[8100], "
    "uids: {1000: [{cidr: 10.0.0.0/8}]}}, dns: {mode: open}}",
    "{network: {allow: [{name: '*.files.pypi.org'}, {name: example.com}], bind: [9000]}, dns: {mode: "
    "closed}}",
    "{exec: {deny: [/usr/bin/git], allow: [/**]}, files: {write: [/**]}, network: {allow: [{cidr: '::/0'}]}, "
    "dns: {allow: [files.pypi.org, example.com]}}"};

TEST(Narrow, WhatBothAllowIsAllowedAndNothingElse) {
    int allowed = 0, refused = 0;
    for (const char* ceiling : kSpecs) {
        for (const char* own : kSpecs) {
            const Judge a = JudgeOf(Policy("ceiling", ceiling)), b = JudgeOf(Policy("own", own)),
                        both = JudgeOf(Both(ceiling, own));
            for (const Question& question : kQuestions) {
                const bool want = Allowed(a, question.kind, question.object, question.uid) &&
                                  Allowed(b, question.kind, question.object, question.uid);
                EXPECT_EQ(Allowed(both, question.kind, question.object, question.uid), want)
                    << CaseName(question.kind) << " " << question.object << " of\n"
                    << ceiling << "\nand\n"
                    << own;
                ++(want ? allowed : refused);
            }
        }
    }
    EXPECT_GT(allowed, 200);
    EXPECT_GT(refused, 200);
}

TEST(Narrow, OfASectionThatOneHasNotTheOthersHolds) {
    for (const auto& [ceiling, own] :
         {std::pair("{exec: {allow: [/bin/a]}, files: {read: []}, network: {}}", "{}"),
          std::pair("{}", "{exec: {allow: [/bin/a]}, files: {read: []}, network: {}}")}) {
        const ResolvedPolicy both = Both(ceiling, own);
        EXPECT_TRUE(Allowed(both, CaseKind::kExec, "/bin/a")) << own;
        EXPECT_FALSE(Allowed(both, CaseKind::kExec, "/bin/b")) << own;
        EXPECT_FALSE(Allowed(both, CaseKind::kRead, "/work")) << own;
        EXPECT_FALSE(Allowed(both, CaseKind::kConnect, "10.0.0.1:1")) << own;
        EXPECT_FALSE(Allowed(both, CaseKind::kUnix, "/run/x")) << own;
    }
    EXPECT_FALSE(Both("{}", "{files: {read: []}}").present[SK_SECTION_EXEC]);
    EXPECT_TRUE(
        Allowed(Both("{exec: {}}", "{network: {allow: [{unix: /run/x}]}}"), CaseKind::kUnix, "/run/x"));
}

TEST(Narrow, TheStricterOfSingleValues) {
    const char* const strict =
        "{mode: enforce, violation: kill-sandbox, entered: deny, exec: {}, record: {exec: all, files: all}}";
    const char* const lax =
        "{mode: observe, violation: deny, entered: observe, exec: {}, grants: [bpf], record: {exec: "
        "violations, files: first}}";
    for (const ResolvedPolicy& both : {Both(strict, lax), Both(lax, strict)}) {
        EXPECT_EQ(both.mode, SK_MODE_ENFORCE);
        EXPECT_EQ(both.violation[SK_SECTION_EXEC], SK_VERDICT_KILL_SANDBOX);
        EXPECT_EQ(both.entered, SK_VERDICT_DENY);
        EXPECT_EQ(both.grants, 0u);
        EXPECT_EQ(both.record[SK_SECTION_EXEC], SK_RECORD_ALL);
        EXPECT_EQ(both.record[SK_SECTION_FILES], SK_RECORD_ALL);
    }
    EXPECT_EQ(Both("{entered: observe}", "{entered: enforce}").entered, SK_VERDICT_ALLOW) << "its rules hold";
    EXPECT_EQ(Both("{entered: enforce}", "{entered: observe}").entered, SK_VERDICT_ALLOW);
    EXPECT_EQ(Both("{mode: observe}", "{mode: observe}").mode, SK_MODE_OBSERVE);
    EXPECT_EQ(Both("{grants: [bpf, ptrace]}", "{grants: [ptrace, mount]}").grants,
              uint64_t{1} << SK_GRANT_PTRACE);
    // What follows is said by who speaks of the section.
    EXPECT_EQ(Both("{violation: kill-sandbox}", "{exec: {}}").violation[SK_SECTION_EXEC], SK_VERDICT_DENY);
    EXPECT_EQ(Both("{exec: {violation: kill-process}}", "{violation: deny}").violation[SK_SECTION_EXEC],
              SK_VERDICT_KILL_PROCESS);
}

TEST(Narrow, DenyAllStaysThatUnderAnyCeilingAndAsOne) {
    PolicyLibrary library;
    const ResolvedPolicy none = *library.Resolve("deny-all"), open = Policy("open", "{exec: {allow: [/**]}}");
    for (const ResolvedPolicy& both : {Narrow(none, open).policy, Narrow(open, none).policy}) {
        EXPECT_TRUE(both.deny_all);
        EXPECT_FALSE(Allowed(both, CaseKind::kExec, "/bin/true"));
    }
}

TEST(Narrow, TheHostsLoopbackIsNotTheSandboxsOwn) {
    const ResolvedPolicy both = Both("{network: {loopback: [any], host: [8000-8010]}}",
                                     "{network: {loopback: [9000], host: [any, 8100]}}");
    EXPECT_TRUE(Allowed(both, CaseKind::kConnect, "127.0.0.1:9000"));
    EXPECT_TRUE(Allowed(both, CaseKind::kConnect, "127.0.0.1:8010"));
    EXPECT_FALSE(Allowed(both, CaseKind::kConnect, "127.0.0.1:8100"))
        << "one allows it of the host, the other of the sandbox";
}

TEST(Narrow, ARuleByNameNeedsANameAboveIt) {
    // Which addresses it has is not known before it is asked for: an address rule above it decides nothing.
    const Narrowed got = Narrow(Policy("ceiling", "{network: {allow: [{cidr: 0.0.0.0/0}]}}"),
                                Policy("own", "{network: {allow: [{name: pypi.org}]}}"));
    EXPECT_THAT(got.policy.network, IsEmpty());
    ASSERT_EQ(got.notes.size(), 1u);
    EXPECT_THAT(got.notes[0], HasSubstr("ceiling leaves nothing of pypi.org"));
    const ResolvedPolicy named =
        Both("{network: {allow: [{name: '*.pypi.org', ports: [443], tls_name: strict}]}}",
             "{network: {allow: [{name: files.pypi.org, ports: [80-500]}, {name: pypi.org}]}}");
    EXPECT_THAT(Both("{network: {allow: [{name: a.test, ports: [1, 3-5]}]}}",
                     "{network: {allow: [{name: a.test, ports: [2, 6-9]}]}}")
                    .network,
                IsEmpty());
    ASSERT_EQ(named.network.size(), 1u);
    EXPECT_EQ(named.network[0].text, "files.pypi.org");
    EXPECT_TRUE(named.network[0].tls_strict);
    ASSERT_EQ(named.network[0].ports.size(), 1u);
    EXPECT_EQ(named.network[0].ports[0].first, 443);
    EXPECT_EQ(named.network[0].ports[0].last, 443);
}

TEST(Narrow, BudgetsMayBeMadeSmallerAndNothingIsSetThatTheCeilingLeavesToTheNode) {
    const Narrowed got = Narrow(
        Policy("ceiling",
               "{dns: {mode: open, resolvers: [10.0.0.1, 10.0.0.2], budget: {zone: 128B}, grants: {pypi.org: "
               "1KiB, a.test: 4KiB}}}"),
        Policy("own",
               "{dns: {mode: observe, resolvers: [10.0.0.2, 192.0.2.1], budget: {zone: none, total: none}, "
               "grants: {files.pypi.org: 4KiB, a.test: 64B, b.test: none}}}"));
    const DnsSection& dns = *got.policy.dns;
    EXPECT_EQ(dns.mode, SK_DNS_OPEN);
    ASSERT_EQ(dns.resolvers.size(), 1u);
    EXPECT_EQ(dns.resolvers[0].text, "10.0.0.2");
    EXPECT_EQ(dns.budget, (std::map<std::string, uint32_t>{{"zone", 128}}));
    EXPECT_EQ(dns.grants.at("pypi.org").bytes, 1024u);
    EXPECT_EQ(dns.grants.at("files.pypi.org").bytes, 1024u);
    EXPECT_EQ(dns.grants.at("a.test").bytes, 64u);
    EXPECT_EQ(dns.grants.count("b.test"), 0u);
    EXPECT_THAT(got.notes,
                ElementsAre(HasSubstr("dns.budget.total, dns.grants b.test, dns.resolvers 192.0.2.1")));
    const DnsSection smaller =
        *Both("{dns: {grants: {pypi.org: 1KiB}, budget: {zone: 256B}}}", "{dns: {budget: {zone: 16B}}}").dns;
    EXPECT_EQ(smaller.budget.at("zone"), 16u);
    EXPECT_EQ(smaller.grants.at("pypi.org").bytes, 16u);
}

TEST(Narrow, ANetworkWithoutDnsAsksForNothing) {
    EXPECT_EQ(Both("{network: {}}", "{network: {}, dns: {mode: open}}").dns->mode, SK_DNS_CLOSED);
    EXPECT_EQ(Both("{network: {}, dns: {mode: open}}", "{network: {}}").dns->mode, SK_DNS_CLOSED);
    EXPECT_EQ(Both("{}", "{dns: {mode: open}}").dns->mode, SK_DNS_OPEN)
        << "a ceiling that says nothing of either";
    EXPECT_EQ(Both("{dns: {mode: closed}}", "{}").dns->mode, SK_DNS_CLOSED);
    EXPECT_FALSE(Both("{network: {}}", "{exec: {}}").dns.has_value());
}

TEST(Narrow, SaysWhichOfTheTwoRefuses) {
    const ResolvedPolicy both = Both("{exec: {allow: [/bin/a]}}", "{exec: {allow: [/bin/**]}}");
    const StatusOr<Judge> judge = Judge::Create(both);
    ASSERT_TRUE(judge.ok());
    TestCase question;
    question.kind = CaseKind::kExec;
    question.object = "/bin/b";
    EXPECT_THAT(judge->Decide(question).reason,
                HasSubstr("own allows /bin/b, but the policy it is cut down to by its ceiling does not"));
}

TEST(CoversPattern, NamesAndStars) {
    EXPECT_TRUE(CoversPattern("*.pypi.org", "a.pypi.org"));
    EXPECT_TRUE(CoversPattern("*.pypi.org", "*.a.pypi.org"));
    EXPECT_FALSE(CoversPattern("*.pypi.org", "pypi.org"));
    EXPECT_FALSE(CoversPattern("*.pypi.org", "*.org"));
    EXPECT_FALSE(CoversPattern("*.pypi.org", "evilpypi.org"));
    EXPECT_FALSE(CoversPattern("a.pypi.org", "*.pypi.org"));
}

}  // namespace
}  // namespace stockade::policy
