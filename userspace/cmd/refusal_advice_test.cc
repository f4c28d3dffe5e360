#include "userspace/cmd/refusal_advice.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/resolve.h"

namespace stockade::cmd {
namespace {

policy::ResolvedPolicy Policy(const std::string& spec) {
    policy::ParseResult parsed = policy::ParseFiles(
        {{"p.yaml",
          absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: p}\nspec:\n",
                       spec)}});
    EXPECT_TRUE(parsed.diagnostics.empty()) << ToString(parsed.diagnostics.front());
    policy::PolicyLibrary library;
    library.Add(std::move(parsed.policies), parsed.diagnostics);
    return *library.Resolve("p");
}

constexpr char kSpec[] =
    "  exec: {allow: [/usr/bin/true]}\n"
    "  files:\n    read: [/in/**]\n    write: [/out/**]\n    deny: [\"**/secret\"]\n"
    "  network: {}\n";

v1::Refusal Advised(const std::string& spec, const char* code, const char* operation, const char* object,
                    const char* lock = "landlock", bool dry_run = false, const char* section = "files") {
    v1::Summary summary;
    v1::Refusal& refusal = *summary.add_refusals();
    refusal.set_code(code);
    refusal.set_operation(operation);
    refusal.set_object(object);
    refusal.set_lock(lock);
    refusal.set_dry_run(dry_run);
    refusal.set_section(section);
    refusal.set_suggestion(dry_run ? "x" : "");
    AdviseRefusals(Policy(spec), true, &summary);
    return summary.refusals(0);
}

TEST(RefusalAdvice, ADenyNamesItsRuleAndPlace) {
    for (const char* code : {"files.read_denied", "files.write_denied", "refused.other_lock"}) {
        const v1::Refusal refusal = Advised(kSpec, code, "open_read", "/in/secret");
        EXPECT_EQ(refusal.explanation(), "denied by files.deny '**/secret' (p.yaml:9:12)") << code;
        EXPECT_EQ(refusal.suggestion(), "");
    }
}

TEST(RefusalAdvice, OtherLocksAreToldFromWhatThePolicySays) {
    const v1::Refusal opened = Advised(kSpec, "refused.other_lock", "open_read", "/etc/x");
    EXPECT_EQ(opened.suggestion(), "files.read: [/etc/x], or to write it files.write: [/etc/x]");
    EXPECT_EQ(opened.lock(), "landlock");
    EXPECT_EQ(Advised(kSpec, "refused.other_lock", "open_read", "/in/x").suggestion(),
              "files.write: [/in/x]");
    EXPECT_EQ(Advised(kSpec, "refused.other_lock", "unlink", "/in/x").suggestion(), "files.write: [/in/x]");
    EXPECT_EQ(Advised(kSpec, "refused.other_lock", "exec_program", "/tmp/x").suggestion(),
              "exec.allow: [/tmp/x]");

    const v1::Refusal permissions = Advised(kSpec, "refused.other_lock", "unlink", "/out/x");
    EXPECT_EQ(permissions.lock(), "dac");
    EXPECT_EQ(permissions.suggestion(), "");
    EXPECT_EQ(permissions.explanation(), "the policy allows it; file permissions refused");
    EXPECT_EQ(Advised(kSpec, "refused.other_lock", "unlink", "/out/x", "mount").explanation(),
              "the mount is read-only, whatever the policy says");
}

TEST(RefusalAdvice, APathThatIsNotCleanIsNotJudged) {
    for (const char* path : {"x", "/out/../x", "/out//x", "/out/./x", "/a\\x0a", "/"}) {
        const v1::Refusal refusal = Advised(kSpec, "refused.other_lock", "unlink", path);
        EXPECT_EQ(refusal.suggestion(), "") << path;
        EXPECT_EQ(refusal.lock(), "landlock") << path;
    }
}

TEST(RefusalAdvice, AMissingGrantIsNamed) {
    EXPECT_EQ(Advised(kSpec, "refused.other_lock", "mount", "mount", "seccomp").suggestion(),
              "grants: [mount]");
    const std::string granted = absl::StrCat(kSpec, "  grants: [mount]\n");
    EXPECT_EQ(Advised(granted, "refused.other_lock", "mount", "mount", "seccomp").suggestion(), "");
}

