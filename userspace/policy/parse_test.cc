#include "userspace/policy/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/policy/yaml_tree.h"

namespace stockade::policy {
namespace {

using testing::HasSubstr;

constexpr char kHead[] = "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: t}\nspec:\n";

std::string Lines(const std::vector<Diagnostic>& diagnostics) {
    return absl::StrJoin(diagnostics, "\n",
                         [](std::string* out, const Diagnostic& d) { *out += ToString(d); });
}

std::string ErrorsOf(const std::string& spec) {
    return Lines(ParseFiles({{"t.yaml", absl::StrCat(kHead, spec)}}).diagnostics);
}

TEST(Parse, TheContractsExampleIsUnderstood) {
    ParseResult parsed = ParseFiles({{"t.yaml", absl::StrCat(kHead, R"(  extends: [base]
  selector: {matchLabels: {tool: exec_skill}}
  mode: enforce
  violation: kill-sandbox
  exec: {allow: [/usr/bin/python3*], deny: ["**/bash"], libraries: [/opt/**], violation: deny}
  files: {read: [/usr/**], write: [/out/**], deny: ["**/.ssh/**"]}
  network:
    allow:
      - {cidr: 10.0.0.0/8, ports: [443, 8000-8100]}
      - {name: "*.pypi.org", ports: [443]}
      - {unix: /run/tool.sock}
      - {unix: "@abstract"}
    loopback: [8443, 8444]
    host: [9000]
    bind: [any]
    uids: {1001: [{cidr: 0.0.0.0/0, ports: [443]}]}
  dns: {mode: allowlist, resolvers: [127.0.0.53], allow: [pypi.org], budget: {zone: 256B}}
  grants: [io_uring]
  entered: observe
  record: {exec: all, files: first}
tests: {allow: [{read: /usr/x}], refuse: [{connect: "[2001:db8::1]:443", uid: 7}]}
)")}});
    EXPECT_EQ(Lines(parsed.diagnostics), "");
    ASSERT_EQ(parsed.policies.size(), 1u);
    const SandboxPolicy& p = parsed.policies[0];
    EXPECT_EQ(p.name, "t");
    EXPECT_EQ(p.match_labels.at("tool"), "exec_skill");
    EXPECT_EQ(p.violation, SK_VERDICT_KILL_SANDBOX);
    EXPECT_EQ(p.exec->violation, SK_VERDICT_DENY);
    EXPECT_EQ(p.exec->allow[0].at.line, 9);
    ASSERT_EQ(p.network->allow.size(), 4u);
    EXPECT_EQ(p.network->allow[0].lo, 10u << 24);
    EXPECT_EQ(p.network->allow[0].ports[1].last, 8100);
    EXPECT_TRUE(p.network->allow[3].abstract);
    EXPECT_EQ(p.network->bind[0].ports.first, 0);
    EXPECT_EQ(p.network->uids.at(1001)[0].bits, 0);
    EXPECT_EQ(p.entered, SK_VERDICT_OBSERVE);
    EXPECT_EQ(p.record[SK_SECTION_FILES], SK_RECORD_FIRST);
    ASSERT_EQ(p.tests.size(), 2u);
    EXPECT_FALSE(p.tests[1].expect_allowed);
}

TEST(Parse, EveryErrorOfEveryFileAtOnce) {
    const std::string a = absl::StrCat(kHead, R"(  extend: [base]
  mode: enfroce
  exec:
    allow: [usr/bin/x, "/a/**b", /x, /x]
    alow: []
  grants: [io_urin]
  files: [/usr/**]
  network:
    allow:
      - {cidr: 10.0.0.1/8}
      - {name: A.example}
      - {unix: /run/x, cidr: 1.2.3.4}
      - {ports: [1]}
      - {cidr: 1.2.3.4, ports: [70000]}
)");
    const std::string b = "kind: SandboxPolicy\nmetadata: {name: t}\nspec: {}\n---\n- 1\n";
    EXPECT_EQ(Lines(ParseFiles({{"a.yaml", a}, {"b.yaml", b}}).diagnostics),
              "a.yaml:5:3: error: unknown key 'extend' in spec; did you mean 'extends'?\n"
              "a.yaml:6:9: error: unknown mode 'enfroce'; did you mean 'enforce'?\n"
              "a.yaml:8:13: error: bad pattern 'usr/bin/x': it must start with '/' or with '**/'\n"
              "a.yaml:8:24: error: bad pattern '/a/**b': '**' must be a whole component; write '/**/' or a "
              "single '*'\n"
              "a.yaml:8:38: error: '/x' stands twice in exec.allow\n"
              "a.yaml:9:5: error: unknown key 'alow' in exec; did you mean 'allow'?\n"
              "a.yaml:10:12: error: unknown grant 'io_urin'; did you mean 'io_uring'?\n"
              "a.yaml:11:10: error: files must be a map, not a list\n"
              "a.yaml:14:16: error: '10.0.0.1/8' has address bits beyond its prefix; for the one address "
              "leave the '/8' out\n"
              "a.yaml:15:16: error: bad name 'A.example': a lower-case host name, or '*.' and one\n"
              "a.yaml:16:9: error: a network rule is one of cidr, name, unix; write two rules\n"
              "a.yaml:17:9: error: a network rule needs one of cidr, name, unix\n"
              "a.yaml:18:33: error: a port must be a number from 1 to 65535 or a range like 8000-8100, not "
              "'70000'\n"
              "b.yaml:1:1: error: a SandboxPolicy lacks 'apiVersion'\n"
              "b.yaml:2:18: error: duplicate policy name 't', first at a.yaml:3:18\n"
              "b.yaml:5:1: error: a document must be a map, not a list");
}

TEST(Parse, DuplicateKeysAreErrors) {
    EXPECT_EQ(ErrorsOf("  mode: enforce\n  mode: observe\n"),
              "t.yaml:6:3: error: duplicate key 'mode' in spec, first on line 5");
}

TEST(Parse, ForeignGlobsAreErrorsAndEscapesAreNot) {
    EXPECT_THAT(ErrorsOf("  exec: {deny: ['/bin/{a,b}']}\n"), HasSubstr("'{' is not a wildcard here"));
    EXPECT_EQ(ErrorsOf("  exec: {deny: ['/usr/bin/\\[']}\n"), "");
    for (const char* bad : {"/a/../b", "/a/./b", "/a//b", "/a/", "**", "a"}) {
        EXPECT_THAT(ErrorsOf(absl::StrCat("  exec: {deny: ['", bad, "']}\n")), HasSubstr("bad pattern"))
            << bad;
    }
}

TEST(Parse, TypesAreNotGuessed) {
    EXPECT_THAT(ErrorsOf("  network: {loopback: [x]}\n"), HasSubstr("a port must be a number"));
    // As JSON, and so every object of an API server, has it.
    EXPECT_EQ(ErrorsOf("  network: {uids: {\"1001\": [{cidr: 0.0.0.0/0}]}}\n"), "");
    EXPECT_THAT(ErrorsOf("  network: {uids: {\"1001x\": []}}\n"), HasSubstr("a uid must be a number"));
    EXPECT_THAT(ErrorsOf("  network: {uids: {root: []}}\n"), HasSubstr("a uid must be a number"));
    EXPECT_THAT(ErrorsOf("  exec: {allow: {a: b}}\n"), HasSubstr("exec.allow must be a list, not a map"));
    EXPECT_THAT(ErrorsOf("  exec: {allow: [[/a]]}\n"), HasSubstr("must be a text, not a list"));
    EXPECT_THAT(ErrorsOf("  mode: !!binary enforce\n"), HasSubstr("tags are not taken"));
    EXPECT_THAT(ErrorsOf("  network: {allow: [{cidr: 1.2.3.4, ports: []}]}\n"),
                HasSubstr("ports must not be empty"));
}

TEST(Parse, AMappedAddressIsJudgedAsIPv4) {
    StatusOr<NetworkRule> rule = ParseCidr("::ffff:10.0.0.0/104");
    ASSERT_TRUE(rule.ok()) << rule.status();
    EXPECT_EQ(rule->family, 4);
    EXPECT_EQ(rule->bits, 8);
    EXPECT_EQ(rule->lo, 10u << 24);
    EXPECT_FALSE(ParseCidr("10.0.0.0/33").ok());
    EXPECT_FALSE(ParseCidr("10.0.0").ok());
}

TEST(Parse, ABombOfAliasesEndsAtTheBound) {
    std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 10; ++i) {
        absl::StrAppend(&bomb, "a", i, ": &a", i, " [");
        for (int k = 0; k < 10; ++k) absl::StrAppend(&bomb, k ? ", " : "", "*a", i - 1);
        bomb += "]\n";
    }
    EXPECT_THAT(Lines(ParseFiles({{"bomb.yaml", bomb}}).diagnostics), HasSubstr("more than 200000 values"));
}

TEST(Parse, DepthSizeAndSyntaxAreAnswers) {
    EXPECT_THAT(Lines(ParseFiles({{"f", std::string(100, '[') + std::string(100, ']')}}).diagnostics),
                HasSubstr("nested deeper than 32"));
    EXPECT_THAT(Lines(ParseFiles({{"f", std::string(100000, '[')}}).diagnostics), HasSubstr("f:1:"));
    EXPECT_THAT(Lines(ParseFiles({{"f", std::string(kMaxYamlBytes + 1, ' ')}}).diagnostics),
                HasSubstr("larger than"));
    EXPECT_THAT(Lines(ParseFiles({{"f", "a: [b\n"}}).diagnostics), HasSubstr("not YAML"));
    EXPECT_THAT(Lines(ParseFiles({{"f", ""}}).diagnostics), HasSubstr("no document"));
    EXPECT_THAT(Lines(ParseFiles({{"f", "a: &x [*x]\n"}}).diagnostics), HasSubstr("f:1:"));
}

// yaml-cpp gives documents without end for each of these.
TEST(Parse, WhatBelongsToNoDocumentEndsTheReading) {
    for (const char* stray : {", a: {b: [c]}", ",", "- d\n, e"}) {
        const std::string errors = Lines(ParseFiles({{"f", absl::StrCat("- a\n- b\n", stray)}}).diagnostics);
        EXPECT_THAT(errors, HasSubstr("error: ")) << stray;
    }
    EXPECT_THAT(Lines(ParseFiles({{"f", "    - a\n    - b\n, c: {d: [e]}"}}).diagnostics),
                HasSubstr("f:3:1: error: not YAML: this goes on with no list and no map"));
    // Empty documents are no such thing.
    EXPECT_THAT(Lines(ParseFiles({{"f", "---\n---\n---\n"}}).diagnostics),
                testing::Not(HasSubstr("not YAML")));
}

TEST(Parse, AMistakeInARuleIsOneError) {
    const std::string section = "  network:\n    allow:\n";
    EXPECT_THAT(ErrorsOf(section + "      - {cidr: 10.0.0.0/8, ports: 80}\n"),
                HasSubstr("ports must be a list"));
    const std::string ports = ErrorsOf(section +
                                       "      - {cidr: 10.0.0.0/8, ports: [0]}\n"
                                       "      - {cidr: 10.0.0.0/8, ports: [99999]}\n");
    EXPECT_THAT(ports, HasSubstr("not '99999'"));
    EXPECT_THAT(ports, testing::Not(HasSubstr("the same rule")));
    const std::string unix_socket = ErrorsOf(section + "      - {unix: /run/[a]}\n");
    EXPECT_EQ(unix_socket.find("bad pattern"), unix_socket.rfind("bad pattern")) << unix_socket;
    EXPECT_THAT(ErrorsOf("  network: {loopback: any}\n"),
                HasSubstr("network.loopback must be a list; write [any]"));
}

TEST(Parse, TlsNamesAreOfNames) {
    const auto rules = [](const std::string& list) {
        return ParseFiles({{"t.yaml", "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: t}\nspec:\n  network:\n    allow: [" +
                                          list + "]\n"}});
    };
    const ParseResult good = rules("{name: a.test, tls_name: strict}, {name: b.test, tls_name: any}, {name: c.test}");
    ASSERT_TRUE(good.diagnostics.empty()) << ToString(good.diagnostics.front());
    const std::vector<NetworkRule>& allow = good.policies.at(0).network->allow;
    EXPECT_TRUE(allow.at(0).tls_strict);
    EXPECT_FALSE(allow.at(1).tls_strict || allow.at(2).tls_strict);
    for (const char* bad : {"{cidr: 10.0.0.0/8, tls_name: strict}", "{tls_name: strict, cidr: 10.0.0.0/8}", "{unix: /a, tls_name: any}",
                            "{name: a.test, tls_name: strikt}", "{name: a.test}, {name: a.test, tls_name: strict}"}) {
        EXPECT_EQ(rules(bad).diagnostics.size(), 1u) << bad;
    }
}

TEST(Parse, WhatIsNotUtf8IsRefusedWithItsPlace) {
    EXPECT_THAT(Lines(ParseFiles({{"f", "a: b\nc: \xff\n"}}).diagnostics),
                HasSubstr("f:2:4: error: not UTF-8"));
}

TEST(Parse, ControlCharactersAreRefusedWithTheirPlace) {
    for (const std::string& bad : {std::string("\0", 1), std::string("\x1b"), std::string("\x08")}) {
        EXPECT_THAT(Lines(ParseFiles({{"f", "a: b\nc: \"x" + bad + "\"\n"}}).diagnostics),
                    HasSubstr("f:2:6: error: a control character"));
    }
    EXPECT_THAT(Lines(ParseFiles({{"f", "a: \"b\tc\"\r\n"}}).diagnostics), testing::Not(HasSubstr("control")));
}

TEST(Parse, ControlBytesOfADocumentDoNotReachTheTerminal) {
    const std::string errors = ErrorsOf("  mode: \"\\e[31mred\"\n");
    EXPECT_EQ(errors.find('\x1b'), std::string::npos);
    EXPECT_THAT(errors, HasSubstr("\\x1b"));
}

// As `kubectl get sandboxpolicies,clustersandboxpolicies -A -o yaml` writes them.
TEST(Parse, ObjectsOfAnApiServer) {
    const std::string server = "uid: u, resourceVersion: '1', generation: 1, creationTimestamp: '2026-01-01T00:00:00Z', labels: {a: b}, "
                               "annotations: {c: d}, managedFields: []";
    const std::string items = absl::StrCat(
        "- {apiVersion: stockade.dev/v1, kind: ClusterSandboxPolicy, metadata: {name: a, ", server, "}, spec: {exec: {}}, status: {conditions: []}}\n",
        "- {apiVersion: stockade.dev/v1, kind: SandboxPolicy, metadata: {name: a, namespace: tools, ", server, "}, spec: {}}\n");
    const ParseResult parsed = ParseFiles({{"t", absl::StrCat("apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n", items)}});
    ASSERT_TRUE(parsed.diagnostics.empty()) << ToString(parsed.diagnostics[0]);
    ASSERT_EQ(parsed.policies.size(), 2u);
    EXPECT_EQ(parsed.policies[0].name, "a");
    EXPECT_EQ(parsed.policies[0].name_space, "");
    EXPECT_TRUE(parsed.policies[0].exec.has_value());
    EXPECT_EQ(parsed.policies[1].name, "tools/a");
    EXPECT_EQ(parsed.policies[1].name_space, "tools");
}

TEST(Parse, ErrorsInAListAreThoseOfOneObject) {
    const std::string head = "{apiVersion: stockade.dev/v1, kind: SandboxPolicy, metadata: {name: a, namespace: ";
    const ParseResult parsed = ParseFiles(
        {{"t.yaml", absl::StrCat("apiVersion: v1\nkind: List\nitems:\n- ", head, "x}, spec: {}}\n- ", head, "y}, spec: {exce: {}}}\n")}});
    ASSERT_EQ(parsed.diagnostics.size(), 1u);
    EXPECT_EQ(parsed.diagnostics[0].at.file, "t.yaml: items 1");
    EXPECT_EQ(parsed.diagnostics[0].at.line, 5);
    ASSERT_EQ(parsed.policies.size(), 2u);
    EXPECT_EQ(parsed.policies[0].at.file, "t.yaml: items 0");
    EXPECT_EQ(FileOfItem(parsed.policies[0].at.file), "t.yaml");
    EXPECT_EQ(FileOfItem("t.yaml"), "t.yaml");
}

TEST(Parse, ObjectsThatCannotBe) {
    const auto error = [](const std::string& kind, const std::string& metadata) {
        const ParseResult parsed =
            ParseFiles({{"t", absl::StrCat("apiVersion: stockade.dev/v1\nkind: ", kind, "\nmetadata: ", metadata, "\nspec: {}\n")}});
        return parsed.diagnostics.empty() ? "" : parsed.diagnostics[0].message;
    };
    EXPECT_EQ(error("SandboxPolicy", "{name: a, namespace: tools}"), "");
    EXPECT_THAT(error("ClusterSandboxPolicy", "{name: a, namespace: tools}"), HasSubstr("has no namespace"));
    EXPECT_THAT(error("SandboxPolicy", "{name: a, namespace: a/b}"), HasSubstr("bad namespace 'a/b'"));
    EXPECT_THAT(error("SandboxPolicy", "{name: a, namespace: a.b}"), HasSubstr("bad namespace"));
    EXPECT_THAT(error("SandboxPolicy", "{name: a, namespace: ''}"), HasSubstr("bad namespace"));
    EXPECT_THAT(error("SandboxPolicy", "{name: a/b}"), HasSubstr("bad name"));
    EXPECT_THAT(error("SandboxPolicies", "{name: a}"), HasSubstr("unknown kind"));
    const ParseResult nested = ParseFiles({{"t", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}]\n"}});
    ASSERT_EQ(nested.diagnostics.size(), 1u);
    EXPECT_THAT(nested.diagnostics[0].message, HasSubstr("cannot hold a list"));
    EXPECT_THAT(ParseFiles({{"t", "apiVersion: v1\nkind: List\nitems: 1\n"}}).diagnostics.at(0).message, HasSubstr("items must be a list"));
}

TEST(Parse, TestDocumentsOfTheirOwn) {
    ParseResult parsed = ParseFiles({{"t",
                                      "apiVersion: stockade.dev/v1\nkind: SandboxPolicyTest\npolicy: "
                                      "python-tool\nallow: [{exec: /a}]\nrefuse: [{unix: \"@x\"}]\n"}});
    EXPECT_EQ(Lines(parsed.diagnostics), "");
    ASSERT_EQ(parsed.tests.size(), 1u);
    EXPECT_EQ(parsed.tests[0].policy.text, "python-tool");
    EXPECT_EQ(parsed.tests[0].cases.size(), 2u);
    EXPECT_THAT(
        Lines(ParseFiles({{"t", "apiVersion: stockade.dev/v1\nkind: SandboxPolicyTst\n"}}).diagnostics),
        HasSubstr("did you mean 'SandboxPolicyTest'"));
}

}  // namespace
}  // namespace stockade::policy
