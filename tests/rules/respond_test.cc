// What a running agent does for what rules find, and for people: each action with its effect, its event, and its control.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "tests/rules/respond.h"
#include "userspace/launch/network.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kScanRule[] = R"(title: A connection
id: e8b0f89d-5f8f-52a2-9d6a-a8bbb082b4cd
name: connection
level: informational
logsource: {product: linux, category: network_connection}
detection:
  selection: {DestinationIp|cidr: 10.0.0.0/8}
  condition: selection
---
title: A scan
id: 75840a5b-9b6b-5a88-a978-d5e28f4f2aa3
name: scan
level: high
correlation:
  type: value_count
  rules: [connection]
  group-by: [SandboxId]
  timespan: 10s
  condition: {field: DestinationIp, gte: 20}
response: {action: kill-sandbox}
)";

// `count` addresses, then it stays.
std::string Scan(int count) {
    return absl::StrCat("import socket, time\nfor i in range(", count,
                        "):\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
                        "    try: s.connect(('10.0.1.%d' % (i + 1), 9))\n    except OSError: pass\n"
                        "print('scanned', flush=True)\ntime.sleep(",
                        count < 20 ? 1 : 60, ")\n");
}

TEST_F(RulesRespond, AFindingIsAnEventAndInTheSummaryWithItsRule) {
    product_.Put("rules/a.yaml", FileRule("marked", ""));
    const Ran silent = Sh("echo x >/tmp/other; cat /tmp/other");
    EXPECT_EQ(silent.status, 0) << silent.Text();
    EXPECT_THAT(Of(silent, "finding"), IsEmpty());
    const Ran ran = Sh("echo x >/tmp/marked; cat /tmp/marked");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    const std::vector<Json> findings = Of(ran, "finding");
    ASSERT_EQ(findings.size(), 1u) << ran.Text();
    EXPECT_EQ(At(findings[0], "finding.title"), "Rule marked");
    EXPECT_EQ(At(findings[0], "finding.severity"), "high");
    EXPECT_EQ(At(findings[0], "finding.hash").size(), 64u);
    EXPECT_EQ(At(findings[0], "process.exe"), "/usr/bin/cat");
    EXPECT_THAT(ran.err, HasSubstr("finding: Rule marked (high, "));
    EXPECT_THAT(product_.Get("run2.json"), HasSubstr("\"findings\""));
}

// The rule sees the secret; nobody else does.
TEST_F(RulesRespond, RulesSeeWhatIsRedactedBeforeAnybodyElse) {
    product_.Put(
        "rules/a.yaml",
        "title: A token\nname: token\nlevel: high\nlogsource: {product: linux, category: process_creation}\n"
        "detection:\n  selection: {CommandLine|contains: 'sk-ant-api03-abcdefghij'}\n  condition: "
        "selection\n");
    const Ran ran = Sh("/bin/true --api-key=sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789; true");
    EXPECT_EQ(Of(ran, "finding").size(), 2u) << ran.Text();  // of the shell and of true
    for (const Json& finding : Of(ran, "finding"))
        EXPECT_THAT(finding.ShortDebugString(), Not(HasSubstr("abcdefghij")));
    EXPECT_THAT(product_.Get("run1.events"), Not(HasSubstr("abcdefghij")));
    EXPECT_THAT(product_.Get("run1.events"), HasSubstr("[redacted]"));
}

