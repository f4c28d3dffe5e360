// What each part of a rule says to events, one by one, the ones that hold beside the ones that do not; and
// what is undecidable where a value was redacted or cut.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "userspace/detect/evaluate.h"
#include "userspace/detect/parse.h"
#include "userspace/detect/ruleset.h"
#include "userspace/detect/text.h"

namespace stockade::detect {
namespace {

std::string Header(const std::string& category, const std::string& product = "linux") {
    return absl::StrCat("title: T\nlogsource: {product: ", product, ", category: ", category,
                        "}\ndetection:\n");
}

// Both ways must answer the same.
Truth Answer(const std::string& yaml, const v1::Event& event) {
    ParsedRules parsed = ParseRules({{"r.yaml", yaml}});
    for (const Diagnostic& diagnostic : parsed.diagnostics)
        EXPECT_EQ(diagnostic.severity, policy::Severity::kWarning) << ToString(diagnostic);
    if (parsed.rules.size() != 1) return ADD_FAILURE() << "no rule", Truth::kUndecidable;
    Truth answers[2] = {};
    for (bool prefilter : {false, true}) {
        const auto set = RuleSet::Create(parsed.rules, {.prefilter = prefilter});
        EventView view(event);
        std::vector<Hit> hits;
        set->Match(view, &hits);
        answers[prefilter] = hits.empty() ? Truth::kNo : hits[0].truth;
    }
    EXPECT_EQ(answers[0], answers[1]) << yaml;
    return answers[1];
}

Truth OfExec(const std::string& item, const v1::Event& event) {
    return Answer(absl::StrCat(Header("process_creation"), "  s:\n    ", item, "\n  condition: s\n"), event);
}

v1::Event Exec(const std::string& path, const std::vector<std::string>& argv = {}) {
    v1::Event event;
    event.mutable_exec()->set_path(path);
    event.mutable_exec()->set_role("program");
    for (const std::string& argument : argv) event.mutable_exec()->add_argv(argument);
    return event;
}

struct Case {
    const char* item;
    const char* line;  // the command line
    Truth truth;
};

TEST(MatchTest, Values) {
    const Truth yes = Truth::kYes, no = Truth::kNo;
    const Case kCases[] = {
        {"CommandLine: 'CURL x'", "curl X", yes},
        {"CommandLine: 'curl'", "curl x", no},
        {"CommandLine|cased: 'CURL x'", "curl x", no},
        {"CommandLine: 'a\\*b'", "a*b", yes},
        {"CommandLine: 'a\\*b'", "axb", no},
        {"CommandLine: 'a\\\\*b'", "a\\xyzb", yes},
        {"CommandLine: 'a\\b'", "a\\b", yes},
        {"CommandLine: 'a\\\\b'", "a\\b", yes},
        {"CommandLine: 'a?b'", "a\u00e4b", yes},
        {"CommandLine: 'a?b'", "ab", no},
        {"CommandLine: '*'", "x", yes},
        {"CommandLine|contains: 'ÄÖ'", "x äö", yes},
        {"CommandLine|contains: ['a', 'b']", "xb", yes},
        {"CommandLine|contains|all: ['a', 'b']", "xb", no},
        {"CommandLine|contains|all: ['a', 'b']", "ba", yes},
        {"CommandLine|contains|neq: 'a'", "b", yes},
        {"CommandLine|contains|neq: 'a'", "a", no},
        {"CommandLine|re: 'cur[l]\\s'", "curl x", yes},
        {"CommandLine|re: 'CURL'", "curl x", no},
        {"CommandLine|re|i: 'CURL'", "curl x", yes},
        {"CommandLine|re: 'a.b'", "a\nb", no},
        {"CommandLine|re|s: 'a.b'", "a\nb", yes},
        {"CommandLine|re: '^b'", "a\nb", no},
        {"CommandLine|re|m: '^b'", "a\nb", yes},
        {"CommandLine|base64: foobar", "Zm9vYmFy", yes},
        {"CommandLine|base64offset|contains: /bin/bash", "echo L2Jpbi9iYXNo|x", yes},
        {"CommandLine|base64offset|contains: /bin/bash", "echo IC9iaW4vYmFzaA==", yes},
        {"CommandLine|base64offset|contains: /bin/bash", "echo ICAvYmluL2Jhc2g=", yes},
        {"CommandLine|base64offset|contains: /bin/bash", "echo Zm9vYmFy", no},
        {"CommandLine|wide|base64offset|contains: cmd", "x YwBtAGQA", yes},
        {"CommandLine|utf16|base64: cmd", "//5jAG0AZAA=", yes},
        {"CommandLine|utf16be|base64: cmd", "AGMAbQBk", yes},
        {"CommandLine|windash|contains: '-enc x'", "p /enc x", yes},
        {"CommandLine|windash|contains: '-enc x'", "p \u2014enc x", yes},
        {"CommandLine|windash|contains: '-enc x'", "p enc x", no},
        {"CommandLine|exists: true", "x", yes},
        {"CommandLine|exists: false", "x", no},
        {"CommandLine: null", "x", no},
        {"CommandLine: 443", "443", yes},
        {"CommandLine|gt: 400", "443", yes},
        {"CommandLine|gt: 400", "44x", no},
        {"CommandLine|contains: 'a'",
         "\xff"
         "a",
         yes},
        {"CommandLine|re: 'a.b'",
         "a\xff"
         "b",
         yes},
    };
    for (const Case& c : kCases) {
        v1::Event event = Exec("/bin/x");
        // As the decoder writes it: bytes that cannot be printed are escaped.
        std::string written;
        bool escaped = false;
        for (char ch : std::string(c.line)) {
            const bool odd = ch == '\n' || ch == '\xff';
            escaped = escaped || odd;
            written += odd ? (ch == '\n' ? "\\x0a" : "\\xff") : std::string(1, ch);
        }
        event.mutable_exec()->add_argv(written);
        event.mutable_exec()->set_argv_escaped(escaped);
        EXPECT_EQ(OfExec(c.item, event), c.truth) << c.item << " on " << c.line;
    }
}

TEST(MatchTest, LongTextsAreFoundWhole) {
    const std::string text(5000, 'a');
    EXPECT_EQ(OfExec("CommandLine|contains: '" + text + "b'", Exec("/x", {"x" + text + "b"})), Truth::kYes);
    EXPECT_EQ(OfExec("CommandLine|contains: '" + text + "b'", Exec("/x", {"x" + text + "c"})), Truth::kNo);
}

TEST(MatchTest, EscapesAreUndone) {
    v1::Event event = Exec("/bin/x", {"a\\\\b"});
    EXPECT_EQ(OfExec("CommandLine|re: '^a\\\\b$'", event), Truth::kNo);
    event.mutable_exec()->set_argv_escaped(true);
    EXPECT_EQ(OfExec("CommandLine|re: '^a\\\\b$'", event), Truth::kYes);
    EXPECT_EQ(Unescape("\\x41\\\\x41\\q\\x4"), "A\\x41\\q\\x4");
}

TEST(MatchTest, NumbersAndAddressesAndTimes) {
    v1::Event event;
    event.mutable_process()->set_pid(1);
    event.mutable_net()->set_op("connect");
    event.mutable_net()->set_address("10.1.2.3");
    event.mutable_net()->set_port(443);
    event.mutable_time()->set_seconds(1767571200);  // Monday 2026-01-05 00:00:00, week 2
    const auto ask = [&](const std::string& item) {
        return Answer(absl::StrCat(Header("network_connection"), "  s:\n    ", item, "\n  condition: s\n"),
                      event);
    };
    for (const char* item :
         {"DestinationIp|cidr: 10.0.0.0/8", "DestinationIp|cidr: [192.168.0.0/16, 10.1.2.2/31]",
          "DestinationPort: 443", "DestinationPort: '443'", "DestinationPort|gte: 443",
          "DestinationPort|lt: 443.5", "DestinationPort: '44*'", "Initiated: 'true'", "Initiated: true",
          "UtcTime|hour: 0", "UtcTime|week: 2", "UtcTime|month: 1", "UtcTime|day: 5",
          "UtcTime|year|gte: 2026", "UtcTime|minute|lt: 1", "UtcTime: '2026-01-05 00:00:00.000'",
          "net.op: connect", "User: root"})
        EXPECT_EQ(ask(item), Truth::kYes) << item;
    for (const char* item :
         {"DestinationIp|cidr: 10.1.2.4/31", "DestinationIp|cidr: '::/0'", "DestinationPort: 44",
          "DestinationPort|lt: 443", "DestinationPort|neq: 443", "Initiated: 'false'", "UtcTime|hour|gt: 0",
          "UtcTime|week: 1", "net.op: bind", "User: 1"})
        EXPECT_EQ(ask(item), Truth::kNo) << item;
    event.mutable_net()->set_address("2001:db8::1");
    EXPECT_EQ(ask("DestinationIp|cidr: 2001:db8::/33"), Truth::kYes);
    EXPECT_EQ(ask("DestinationIp|cidr: 2001:db9::/32"), Truth::kNo);
    event.mutable_net()->set_port(0);
    EXPECT_EQ(ask("DestinationPort: null"), Truth::kYes);
}

TEST(MatchTest, SourcesTakeTheirEvents) {
    const auto matches = [](const std::string& category, const v1::Event& event) {
        return Answer(absl::StrCat(Header(category, "stockade"), "  s:\n    SandboxId: a\n  condition: s\n"),
                      event) == Truth::kYes;
    };
    v1::Event event = Exec("/x");
    event.mutable_sandbox()->set_id("a");
    EXPECT_TRUE(matches("process_creation", event));
    EXPECT_FALSE(matches("violation", event));
    event.set_verdict("deny");
    EXPECT_TRUE(matches("violation", event));
    event.mutable_exec()->set_role("mapped");
    EXPECT_FALSE(matches("process_creation", event));
    EXPECT_TRUE(matches("library_load", event));
    event.mutable_file()->set_op("open-read");
    EXPECT_TRUE(matches("file_access", event));
    EXPECT_FALSE(matches("file_event", event));
    event.mutable_file()->set_op("rename");
    EXPECT_TRUE(matches("file_event", event) && matches("file_rename", event));
    event.mutable_file()->set_op("unlink");
    EXPECT_TRUE(matches("file_delete", event) && !matches("file_event", event));
    event.mutable_dns()->set_name("x");
    EXPECT_TRUE(matches("dns", event) && matches("dns_query", event) && !matches("escape", event));
    event.mutable_escape()->set_op("ptrace");
    EXPECT_TRUE(matches("escape", event) && !matches("lifecycle", event));
}

TEST(MatchTest, KeywordsLookEverywhere) {
    const auto keyword = [](const std::string& list, const v1::Event& event) {
        return Answer(absl::StrCat(Header("process_creation"), "  words: ", list, "\n  condition: words\n"),
                      event);
    };
    v1::Event event = Exec("/bin/alpha", {"x", "Beta"});
    EXPECT_EQ(keyword("[nothing, BETA]", event), Truth::kYes);
    EXPECT_EQ(keyword("alpha", event), Truth::kYes);
    EXPECT_EQ(keyword("[gamma]", event), Truth::kNo);
    EXPECT_EQ(keyword("{'|all': [alpha, beta]}", event), Truth::kYes);
    EXPECT_EQ(keyword("{'|all': [alpha, gamma]}", event), Truth::kNo);
    EXPECT_EQ(keyword("{'|re': 'B.ta$'}", event), Truth::kYes);
}

TEST(MatchTest, ParentCommandLine) {
    v1::Event event = Exec("/bin/x", {"x"});
    EXPECT_EQ(OfExec("ParentCommandLine|contains: install", event), Truth::kNo);
    v1::Ancestor* parent = event.mutable_process()->add_ancestry();
    for (const char* argument : {"pip", "install", "Thing"}) parent->add_argv(argument);
    event.mutable_process()->add_ancestry()->add_argv("bash");
    EXPECT_EQ(OfExec("ParentCommandLine: pip install thing", event), Truth::kYes);
    EXPECT_EQ(OfExec("ParentCommandLine: bash", event), Truth::kNo) << "of the parent alone";
    EXPECT_EQ(OfExec("process.ancestry.argv: bash", event), Truth::kYes);
    parent->set_argv_truncated(true);
    EXPECT_EQ(OfExec("ParentCommandLine|contains: secret", event), Truth::kUndecidable);
    EXPECT_EQ(OfExec("ParentCommandLine|startswith: pip", event), Truth::kYes);
    parent->set_argv_truncated(false);
    parent->set_argv(1, "[redacted]");
    EXPECT_EQ(OfExec("ParentCommandLine|contains: install", event), Truth::kNo) << "its own words";
    parent->set_argv_redacted(true);
    EXPECT_EQ(OfExec("ParentCommandLine|contains: install", event), Truth::kUndecidable);
}

TEST(MatchTest, ParentIsTheFirstAncestorAndThePathIsAny) {
    v1::Event event = Exec("/bin/x");
    event.mutable_process()->add_ancestry()->set_exe("/bin/parent");
    event.mutable_process()->add_ancestry()->set_exe("/bin/grandparent");
    EXPECT_EQ(OfExec("ParentImage: /bin/parent", event), Truth::kYes);
    EXPECT_EQ(OfExec("ParentImage: /bin/grandparent", event), Truth::kNo);
    EXPECT_EQ(OfExec("process.ancestry.exe: /bin/grandparent", event), Truth::kYes);
    (*event.mutable_sandbox()->mutable_labels())["team"] = "Red";
    EXPECT_EQ(OfExec("sandbox.labels.team: red", event), Truth::kYes);
    EXPECT_EQ(OfExec("sandbox.labels.tram: red", event), Truth::kNo);
}

TEST(MatchTest, RedactedAndCutValuesAreUndecidable) {
    v1::Event event = Exec("/bin/x", {"curl", "--token", "[redacted]", "http://x"});
    // Nothing was redacted: it is what the sandbox wrote.
    EXPECT_EQ(OfExec("CommandLine|contains: secret", event), Truth::kNo);
    event.add_redactions()->set_count(1);
    const Truth yes = Truth::kYes, no = Truth::kNo, open = Truth::kUndecidable;
    const std::pair<const char*, Truth> kCases[] = {
        {"CommandLine|contains: secret", open},
        {"CommandLine|contains: '--token'", yes},
        {"CommandLine|startswith: 'curl '", yes},
        {"CommandLine|startswith: wget", no},
        {"CommandLine|startswith: 'curl --token a'", open},
        {"CommandLine|endswith: http://x", yes},
        {"CommandLine|endswith: http://y", no},
        {"CommandLine: 'curl * http://x'", yes},
        {"CommandLine: 'curl --token abc http://x'", open},
        {"CommandLine: 'curl ?'", no},
        {"CommandLine|re: curl", open},
        {"CommandLine|contains|neq: secret", open},
        {"CommandLine|exists: true", yes},
        {"CommandLine: null", no},
        {"CommandLine|contains|all: ['wget ', secret]", open},
        {"Image: /bin/x", yes},
    };
    for (const auto& [item, truth] : kCases) EXPECT_EQ(OfExec(item, event), truth) << item;
    // What decides without the hidden part is decided.
    const std::string both = Header("process_creation") +
                             "  a:\n    CommandLine|contains: secret\n  b:\n    Image: /bin/x\n  condition: ";
    EXPECT_EQ(Answer(both + "a or b\n", event), yes);
    EXPECT_EQ(Answer(both + "a and not b\n", event), no);
    EXPECT_EQ(Answer(both + "b and not a\n", event), open);

    v1::Event cut = Exec("/bin/x", {"sh", "-c"});
    cut.mutable_exec()->set_argv_truncated(true);
    EXPECT_EQ(OfExec("CommandLine|contains: curl", cut), open);
    EXPECT_EQ(OfExec("CommandLine|startswith: 'sh -c'", cut), yes);
    EXPECT_EQ(OfExec("CommandLine|startswith: 'sh -x'", cut), no);
    v1::Event top = Exec(".../bin/bash");
    EXPECT_EQ(OfExec("Image|endswith: /bin/bash", top), yes);
    EXPECT_EQ(OfExec("Image: /usr/bin/bash", top), open);
    EXPECT_EQ(OfExec("Image: /usr/bin/zsh", top), no);
}

TEST(MatchTest, WhatIsNeverRecordedIsUndecidable) {
    const v1::Event event = Exec("/bin/x");
    EXPECT_EQ(OfExec("LogonId: 5", event), Truth::kUndecidable);
    EXPECT_EQ(Answer(Header("process_creation") +
                         "  a:\n    Image: /bin/x\n  b:\n    LogonId: 5\n  condition: a and not b\n",
                     event),
              Truth::kUndecidable);
    EXPECT_EQ(Answer(Header("process_creation") +
                         "  a:\n    Image: /bin/y\n  b:\n    LogonId: 5\n  condition: a and not b\n",
                     event),
              Truth::kNo);
}

// "Not" would be an answer, and nobody knows.
TEST(MatchTest, TheHostOfAConnectionIsUndecidableWhereItIsNotSaid) {
    const auto answer = [](const std::string& item, const std::string& host) {
        v1::Event event;
        event.mutable_net()->set_op("connect");
        event.mutable_net()->set_address("10.0.0.1");
        event.mutable_net()->set_host_name(host);
        return Answer(absl::StrCat(Header("network_connection"), "  s:\n    ", item, "\n  condition: s\n"),
                      event);
    };
    const std::string item = "DestinationHostname|endswith: .pool.test";
    EXPECT_EQ(answer(item, ""), Truth::kUndecidable);
    EXPECT_EQ(answer(item, "a.pool.test"), Truth::kYes);
    EXPECT_EQ(answer(item, "a.test"), Truth::kNo);
    EXPECT_EQ(answer("DestinationHostname: null", ""), Truth::kUndecidable);
    EXPECT_EQ(answer("net.host_name: null", ""), Truth::kYes);
}

TEST(MatchTest, FiltersSuppress) {
    const std::string rule =
        "title: R\nname: r\nlogsource: {product: linux, category: process_creation}\ndetection:\n"
        "  s:\n    Image: /bin/x\n  condition: s\n---\ntitle: F\nlogsource: {category: process_creation}\n"
        "filter:\n  rules: [r]\n  ours:\n    SessionId|startswith: ci-\n  condition: not ours\n";
    ParsedRules parsed = ParseRules({{"r.yaml", rule}});
    ASSERT_FALSE(HasErrors(parsed.diagnostics)) << ToString(parsed.diagnostics[0]);
    const auto set = RuleSet::Create(parsed.rules);
    const auto hits = [&](const std::string& session) {
        v1::Event event = Exec("/bin/x");
        event.mutable_sandbox()->set_session(session);
        EventView view(event);
        std::vector<Hit> out;
        set->Match(view, &out);
        return out.size();
    };
    EXPECT_EQ(hits("sess_1"), 1u);
    EXPECT_EQ(hits("ci-7"), 0u);
}

}  // namespace
}  // namespace stockade::detect
