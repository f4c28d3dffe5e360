#include "userspace/policy/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/policy/canonical.h"
#include "userspace/policy/compile.h"
#include "userspace/policy/judge.h"
#include "userspace/policy/parse.h"

namespace stockade::policy {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string Document(const std::string& name, const std::string& spec) {
    return absl::StrCat("---\napiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name,
                        "}\nspec: ", spec, "\n");
}

PolicyLibrary Library(const std::string& text, std::vector<Diagnostic>* diagnostics = nullptr) {
    ParseResult parsed = ParseFiles({{"t.yaml", text}});
    EXPECT_FALSE(HasErrors(parsed.diagnostics)) << ToString(parsed.diagnostics.at(0));
    PolicyLibrary library;
    std::vector<Diagnostic> found;
    library.Add(std::move(parsed.policies), found);
    if (diagnostics != nullptr)
        *diagnostics = found;
    else
        EXPECT_TRUE(found.empty());
    return library;
}

bool Allowed(const ResolvedPolicy& policy, CaseKind kind, const std::string& object,
             std::optional<uint32_t> uid = std::nullopt) {
    StatusOr<Judge> judge = Judge::Create(policy);
    EXPECT_TRUE(judge.ok()) << judge.status();
    TestCase question;
    question.kind = kind;
    question.object = object;
    question.uid = uid;
    return judge->Decide(question).allowed;
}

TEST(Resolve, TheBaseIsOnUnlessTurnedOff) {
    PolicyLibrary library =
        Library(Document("with", "{files: {}}") + Document("without", "{extends: [], files: {}}"));
    EXPECT_TRUE(Allowed(*library.Resolve("with"), CaseKind::kWrite, "/dev/null"));
    EXPECT_FALSE(Allowed(*library.Resolve("without"), CaseKind::kWrite, "/dev/null"));
    EXPECT_THAT(library.Resolve("with")->bases, Contains("base"));
    // What the base says about exec does not make the section present.
    EXPECT_FALSE(library.Resolve("with")->present[SK_SECTION_EXEC]);
    EXPECT_TRUE(library.Resolve("with")->present[SK_SECTION_FILES]);
}

TEST(Resolve, TheBaseKeepsSecretsOfOtherProcesses) {
    PolicyLibrary library = Library(Document("p", "{files: {}, exec: {}}"));
    const ResolvedPolicy policy = *library.Resolve("p");
    EXPECT_TRUE(Allowed(policy, CaseKind::kRead, "/proc/12/maps"));
    EXPECT_FALSE(Allowed(policy, CaseKind::kRead, "/proc/12/environ"));
    EXPECT_FALSE(Allowed(policy, CaseKind::kRead, "/proc/12/mem"));
    EXPECT_FALSE(Allowed(policy, CaseKind::kRead, "/etc/shadow"));
    EXPECT_TRUE(Allowed(policy, CaseKind::kMap, "/lib64/ld-linux-x86-64.so.2"));
    EXPECT_FALSE(Allowed(policy, CaseKind::kExec, "/lib64/ld-linux-x86-64.so.2"));
}

TEST(Resolve, OfDnsTooListsJoinAndTheNearerValueWins) {
    PolicyLibrary library = Library(
        Document("a", "{dns: {mode: closed, allow: [a.test], resolvers: [10.0.0.1], budget: {zone: 128B, total: 1KiB}, grants: {a.test: 1KiB, b.test: 1KiB}}}") +
        Document("b", "{extends: [a], dns: {allow: [b.test], budget: {zone: 64B}, grants: {b.test: none}}}") +
        Document("c", "{extends: [b], dns: {mode: open, resolvers: [10.0.0.2]}}"));
    const std::optional<DnsSection> b = library.Resolve("b")->dns, c = library.Resolve("c")->dns;
    ASSERT_TRUE(b && c);
    EXPECT_EQ(b->mode, SK_DNS_CLOSED);
    EXPECT_EQ(b->resolvers.at(0).text, "10.0.0.1");
    EXPECT_EQ(c->mode, SK_DNS_OPEN);
    ASSERT_EQ(c->allow.size(), 2u);
    ASSERT_EQ(c->resolvers.size(), 1u);
    EXPECT_EQ(c->resolvers[0].text, "10.0.0.2");
    EXPECT_EQ(c->budget, (std::map<std::string, uint32_t>{{"zone", 64}, {"total", 1024}}));
    EXPECT_EQ(c->grants.at("a.test").bytes, 1024u);
    EXPECT_EQ(c->grants.at("b.test").bytes, kNoDnsBudget);
}

TEST(Resolve, ListsJoinAndTheNearerValueWins) {
    PolicyLibrary library = Library(
        Document("a",
                 "{violation: kill-process, exec: {allow: [/a], violation: kill-sandbox}, grants: [bpf], "
                 "mode: observe}") +
        Document("b", "{extends: [a], exec: {allow: [/b]}, files: {violation: deny}, grants: [ptrace]}") +
        Document("c", "{extends: [b], violation: deny, mode: enforce}"));
    const ResolvedPolicy b = *library.Resolve("b");
    EXPECT_TRUE(Allowed(b, CaseKind::kExec, "/a"));
    EXPECT_TRUE(Allowed(b, CaseKind::kExec, "/b"));
    EXPECT_EQ(b.violation[SK_SECTION_EXEC], SK_VERDICT_KILL_SANDBOX);
    EXPECT_EQ(b.violation[SK_SECTION_FILES], SK_VERDICT_DENY);
    EXPECT_EQ(b.violation[SK_SECTION_ESCAPE], SK_VERDICT_KILL_PROCESS);
    EXPECT_EQ(b.grants, uint64_t{1} << SK_GRANT_BPF | uint64_t{1} << SK_GRANT_PTRACE);
    EXPECT_EQ(b.mode, SK_MODE_OBSERVE);
    EXPECT_EQ(library.Resolve("c")->violation[SK_SECTION_EXEC], SK_VERDICT_DENY);
    EXPECT_EQ(library.Resolve("c")->mode, SK_MODE_ENFORCE);
}

TEST(Resolve, CirclesAndUnknownNamesAreErrorsWithAPlace) {
    PolicyLibrary library = Library(Document("a", "{extends: [b]}") + Document("b", "{extends: [a]}") +
                                    Document("c", "{extends: [bsae]}"));
    EXPECT_THAT(std::string(library.Resolve("a").status().message()), HasSubstr("in a circle: a -> b -> a"));
    EXPECT_THAT(std::string(library.Resolve("c").status().message()),
                HasSubstr("t.yaml:15:18: error: extends the unknown policy 'bsae'; did you mean 'base'?"));
    EXPECT_TRUE(absl::IsNotFound(library.Resolve("nobody").status()));
}

TEST(Resolve, OneOfItsOwnNamespaceComesBeforeOneThatAllHave) {
    const auto of = [](const std::string& name_space, const std::string& name, const std::string& spec) {
        return absl::StrCat("---\napiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name, ", namespace: ", name_space,
                            "}\nspec: ", spec, "\n");
    };
    PolicyLibrary library = Library(Document("a", "{exec: {allow: [/node]}}") + of("x", "a", "{extends: [a], exec: {allow: [/own]}}") +
                                    of("x", "b", "{extends: [a], exec: {}}") + of("y", "b", "{extends: [a], exec: {}}") +
                                    of("x", "base", "{exec: {allow: [/bad]}}"));
    EXPECT_TRUE(Allowed(*library.Resolve("x/b"), CaseKind::kExec, "/own"));
    EXPECT_TRUE(Allowed(*library.Resolve("x/b"), CaseKind::kExec, "/node")) << "which its own one is built on";
    EXPECT_FALSE(Allowed(*library.Resolve("x/b"), CaseKind::kExec, "/bad")) << "what is built on when nothing is said is the node's base";
    EXPECT_FALSE(Allowed(*library.Resolve("y/b"), CaseKind::kExec, "/own"));
    EXPECT_TRUE(Allowed(*library.Resolve("y/b"), CaseKind::kExec, "/node"));
    EXPECT_FALSE(Allowed(*library.Resolve("a"), CaseKind::kExec, "/own"));
}

TEST(Resolve, ABuiltInNameMeansWhatIsBuiltIn) {
    std::vector<Diagnostic> diagnostics;
    Library(Document("deny-all", "{exec: {allow: [/**]}}"), &diagnostics);
    ASSERT_EQ(diagnostics.size(), 1u);
    EXPECT_THAT(diagnostics[0].message, HasSubstr("is built in"));
}

TEST(Resolve, DenyAllIsFlaggedAndWhatExtendsItIsNot) {
    PolicyLibrary library = Library(Document("mine", "{extends: [deny-all], exec: {allow: [/a]}}"));
    EXPECT_TRUE(library.Resolve("deny-all")->deny_all);
    EXPECT_FALSE(library.Resolve("mine")->deny_all);
    EXPECT_TRUE(Allowed(*library.Resolve("mine"), CaseKind::kExec, "/a"));
    EXPECT_FALSE(Allowed(*library.Resolve("mine"), CaseKind::kRead, "/a"));
}

TEST(Canonical, OrderAndPlaceDoNotMatterAndMeaningDoes) {
    const std::string one = CanonicalText(*Library(Document("p", "{files: {read: [/a, /b]}}")).Resolve("p"));
    EXPECT_EQ(one, CanonicalText(*Library("\n\n" + Document("p", "{files: {read: [/b, /a]}}")).Resolve("p")));
    EXPECT_NE(one, CanonicalText(*Library(Document("p", "{files: {read: [/a], write: [/b]}}")).Resolve("p")));
    EXPECT_NE(one, CanonicalText(
                       *Library(Document("p", "{files: {read: [/a, /b]}, entered: observe}")).Resolve("p")));
}

}  // namespace
}  // namespace stockade::policy