TEST_F(RulesRespond, AScannerIsKilledAndHowFast) {
    product_.Put("rules/a.yaml", kScanRule);
    const Ran control = product_.Run(product_.Path("open.yaml"), {"/usr/bin/python3", "-c", Scan(19)});
    EXPECT_EQ(control.status, 0) << control.Text();
    EXPECT_THAT(Actions(control), IsEmpty());
    std::vector<double> ms;
    constexpr int kRuns = 50;
    for (int i = 0; i < kRuns; ++i) {
        const Ran ran = product_.Run(product_.Path("open.yaml"), {"/usr/bin/python3", "-c", Scan(20)});
        ASSERT_EQ(ran.status, 137) << ran.Text();
        ASSERT_EQ(At(ran.result, "end"), "rule") << ran.Text();
        ASSERT_THAT(Actions(ran), testing::ElementsAre("kill-sandbox done")) << ran.Text();
        double latency = 0;
        ASSERT_TRUE(absl::SimpleAtod(At(Of(ran, "action")[0], "action.latency_ns"), &latency)) << ran.Text();
        ms.push_back(latency / 1e6);
        if (i > 0) continue;
        EXPECT_THAT(ran.err, HasSubstr("killed by a rule: A scan"));
        EXPECT_EQ(At(Of(ran, "action")[0], "action.hash").size(), 64u);
        EXPECT_EQ(Of(ran, "action")[0]
                      .struct_value()
                      .fields()
                      .at("action")
                      .struct_value()
                      .fields()
                      .at("evidence")
                      .list_value()
                      .values_size(),
                  16);
    }
    std::sort(ms.begin(), ms.end());
    std::cout << "from the twentieth connect to empty: p50 " << ms[kRuns / 2] << " ms, p99 "
              << ms[kRuns * 99 / 100] << " ms, of " << kRuns << "\n";
    EXPECT_LT(ms[kRuns / 2], 50);
    EXPECT_THAT(product_.Sandboxes(), IsEmpty());
}

TEST_F(RulesRespond, KillProcessEndsOneAndNotTheOthers) {
    product_.Put("rules/a.yaml", FileRule("bad", "response: {action: kill-process}\n"));
    const Ran ran =
        Sh("echo x >/tmp/bad; sh -c 'exec 3</tmp/bad; sleep 20; echo survived'; echo \"then $?\"");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, HasSubstr("then 137"));
    EXPECT_THAT(Actions(ran), testing::Contains("kill-process done")) << ran.Text();
}

TEST_F(RulesRespond, DenyRefusesTheNextTimeAndOthersGoOn) {
    product_.Put("rules/a.yaml",
                 FileRule("bait", "response: {action: deny, deny: {read: TargetFilename}}\n"));
    const Ran ran =
        Sh("echo x >/tmp/bait; echo y >/tmp/other; cat /tmp/bait; i=0; while [ $i -lt 100 ]; do sleep 0.05; "
           "(cat /tmp/bait) >/dev/null 2>&1 || break; i=$((i+1)); done; echo after $i; cat /tmp/other");
    EXPECT_THAT(ran.out, HasSubstr("x\nafter ")) << ran.Text();
    EXPECT_THAT(ran.out, Not(HasSubstr("after 100"))) << ran.Text();
    EXPECT_TRUE(absl::EndsWith(ran.out, "y\n")) << ran.Text();
    EXPECT_THAT(Actions(ran), testing::ElementsAre("deny done"));
    EXPECT_THAT(ran.Refusals(), Not(IsEmpty()));
}

// What another lock refuses is told as what was asked for: rules about writing see it as that.
TEST_F(RulesRespond, ARefusedOpenForWritingIsOneForWriting) {
    const Ran ran =
        product_.Run(product_.Path("open.yaml"), {"python3", "-c",
                                                  "import os\nopen('/tmp/closed', 'w'); os.chmod('/tmp/closed', 0)\n"
                                                  "for path, flags in (('/etc/passwd', os.O_WRONLY), "
                                                  "('/etc/group', os.O_RDWR), ('/etc/new', os.O_CREAT),\n"
                                                  "                    ('/tmp/closed', 0)):\n"
                                                  "    try: os.open(path, flags)\n"
                                                  "    except OSError: print(path)\n"});
    EXPECT_EQ(ran.out, "/etc/passwd\n/etc/group\n/etc/new\n/tmp/closed\n") << ran.Text();
    std::vector<std::string> ops;
    for (const Json& event : Of(ran, "file")) {
        if (At(event, "outcome") == "prevented")
            ops.push_back(absl::StrCat(At(event, "file.path"), " ", At(event, "file.op")));
    }
    EXPECT_THAT(ops, testing::ElementsAre("/etc/passwd open-write", "/etc/group open-write",
                                          "/etc/new open-write", "/tmp/closed open-read"))
        << ran.Text();
}

