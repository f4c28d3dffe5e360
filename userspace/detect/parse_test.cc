// What the parser takes, and thirty and more files that it must refuse with a sentence at the right place.
#include "userspace/detect/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace stockade::detect {
namespace {

using testing::HasSubstr;

std::string Rule1(const std::string& detection, const std::string& rest = "") {
    return absl::StrCat(
        "title: T\nid: 11111111-1111-4111-8111-111111111111\nname: one\n"
        "logsource: {product: linux, category: process_creation}\ndetection:\n",
        detection, rest);
}

ParsedRules Parse(const std::string& text) { return ParseRules({{"r.yaml", text}}); }

std::string Shown(const ParsedRules& parsed) {
    std::vector<std::string> lines;
    for (const Diagnostic& diagnostic : parsed.diagnostics) lines.push_back(ToString(diagnostic));
    return absl::StrJoin(lines, "\n");
}

struct Broken {
    const char* name;
    std::string text;
    const char* at;    // "line:column"
    const char* says;  // part of the message
};

class BrokenTest : public testing::TestWithParam<Broken> {};

TEST_P(BrokenTest, IsRefusedAtItsPlace) {
    const ParsedRules parsed = Parse(GetParam().text);
    EXPECT_TRUE(HasErrors(parsed.diagnostics));
    EXPECT_THAT(Shown(parsed), HasSubstr(absl::StrCat("r.yaml:", GetParam().at, ": error: ")));
    EXPECT_THAT(Shown(parsed), HasSubstr(GetParam().says));
}

const std::string kSelection = "  selection:\n    Image: /bin/x\n";
const std::string kCondition = "  condition: selection\n";
const std::string kBase = kSelection + kCondition;

std::string Correlated(const std::string& body) {
    return absl::StrCat(Rule1(kBase), "---\ntitle: C\ncorrelation:\n", body);
}

std::vector<Broken> AllBroken() {
    return {
        {"NoRule", "", "1:1", "no rule in this file"},
        {"NotAMap", "- a\n", "1:1", "a rule must be a map"},
        {"Tab", "title: T\ndetection:\n\tselection: x\n", "3:1", "a tab as indentation"},
        {"NoTitle", absl::StrReplaceAll(Rule1(kBase), {{"title: T\n", ""}}), "1:1", "lacks 'title'"},
        {"DuplicateKey", Rule1(kBase, "level: low\nlevel: high\n"), "10:1",
         "duplicate key 'level' in a rule, first on line 9"},
        {"MisspeltKey", Rule1(kBase, "falsepositive: [x]\n"), "9:1", "did you mean 'falsepositives'?"},
        {"WrongLevel", Rule1(kBase, "level: hihg\n"), "9:8", "did you mean 'high'?"},
        {"WrongStatus", Rule1(kBase, "status: stabel\n"), "9:9", "did you mean 'stable'?"},
        {"WrongDate", Rule1(kBase, "date: 5 May\n"), "9:7", "YYYY-MM-DD"},
        {"NoSuchDay", Rule1(kBase, "date: 2026-02-29\n"), "9:7", "must be a day"},
        {"NoSuchMonth", Rule1(kBase, "modified: 2026-13-01\n"), "9:11", "must be a day"},
        {"WrongRelation", Rule1(kBase, "related: [{id: a, type: simular}]\n"), "9:25",
         "did you mean 'similar'?"},
        {"WrongTag", Rule1(kBase, "tags: [Attack]\n"), "9:7", "namespace.name"},
        {"TwoKinds", Rule1(kBase, "correlation: {}\n"), "1:1", "exactly one of detection"},
        {"NoSource", "title: T\ndetection:\n" + kBase, "1:1", "lacks 'logsource'"},
        {"Windows", absl::StrReplaceAll(Rule1(kBase), {{"product: linux", "product: windows"}}), "4:12",
         "product 'windows'"},
        {"WrongCategory", absl::StrReplaceAll(Rule1(kBase), {{"process_creation", "proces_creation"}}),
         "4:12", "did you mean 'process_creation'?"},
        {"Service", absl::StrReplaceAll(Rule1(kBase), {{"category: process_creation", "service: auditd"}}),
         "4:12", "service 'auditd'"},
        {"WrongField", Rule1("  selection:\n    Imgae: /bin/x\n" + kCondition), "7:5",
         "did you mean 'Image'?"},
        {"OtherSourcesField", Rule1("  selection:\n    TargetFilename: /x\n" + kCondition), "7:5",
         "unknown field 'TargetFilename' of linux/process_creation"},
        {"WrongModifier", Rule1("  selection:\n    Image|endwith: /x\n" + kCondition), "7:5",
         "did you mean 'endswith'?"},
        {"Expand", Rule1("  selection:\n    Image|expand: '%x%'\n" + kCondition), "7:5",
         "'expand' is not supported"},
        {"ModifierTwice", Rule1("  selection:\n    Image|contains|contains: x\n" + kCondition), "7:5",
         "'contains' twice"},
        {"AllOfOne", Rule1("  selection:\n    Image|all: x\n" + kCondition), "7:5", "at least two values"},
        {"ContainsNumber", Rule1("  selection:\n    Image|contains: 5\n" + kCondition), "7:21",
         "write it in quotes"},
        {"LessText", Rule1("  selection:\n    ProcessId|lt: x\n" + kCondition), "7:19", "needs a number"},
        {"FlagAlone", Rule1("  selection:\n    Image|i: x\n" + kCondition), "7:5", "must come after 're'"},
        {"LateRegex", Rule1("  selection:\n    Image|contains|re: x\n" + kCondition), "7:5",
         "must come before 'contains'"},
        {"AnchoredRegex", Rule1("  selection:\n    Image|re|endswith: x\n" + kCondition), "7:5",
         "write ^ or $"},
        {"LookAhead", Rule1("  selection:\n    Image|re: 'a(?=b)'\n" + kCondition), "7:15", "no look-around"},
        {"BackReference", Rule1("  selection:\n    Image|re: '(a)\\1'\n" + kCondition), "7:15",
         "no look-around"},
        {"WrongCidr", Rule1("  selection:\n    Image|cidr: 10.0.0.0/99\n" + kCondition), "7:17", ""},
        {"NullInList", Rule1("  selection:\n    Image: [a, null]\n" + kCondition), "7:16",
         "null cannot stand in a list"},
        {"EmptyList", Rule1("  selection:\n    Image: []\n" + kCondition), "7:12", "an empty list"},
        {"EmptyMap", Rule1("  selection: {}\n" + kCondition), "6:14", "an empty map"},
        {"NestedValue", Rule1("  selection:\n    Image: {a: b}\n" + kCondition), "7:12", "not a map"},
        {"YamlTruth", Rule1("  selection:\n    Image: yes\n" + kCondition), "7:12", "in quotes"},
        {"Octal", Rule1("  selection:\n    ProcessId: 0777\n" + kCondition), "7:16", "in quotes"},
        {"ExistsText", Rule1("  selection:\n    Image|exists: x\n" + kCondition), "7:19", "true or false"},
        {"Utf16Alone", Rule1("  selection:\n    Image|wide: x\n" + kCondition), "7:5",
         "followed by 'base64'"},
        {"Base64Star", Rule1("  selection:\n    Image|base64: x*\n" + kCondition), "7:19", "no wildcards"},
        {"ShortOffset", Rule1("  selection:\n    Image|base64offset|contains: ''\n" + kCondition), "7:34",
         "too short"},
        {"ManyDashes", Rule1("  selection:\n    Image|windash: -a -b -c -d\n" + kCondition), "7:20",
         "at most 3 dashes"},
        {"HourOfText", Rule1("  selection:\n    Image|hour: 3\n" + kCondition), "7:5",
         "a field that is a time"},
        {"FieldRefUnknown", Rule1("  selection:\n    Image|fieldref: ParentImge\n" + kCondition), "7:21",
         "did you mean 'ParentImage'?"},
        {"NoCondition", Rule1(kSelection), "6:3", "lacks 'condition'"},
        {"UnknownIdentifier", Rule1(kSelection + "  condition: selektion\n"), "8:14",
         "did you mean 'selection'?"},
        {"SecondUnknown", Rule1(kSelection + "  condition: selection and fliter\n"), "8:28",
         "unknown search identifier 'fliter'"},
        {"Unused", Rule1(kSelection + "  filter:\n    Image: /y\n" + kCondition), "8:3",
         "search identifier 'filter' is not used"},
        {"Unclosed", Rule1(kSelection + "  condition: (selection\n"), "8:14", "not closed"},
        {"UpperCase", Rule1(kSelection + "  condition: selection AND selection\n"), "8:24",
         "in small letters"},
        {"OpenEnd", Rule1(kSelection + "  condition: selection and\n"), "8:27", "it ends where"},
        {"TwoOf", Rule1(kSelection + "  condition: 2 of them\n"), "8:14", "'1 of' or 'all of'"},
        {"NoneMatch", Rule1(kSelection + "  condition: 1 of filter_*\n"), "8:19",
         "no search identifier matches"},
        {"Pipe", Rule1(kSelection + "  condition: selection | count() > 3\n"), "8:24",
         "write a correlation document"},
        {"Timeframe", Rule1(kBase + "  timeframe: 5m\n"), "9:3", "no longer Sigma"},
        {"Contradiction", Rule1(kSelection + "  condition: selection and not selection\n"), "8:14",
         "can never hold"},
        {"TwoImages", Rule1("  a:\n    Image: /x\n  b:\n    Image: /y\n  condition: all of them\n"), "10:14",
         "both cannot be"},
        {"TwoEnds", Rule1("  a:\n    Image|endswith|all: [/x, /y]\n  condition: a\n"), "8:14",
         "can never hold"},
        {"Tautology", Rule1(kSelection + "  condition: selection or not selection\n"), "8:14",
         "holds for every event"},
        {"SameId", Rule1(kBase) + "---\n" + absl::StrReplaceAll(Rule1(kBase), {{"name: one", "name: two"}}),
         "10:1", "duplicate id"},
        {"UnknownBase",
         Correlated("  type: event_count\n  rules: [oen]\n  timespan: 1m\n  condition: {gte: 3}\n"), "13:11",
         "did you mean 'one'?"},
        {"Cycle",
         Rule1(kBase) +
             "---\ntitle: C\nname: c\ncorrelation: {type: temporal, rules: [one, d], timespan: 1m}\n---\n"
             "title: D\nname: d\ncorrelation: {type: temporal, rules: [one, c], timespan: 1m}\n",
         "16:44", "built on itself"},
        {"WrongTimespan",
         Correlated("  type: event_count\n  rules: [one]\n  timespan: 5 min\n  condition: {gte: 3}\n"),
         "14:13", "10s, 5m, 1h or 7d"},
        {"WrongType",
         Correlated("  type: event_cuont\n  rules: [one]\n  timespan: 5m\n  condition: {gte: 3}\n"), "12:9",
         "did you mean 'event_count'?"},
        {"Median",
         Correlated("  type: value_median\n  rules: [one]\n  timespan: 5m\n  condition: {gte: 3}\n"), "12:9",
         "later Sigma"},
        {"WordCondition",
         Correlated("  type: temporal\n  rules: [one]\n  timespan: 5m\n  condition: one and two\n"), "15:14",
         "later Sigma"},
        {"NoField",
         Correlated("  type: value_count\n  rules: [one]\n  timespan: 5m\n  condition: {gte: 3}\n"), "15:14",
         "lacks 'field'"},
        {"HugeThreshold",
         Correlated("  type: event_count\n  rules: [one]\n  timespan: 5m\n  condition: {gte: 99999}\n"),
         "15:20", "remembers no more"},
        {"NeverCount",
         Correlated("  type: event_count\n  rules: [one]\n  timespan: 5m\n  condition: {gte: 9, lt: 3}\n"),
         "15:14", "can never hold"},
        {"GroupField",
         Correlated("  type: event_count\n  rules: [one]\n  group-by: [TargetFilename]\n  timespan: 5m\n  "
                    "condition: {gte: 3}\n"),
         "14:13", "not in events of"},
        {"AliasRule",
         Correlated("  type: event_count\n  rules: [one]\n  group-by: [a]\n  aliases: {a: {two: Image}}\n  "
                    "timespan: 5m\n  condition: {gte: 3}\n"),
         "15:22", "not among the rules"},
        {"FilterUnknown",
         Rule1(kBase) +
             "---\ntitle: F\nlogsource: {product: linux, category: process_creation}\nfilter:\n  rules: "
             "[nope]\n" +
             kSelection + "  condition: not selection\n",
         "13:11", "no rule with the id or name 'nope'"},
        {"FilterSource",
         Rule1(kBase) + "---\ntitle: F\nlogsource: {product: linux, category: file_event}\nfilter:\n  rules: "
                        "[one]\n  selection:\n    TargetFilename: /x\n  condition: not selection\n",
         "13:11", "the filter is for linux/file_event"},
        {"ResponseAction", Rule1(kBase, "response: {action: kill}\n"), "9:20", "unknown action 'kill'"},
        {"ResponseDeny", Rule1(kBase, "response: {action: deny}\n"), "9:11", "lacks 'deny'"},
        {"ResponseScope", Rule1(kBase, "response: {action: alert, scope: group}\n"), "9:34",
         "belongs to a correlation"},
        {"SampleField", Rule1(kBase, "tests: {fires: [{Imag: /bin/x}]}\n"), "9:18", "did you mean 'Image'?"},
        {"SampleType", Rule1(kBase, "tests: {fires: [{ProcessId: x}]}\n"), "9:29", "takes a number"},
        {"BrokenJson", Rule1(kBase, "tests: {fires: [{event: {json: '{'}}]}\n"), "9:32", "json: "},
    };
}

INSTANTIATE_TEST_SUITE_P(All, BrokenTest, testing::ValuesIn(AllBroken()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ParseTest, TakesWhatSigmaHas) {
    const ParsedRules parsed = Parse(
        Rule1("  selection_a:\n    Image|endswith: [/bash, /sh]\n    CommandLine|contains|all: ['-c', 'x']\n"
              "    ParentImage|re|i: '^/usr'\n    User: 0\n"
              "  selection_b:\n    - Image: /x\n    - CommandLine|base64offset|contains: http://\n"
              "  _hidden:\n    CurrentDirectory: null\n  keywords: [alpha, beta]\n  words:\n    '|all': "
              "[gamma, delta]\n"
              "  filter_c:\n    ProcessId|gte: 5\n    Image|fieldref|neq: ParentImage\n    UtcTime|hour|lt: "
              "6\n    CommandLine|windash|contains: -enc\n"
              "    CommandLine|exists: true\n    DryRun: false\n"
              "  condition:\n    - (1 of selection_* or all of them) and not filter_c\n    - keywords and "
              "words or _hidden\n",
              "level: high\nstatus: test\ndate: 2026-01-05\ntags: [attack.t1059.004]\nfalsepositives: none\n"
              "related: [{id: x, type: derived}]\nmy_own_key: 5\n"));
    EXPECT_FALSE(HasErrors(parsed.diagnostics)) << Shown(parsed);
    EXPECT_THAT(Shown(parsed), HasSubstr("warning: key 'my_own_key' is no key of Sigma's"));
    ASSERT_EQ(parsed.rules.size(), 1u);
    EXPECT_EQ(parsed.rules[0].level, Level::kHigh);
    EXPECT_EQ(parsed.rules[0].hash.size(), 64u);
}

TEST(ParseTest, WarnsOfWhatIsNeverRecorded) {
    const ParsedRules parsed = Parse(Rule1("  selection:\n    ParentUser|contains: x\n" + kCondition));
    EXPECT_FALSE(HasErrors(parsed.diagnostics));
    EXPECT_THAT(Shown(parsed), HasSubstr("r.yaml:7:5: warning: field 'ParentUser' is in no event"));
    const ParsedRules host =
        Parse(absl::StrReplaceAll(Rule1("  selection:\n    DestinationHostname: x\n" + kCondition),
                                  {{"process_creation", "network_connection"}}));
    EXPECT_FALSE(HasErrors(host.diagnostics));
    EXPECT_THAT(Shown(host), HasSubstr("r.yaml:7:5: warning: few events of linux/network_connection have "
                                       "'DestinationHostname'"));
}

TEST(ParseTest, WhatRefersToABrokenRuleIsNotWrongForIt) {
    const ParsedRules parsed = Parse(
        Rule1("  selection:\n    Imgae: x\n" + kCondition) +
        "---\ntitle: C\ncorrelation: {type: event_count, rules: [one], timespan: 1m, condition: {gte: 2}}\n");
    EXPECT_EQ(parsed.diagnostics.size(), 1u) << Shown(parsed);
}

TEST(ParseTest, HashIsOfTheContent) {
    const std::string one = Rule1(kBase),
                      spaced = absl::StrReplaceAll(one, {{"detection:", "# a comment\ndetection:"}});
    const std::string other = absl::StrReplaceAll(one, {{"/bin/x", "/bin/y"}});
    EXPECT_EQ(Parse(one).rules[0].hash, Parse(spaced).rules[0].hash);
    EXPECT_NE(Parse(one).rules[0].hash, Parse(other).rules[0].hash);
}

TEST(ParseTest, HostileYamlIsBounded) {
    std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
    for (char c = 'b'; c < 'k'; ++c) {
        const std::string before(1, static_cast<char>(c - 1));
        bomb += absl::StrCat(std::string(1, c), ": &", std::string(1, c), " [");
        for (int i = 0; i < 10; ++i) bomb += absl::StrCat(i ? ", *" : "*", before);
        bomb += "]\n";
    }
    EXPECT_THAT(Shown(Parse(bomb)), HasSubstr("aliases counted each time"));
    EXPECT_THAT(Shown(Parse("title: " + std::string(10 << 20, 'x'))), HasSubstr("larger than"));
    EXPECT_THAT(Shown(Parse(std::string(100, '['))), HasSubstr("nested deeper than"));
    EXPECT_THAT(
        Shown(Parse(Rule1("  selection:\n    Image: " + std::string(20'000, 'x') + "\n" + kCondition))),
        HasSubstr("more than 16384 bytes"));
    std::string condition =
        "  condition: " + std::string(200, '(') + "selection" + std::string(200, ')') + "\n";
    EXPECT_THAT(Shown(Parse(Rule1(kSelection + condition))), HasSubstr("nested deeper than 64"));
    condition = "  condition: selection";
    for (int i = 0; i < 1000; ++i) condition += " or selection";
    EXPECT_THAT(Shown(Parse(Rule1(kSelection + condition + "\n"))), HasSubstr("more than 1000 words"));
    std::string values = "  selection:\n    Image:\n";
    for (int i = 0; i < 10'000; ++i) values += absl::StrCat("      - /bin/", i, "\n");
    EXPECT_FALSE(HasErrors(Parse(Rule1(values + kCondition)).diagnostics));
}

TEST(ParseTest, FiltersAreFoldedIn) {
    const ParsedRules parsed = Parse(
        Rule1(kBase) +
        "---\ntitle: F\nlogsource: {product: linux, category: process_creation}\nfilter:\n  rules: any\n"
        "  ours:\n    SessionId: ci\n  condition: not ours\n");
    ASSERT_FALSE(HasErrors(parsed.diagnostics)) << Shown(parsed);
    EXPECT_THAT(parsed.rules[0].filters, testing::ElementsAre("F"));
    EXPECT_EQ(parsed.rules[0].atoms.size(), 2u);
}

}  // namespace
}  // namespace stockade::detect