TEST(RefusalAdvice, AnAbsentSectionIsSaidAndNoLineSwitchesItOn) {
    const std::string spec = "  exec: {allow: [/usr/bin/true]}\n  network: {}\n";
    const v1::Refusal refusal = Advised(spec, "files.read", "open_read", "/x", "", true);
    EXPECT_EQ(refusal.suggestion(), "");
    EXPECT_EQ(refusal.explanation(), "the policy has no files section: nothing there is enforced");
    // mode: observe keeps its line.
    EXPECT_EQ(Advised(kSpec, "files.read", "open_read", "/x", "", true).suggestion(), "x");
    EXPECT_EQ(AbsentSectionsNote(Policy(spec)),
              "policy p has no section files: everything there is allowed and only recorded");
    EXPECT_EQ(AbsentSectionsNote(Policy(kSpec)), "");
}

v1::Refusal Refused(const std::string& spec, const char* code, const char* object, const char* line) {
    v1::Summary summary;
    v1::Refusal& refusal = *summary.add_refusals();
    refusal.set_code(code);
    refusal.set_object(object);
    refusal.set_section("network");
    refusal.set_suggestion(line);
    AdviseRefusals(Policy(spec), true, &summary);
    return summary.refusals(0);
}

TEST(RefusalAdvice, ALookUpWithoutDnsIsAdvisedDnsAndNoPort53) {
    for (const char* code : {"network.connect", "network.send"}) {
        const v1::Refusal refusal = Refused(kSpec, code, "127.0.0.1:53", "network.loopback: [53]");
        EXPECT_EQ(refusal.suggestion(), "") << code;
        EXPECT_NE(refusal.explanation().find("dns: {allow: [NAME]}"), std::string::npos)
            << refusal.explanation();
        EXPECT_NE(refusal.explanation().find("{name: NAME, ports: [443]}"), std::string::npos);
    }
    const v1::Refusal with = Refused(absl::StrCat(kSpec, "  dns: {mode: open}\n"), "network.connect",
                                     "127.0.0.1:53", "network.loopback: [53]");
    EXPECT_NE(with.explanation().find("/etc/resolv.conf"), std::string::npos) << with.explanation();
    EXPECT_EQ(Refused(kSpec, "network.connect", "10.0.0.1:53", "x").suggestion(), "x");
}

TEST(RefusalAdvice, APortThatTheKernelChoseIsAny) {
    EXPECT_EQ(Refused(kSpec, "network.connect", "127.0.0.1:40123", "network.loopback: [40123]").suggestion(),
              "network.loopback: [any]");
    EXPECT_EQ(Refused(kSpec, "network.connect", "[::1]:32768", "network.loopback: [32768]").suggestion(),
              "network.loopback: [any]");
    EXPECT_EQ(Refused(kSpec, "network.connect", "127.0.0.1:8080", "network.loopback: [8080]").suggestion(),
              "network.loopback: [8080]");
    EXPECT_EQ(Refused(kSpec, "network.connect", "10.0.0.1:40123", "x").suggestion(), "x");
}

TEST(RefusalAdvice, ManyNamesOfOneZoneGetOneLine) {
    v1::Summary summary;
    for (const char* name :
         {"a.cdn.example.co.uk", "other.test", "b.example.co.uk", "c.example.co.uk", "two.test"}) {
        v1::Refusal& refusal = *summary.add_refusals();
        refusal.set_code("dns.name");
        refusal.set_object(name);
        refusal.set_suggestion(absl::StrCat("dns.allow: [", name, "]"));
    }
    AdviseRefusals(Policy(kSpec), true, &summary);
    EXPECT_EQ(summary.refusals(0).suggestion(), "dns.allow: [example.co.uk, \"*.example.co.uk\"]");
    EXPECT_EQ(summary.refusals(0).explanation(), "for all 3 names of example.co.uk here");
    EXPECT_EQ(summary.refusals(1).suggestion(), "dns.allow: [other.test]");
    EXPECT_EQ(summary.refusals(2).suggestion(), "");
    EXPECT_EQ(summary.refusals(3).suggestion(), "");
    EXPECT_EQ(summary.refusals(4).suggestion(), "dns.allow: [two.test]");
}

}  // namespace
}  // namespace stockade::cmd