TEST_F(RulesRespond, UnderObserveItIsADryRun) {
    product_.Put("rules/a.yaml", FileRule("bad", "response: {action: kill-sandbox, once_per: sandbox}\n"));
    const Ran ran = Sh("echo x >/tmp/bad; cat /tmp/bad; cat /tmp/bad; echo lives", "watched");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, HasSubstr("lives"));
    EXPECT_THAT(Actions(ran), testing::ElementsAre("kill-sandbox dry-run"));
    EXPECT_EQ(Of(ran, "finding").size(), 2u);
}

TEST_F(RulesRespond, TheBreakerOfARuleHoldsBack) {
    product_.Configure("kills_per_minute: 2\n");
    product_.Put("rules/a.yaml", FileRule("bad", "response: {action: kill-sandbox}\n"));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(Sh("echo x >/tmp/bad; cat /tmp/bad; sleep 20").status, 137);
    const Ran ran = Sh("echo x >/tmp/bad; cat /tmp/bad; sleep 0.3; echo lives");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(Actions(ran), testing::ElementsAre("kill-sandbox held-back"));
}

TEST_F(RulesRespond, ThrottledAlertsAreToldOnce) {
    product_.Put("rules/a.yaml", FileRule("marked", "response: {action: alert, throttle: 1h}\n"));
    const Ran ran = Sh("echo x >/tmp/marked; for i in 1 2 3 4 5; do cat /tmp/marked; done");
    EXPECT_EQ(Of(ran, "finding").size(), 1u) << ran.Text();
}

// A sandbox that fires one rule without end fills nothing.
TEST_F(RulesRespond, AFloodOfFindingsIsCounted) {
    product_.Put("rules/a.yaml", FileRule("marked", ""));
    const Ran ran =
        product_.Run(product_.Path("open.yaml"),
                     {"/usr/bin/python3", "-c",
                      "open('/tmp/marked', 'w')\nfor i in range(2000): open('/tmp/marked').close()"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    const size_t told = Of(ran, "finding").size();
    EXPECT_GE(told, 20u);
    EXPECT_LE(told, 60u);
    EXPECT_THAT(product_.Get("run1.events"), HasSubstr("Findings told by number only"));
}

TEST_F(RulesRespond, FreezeByARuleAndThawByHand) {
    product_.Put("rules/a.yaml", FileRule("cold", "response: {action: freeze}\n"));
    const pid_t pid = Long("echo x >/tmp/cold; cat /tmp/cold; sleep 1; echo went on");
    std::string id;
    ASSERT_TRUE(Until([&] {
        const std::string out = product_.Stockade({"ps", "-o", "json"}).out;
        if (out.find("Frozen") == std::string::npos) return false;
        id = out.substr(out.find("sbx_"), 30);
        return true;
    }));
    // Its own second passes, and two more, and it has not gone on.
    EXPECT_EQ(Wait(Start({.argv = {"/bin/sleep", "3"}, .out = "/dev/null", .err = "/dev/null"})), 0);
    EXPECT_THAT(product_.Get("long.out"), Not(HasSubstr("went on")));
    const Ran thaw = product_.Stockade({"thaw", id, "--reason", "looked at it"});
    EXPECT_EQ(thaw.status, 0) << thaw.err;
    const Ran ran = product_.Finish(pid, "long");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, HasSubstr("went on"));
    EXPECT_THAT(Actions(ran), testing::ElementsAre("freeze done", "thaw done"));
    const Json by_hand = Of(ran, "action")[1];
    EXPECT_EQ(At(by_hand, "action.actor_uid"), "0");
    EXPECT_EQ(At(by_hand, "action.detail"), "looked at it");
    EXPECT_NE(At(by_hand, "action.actor_pid"), "");
}

TEST_F(RulesRespond, IsolateTakesTheNetworkAndReleaseGivesItBack) {
    // Connect by UDP needs no peer: refused or not is all that is asked.
    const pid_t pid = Long(
        "exec python3 -c \"\n"
        "import socket, time\n"
        "last = None\n"
        "end = time.time() + 30\n"
        "seen = []\n"
        "while time.time() < end and len(seen) < 3:\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "    try: s.connect(('10.0.1.1', 9)); now = 'open'\n"
        "    except OSError as e: now = 'errno %d' % e.errno\n"
        "    s.close()\n"
        "    if now != last: seen.append(now); print(now, flush=True)\n"
        "    last = now\n"
        "    time.sleep(0.02)\n\"");
    const std::string id = OnlySandbox();
    ASSERT_TRUE(Until([&] { return product_.Get("long.out") == "open\n"; })) << product_.Get("long.err");
    const auto link = launch::LinkOf(product_.Processes().at(0));
    ASSERT_TRUE(link.ok()) << link.status();
    // What stands was allowed when it was made: the link is what ends it.
    const auto is_up = [&] {
        uint64_t flags = 0;
        const std::string text = ReadText("/sys/class/net/" + *link + "/flags");
        EXPECT_TRUE(absl::SimpleHexAtoi(absl::StripSuffix(text, "\n"), &flags)) << *link;
        return (flags & IFF_UP) != 0;
    };
    EXPECT_TRUE(is_up());
    const Ran isolate = product_.Stockade({"isolate", id});
    EXPECT_EQ(isolate.status, 0) << isolate.err;
    EXPECT_FALSE(is_up());
    ASSERT_TRUE(Until([&] { return absl::StartsWith(product_.Get("long.out"), "open\nerrno "); }))
        << product_.Get("long.out") << product_.Get("long.err");
    EXPECT_THAT(product_.Stockade({"ps", "-o", "json"}).out, HasSubstr("Isolated"));
    const Ran release = product_.Stockade({"release", id});
    EXPECT_EQ(release.status, 0) << release.err;
    EXPECT_TRUE(is_up());
    const Ran ran = product_.Finish(pid, "long");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_TRUE(absl::EndsWith(ran.out, "\nopen\n")) << ran.out;
    EXPECT_THAT(Actions(ran), testing::ElementsAre("isolate-network done", "release done"));
}

TEST_F(RulesRespond, FilesAreReadAgainAndABrokenOneKeepsTheOldSet) {
    product_.Put("rules/a.yaml", FileRule("first", ""));
    EXPECT_EQ(Of(Sh("echo x >/tmp/first; cat /tmp/first"), "finding").size(), 1u);
    product_.Put("rules/b.yaml", FileRule("second", ""));
    EXPECT_TRUE(Until([&] { return !Of(Sh("echo x >/tmp/second; cat /tmp/second"), "finding").empty(); }));
    product_.Put("rules/b.yaml", "title: [broken\n");
    EXPECT_TRUE(Until([&] {
        return absl::StrContains(product_.Get("run/agent.log"), "the rules stay as they were");
    })) << product_.Get("run/agent.log");
    const Ran both = Sh("echo x >/tmp/first; cat /tmp/first; echo x >/tmp/second; cat /tmp/second");
    EXPECT_EQ(Of(both, "finding").size(), 2u) << both.Text();
    const pid_t pid = Long("sleep 1");
    (void)OnlySandbox();
    EXPECT_THAT(product_.Stockade({"ps", "-o", "json"}).out, HasSubstr("\"RulesBroken\""));
    (void)product_.Finish(pid, "long");
    std::filesystem::remove(product_.Path("rules/b.yaml"));
    EXPECT_TRUE(Until([&] { return Of(Sh("echo x >/tmp/second; cat /tmp/second"), "finding").empty(); }));
    EXPECT_EQ(Of(Sh("echo x >/tmp/first; cat /tmp/first"), "finding").size(), 1u);
}

TEST_F(RulesRespond, WrongWordsGetAClearError) {
    for (const char* word : {"freeze", "thaw", "isolate", "release"}) {
        const pid_t pid = Long("sleep 1");
        (void)OnlySandbox();
        const Ran ran = product_.Stockade({word, "sbx_NOSUCH"});
        EXPECT_EQ(ran.status, 125);
        EXPECT_THAT(ran.err, HasSubstr("no sandbox"));
        (void)product_.Finish(pid, "long");
    }
}

}  // namespace
}  // namespace stockade::tests
