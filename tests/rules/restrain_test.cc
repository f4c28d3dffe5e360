// What responses take from a sandbox, from which ones, and what a next agent knows of it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/dns/world.h"
#include "tests/rules/respond.h"
#include "userspace/base/fd.h"

namespace stockade::tests {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Two sandboxes of a session do it together; a third one of another session has no part in it.
std::string TogetherRule(const std::string& scope) {
    return FileRule("marked", "") +
           "---\ntitle: Together\nname: together\nlevel: high\ncorrelation:\n  type: value_count\n  rules: "
           "[marked]\n"
           "  group-by: [SessionId]\n  timespan: 5m\n  condition: {field: SandboxId, gte: 2}\n"
           "response: {action: kill-sandbox, scope: " +
           scope + "}\n";
}

class RulesRestrain : public RulesRespond {
  protected:
    void SetUp() override {
        RulesRespond::SetUp();
        // A loaded machine starts the next agent late, and a sandbox waits no longer than this.
        product_.Configure("agent_wait_seconds: 60\n");
    }
    // Nobody starts another agent until it is released; then a client does.
    void KillAgent(const std::function<void()>& meanwhile) {
        const pid_t before = product_.AgentPid();
        ASSERT_NE(before, 0);
        Fd lock(open(product_.Path("run/start.lock").c_str(), O_RDWR | O_CLOEXEC));
        ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
        product_.StopAgent(SIGKILL);
        meanwhile();
        lock.Reset();
        ASSERT_NE(product_.AwaitAgent(before), 0) << product_.Get("run/agent.log");
        ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get("run/agent.log"), "taken over"); }))
            << product_.Get("run/agent.log");
    }
    // Three sandboxes do the same, two of them in one session. They go on until nothing more is done to them.
    std::map<std::string, Ran> Together(const std::string& scope) {
        product_.Put("rules/a.yaml", TogetherRule(scope));
        std::filesystem::create_directories(product_.Path("in"));
        std::map<std::string, pid_t> runs;
        for (const char* tag : {"other", "first", "last"}) {
            runs[tag] = product_.StartRun(
                product_.Path("open.yaml"),
                {"/bin/sh", "-c",
                 "echo x >/tmp/marked; cat /tmp/marked; while ! [ -e /in/stop ]; do sleep 0.05; done; echo "
                 "lived"},
                tag,
                {"--session", tag[0] == 'o' ? "apart" : "one", "--in", product_.Path("in"), "--timeout",
                 "60s"});
            EXPECT_TRUE(Until([&] { return product_.Get(absl::StrCat(tag, ".out")) == "x\n"; })) << tag;
        }
        // The last event is that of `last`.
        std::map<std::string, Ran> ran;
        ran["last"] = product_.Finish(runs["last"], "last");
        const size_t left = scope == "group" ? 1 : 2;
        EXPECT_TRUE(Until([&] { return product_.Sandboxes().size() == left; }));
        product_.Put("in/stop", "");
        for (const char* tag : {"other", "first"}) ran[tag] = product_.Finish(runs[tag], tag);
        return ran;
    }
    // Both lead to one address, and the policy `names` opens both.
    void TwoNames(World& world, const std::string& recorded) {
        world.Answer("bait.egress.test", World::kOutside);
        world.Answer("good.egress.test", World::kOutside);
        product_.Put("names.yaml",
                     absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: "
                                  "names}\nspec:\n  exec: {allow: [/**]}\n"
                                  "  files: {read: [/**], write: [/tmp/**, /dev/**]}\n"
                                  "  network: {allow: [{name: \"*.egress.test\"}]}\n  dns: {resolvers: [",
                                  World::kResolver, "]}\n  record: {", recorded, ": all}\n"));
    }
    std::string Ps() { return product_.Stockade({"ps", "-o", "json"}).out; }
};

// Prints what becomes of a UDP connect to each address, each time that it changes.
std::string Watch(const std::vector<std::string>& addresses) {
    std::string list;
    for (const std::string& address : addresses) absl::StrAppend(&list, "'", address, "',");
    return absl::StrCat(
        "import os, socket, time\nlast = {}\nwhile not os.path.exists('/in/stop'):\n    for a in [", list,
        "]:\n        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "        try: s.connect((a, 4711)); now = 'open'\n"
        "        except OSError as e: now = 'errno %d' % e.errno\n"
        "        s.close()\n"
        "        if last.get(a) != now: print(a, now, flush=True)\n"
        "        last[a] = now\n"
        "    time.sleep(0.02)\n");
}

std::string AddressRule(const std::string& address, const std::string& modifier = "") {
    return absl::StrCat(
        "title: Bait\nname: bait\nlevel: high\nlogsource: {product: linux, category: "
        "network_connection}\ndetection:\n"
        "  selection: {DestinationIp", modifier, ": ",
        address,
        "}\n  condition: selection\n"
        "response: {action: deny, deny: {connect: DestinationIp}}\n");
}

TEST_F(RulesRestrain, ADeniedAddressIsRefusedAndOthersStayOpen) {
    product_.Put("rules/a.yaml", AddressRule("10.0.1.1"));
    std::filesystem::create_directories(product_.Path("in"));
    const pid_t pid =
        product_.StartRun(product_.Path("open.yaml"), {"python3", "-c", Watch({"10.0.1.2", "10.0.1.1"})},
                          "long", {"--in", product_.Path("in")});
    EXPECT_TRUE(Until([&] { return absl::StrContains(product_.Get("long.out"), "10.0.1.1 errno 1\n"); }))
        << product_.Get("long.out") << product_.Get("long.err");
    EXPECT_THAT(Ps(), HasSubstr("Denied"));
    const Ran release = product_.Stockade({"release", OnlySandbox()});
    EXPECT_EQ(release.status, 0) << release.err;
    product_.Put("in/stop", "");
    const Ran ran = product_.Finish(pid, "long");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, Not(HasSubstr("10.0.1.2 errno")));
    // The first connect was seen, and not refused. Released, it is open until the rule takes it again.
    EXPECT_THAT(ran.out, HasSubstr("10.0.1.2 open\n10.0.1.1 open\n10.0.1.1 errno 1\n"));
    EXPECT_EQ(Actions(ran).at(0), "deny done") << ran.Text();
}

// A policy without `network:` allows all of it, and goes on doing so but for the one address.
TEST_F(RulesRestrain, ADeniedAddressWhereThePolicySaysNothingOfNetworks) {
    product_.Put("plain.yaml",
                 "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: plain}\nspec:\n"
                 "  exec: {allow: [/**]}\n  files: {read: [/**], write: [/tmp/**, /dev/**]}\n"
                 "  record: {exec: all, files: all, network: all}\n");
    product_.Put("rules/a.yaml", AddressRule("127.0.0.1"));
    std::filesystem::create_directories(product_.Path("in"));
    const std::string more =
        "def tell(what, do):\n"
        "    try: do(); print(what, 'open')\n"
        "    except OSError as e: print(what, 'errno', e.errno)\n"
        "def udp(family): return socket.socket(family, socket.SOCK_DGRAM)\n"
        "tell('stream', lambda: socket.socket().connect(('127.0.0.1', 80)))\n"
        "tell('other stream', lambda: socket.socket().connect(('127.0.0.2', 80)))\n"
        "tell('message', lambda: udp(socket.AF_INET).sendto(b'x', ('127.0.0.1', 80)))\n"
        "tell('mapped', lambda: udp(socket.AF_INET6).connect(('::ffff:127.0.0.1', 80)))\n"
        "tell('probe', lambda: udp(socket.AF_INET).connect(('127.0.0.1', 0)))\n"
        "tell('IPv6', lambda: udp(socket.AF_INET6).connect(('::1', 80)))\n"
        "tell('other probe', lambda: udp(socket.AF_INET).connect(('127.0.0.2', 0)))\n"
        "s = socket.socket(socket.AF_UNIX); s.bind('/tmp/sock'); s.listen(1)\n"
        "tell('unix', lambda: socket.socket(socket.AF_UNIX).connect('/tmp/sock'))\n"
        "tell('bind', lambda: socket.socket().bind(('127.0.0.1', 7777)))\n";
    const pid_t pid = product_.StartRun(product_.Path("plain.yaml"),
                                        {"python3", "-c", Watch({"127.0.0.2", "127.0.0.1"}) + more}, "long",
                                        {"--in", product_.Path("in")});
    EXPECT_TRUE(Until([&] { return absl::StrContains(product_.Get("long.out"), "127.0.0.1 errno 1\n"); }))
        << product_.Get("long.out") << product_.Get("long.err");
    product_.Put("in/stop", "");
    const Ran ran = product_.Finish(pid, "long");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out,
              "127.0.0.2 open\n127.0.0.1 open\n127.0.0.1 errno 1\n"
              "stream errno 1\nother stream errno 111\nmessage errno 1\nmapped errno 1\nprobe errno 1\n"
              "IPv6 open\nother probe open\nunix open\nbind open\n");
    // Why, and that no line of the policy would allow it.
    std::set<std::string> codes;
    for (const Json& event : Of(ran, "net")) {
        if (At(event, "outcome") == "prevented") codes.insert(At(event, "code"));
    }
    EXPECT_THAT(codes, ElementsAre("network.denied")) << ran.Text();
    EXPECT_THAT(ran.err, HasSubstr("a rule denied this address to the sandbox: 127.0.0.1"));
    EXPECT_THAT(ran.err, Not(HasSubstr("network.loopback")));
}

TEST_F(RulesRestrain, ADeniedAddressOfIpv6) {
    Policy("six", "");
    std::string policy = product_.Get("six.yaml");
    policy.replace(policy.find("10.0.0.0/8"), 10, "'::/0'");
    product_.Put("six.yaml", policy);
    product_.Put("rules/a.yaml", AddressRule("'2001:db8::1'"));
    const std::string code =
        "import socket, time\n"
        "def at(a):\n"
        "    try: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).connect((a, 4711)); return 'open'\n"
        "    except OSError as e: return e.errno\n"
        "first = at('2001:db8::1')\nend = time.time() + 30\n"
        "while time.time() < end and at('2001:db8::1') == first: time.sleep(0.02)\n"
        "print(first == at('2001:db8::2'), at('2001:db8::1'))\n";
    const Ran ran = product_.Run(product_.Path("six.yaml"), {"python3", "-c", code});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "True 1\n") << ran.Text();
    EXPECT_EQ(Actions(ran).at(0), "deny done") << ran.Text();
}

// A sandbox that wants everything denied to it fills nothing: it is told no, and what was denied stays so.
TEST_F(RulesRestrain, MoreThanItsBoundIsAnAnswer) {
    product_.Configure("kills_per_minute: 0\n");
    product_.Put("rules/a.yaml", AddressRule("10.0.0.0/16", "|cidr"));
    // One after another, so that none is lost on its way to the rules: each waits until it is refused.
    const std::string code =
        "import socket, time\n"
        "def at(i):\n"
        "    try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('10.0.%d.%d' % (i // 200, 1 + i "
        "% 200), "
        "4711)); return 'open'\n"
        "    except OSError as e: return e.errno\n"
        "end = time.time() + 90\n"
        "for i in range(256):\n"
        "    while time.time() < end and at(i) != 1: time.sleep(0.005)\n"
        "print(at(0), at(255), at(256))\ntime.sleep(1)\nprint(at(0), at(255), at(256))\n";
    const Ran ran = product_.Run(product_.Path("open.yaml"), {"python3", "-c", code});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "1 1 open\n1 1 open\n") << ran.Text();
    const std::vector<std::string> actions = Actions(ran);
    EXPECT_EQ(std::count(actions.begin(), actions.end(), "deny done"), 256);
    ASSERT_GE(std::count(actions.begin(), actions.end(), "deny failed"), 1) << ran.Text();
    EXPECT_EQ(At(Of(ran, "action").back(), "action.detail"), "more than 256 things are denied to it already");
}

// Names made so that no policy can deny one more of them: that is tried once, and not for each event.
TEST_F(RulesRestrain, WhatCannotBeDeniedIsTriedOnce) {
    const auto rule = [](const std::string& name) {
        return absl::StrCat("title: ", name, "\nname: ", name,
                            "\nlevel: high\nlogsource: {product: linux, category: file_event}\ndetection:\n"
                            "  selection: {TargetFilename|contains: /", name, "}\n  condition: selection\n"
                            "response: {action: deny, deny: {write: TargetFilename}}\n");
    };
    product_.Put("rules/a.yaml", rule("fill"));
    product_.Put("rules/b.yaml", rule("evil"));
    const std::string code =
        "import random, time\n"
        "random.seed(1)\n"
        "def name(of): return '/tmp/' + of + ''.join(random.choice('****ab') for _ in range(220))\n"
        "def touch(path):\n    open(path, 'w').close()\n    time.sleep(0.1)\n"
        "for i in range(45): touch(name('fill'))\n"
        "evil = name('evil')\n"
        "for again in range(10): touch(evil)\n"
        "time.sleep(1)\n";
    const Ran ran = product_.Run(product_.Path("open.yaml"), {"python3", "-c", code});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    size_t failed = 0;
    for (const Json& event : Of(ran, "action")) failed += At(event, "action.rule") == "evil" && At(event, "action.result") == "failed";
    EXPECT_EQ(failed, 1u);
}

TEST_F(RulesRestrain, ADeniedNameIsNotAskedForAgain) {
    World world;
    ASSERT_TRUE(world.status().ok()) << world.status();
    TwoNames(world, "dns");
    product_.Put(
        "rules/a.yaml",
        "title: Bait\nname: bait\nlevel: high\nlogsource: {product: linux, category: dns_query}\ndetection:\n"
        "  selection: {QueryName: bait.egress.test}\n  condition: selection\n"
        "response: {action: deny, deny: {dns: QueryName}}\n");
    // Fresh names make sure that each look-up is one: nothing of the C library keeps them.
    const std::string code =
        "import socket, time\n"
        "def ask(name):\n"
        "    try: socket.getaddrinfo(name, 80, socket.AF_INET); return 'resolved'\n"
        "    except OSError as e: return 'no name'\n"
        "print(ask('bait.egress.test'), flush=True)\n"
        "end = time.time() + 30\n"
        "while time.time() < end and ask('bait.egress.test') == 'resolved': time.sleep(0.02)\n"
        "print(ask('bait.egress.test'), ask('good.egress.test'))\n";
    const Ran ran = product_.Run(product_.Path("names.yaml"), {"python3", "-c", code});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_EQ(ran.out, "resolved\nno name resolved\n") << ran.Text();
    EXPECT_EQ(Actions(ran).at(0), "deny done") << ran.Text();
}

// One address behind both names: the one that was asked for last led there.
TEST_F(RulesRestrain, ARuleKnowsTheNameThatLedToAnAddress) {
    World world;
    ASSERT_TRUE(world.status().ok()) << world.status();
    TwoNames(world, "network");
    product_.Put("rules/a.yaml",
                 "title: Bait\nname: bait\nlevel: high\nlogsource: {product: linux, category: network_connection}\n"
                 "detection:\n  selection: {DestinationHostname|startswith: bait.}\n  condition: selection\n");
    const std::string code = absl::StrCat(
        "import socket\n"
        "def go(to): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect((to, 4711))\n"
        "go('good.egress.test')\ngo('bait.egress.test')\ngo('good.egress.test')\ngo('", World::kOutside, "')\n");
    const Ran ran = product_.Run(product_.Path("names.yaml"), {"python3", "-c", code});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    std::vector<std::string> names;
    for (const Json& event : Of(ran, "net")) {
        if (At(event, "net.address") == World::kOutside && At(event, "net.port") == "4711")
            names.push_back(At(event, "net.host_name"));
    }
    EXPECT_THAT(names, ElementsAre("good.egress.test", "bait.egress.test", "good.egress.test", "good.egress.test")) << ran.Text();
    EXPECT_EQ(Of(ran, "finding").size(), 1u) << ran.Text();
}

TEST_F(RulesRestrain, WhatIsNoAddressFailsAndSaysSo) {
    product_.Put("rules/a.yaml",
                 FileRule("bait", "response: {action: deny, deny: {connect: TargetFilename}}\n"));
    const Ran ran = Sh("echo x >/tmp/bait; cat /tmp/bait; sleep 0.3");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(Actions(ran), ElementsAre("deny failed")) << ran.Text();
    EXPECT_EQ(At(Of(ran, "action")[0], "action.detail"), "deny: the event has no address for connect");
}

TEST_F(RulesRestrain, ScopeSandboxIsTheOneOfTheLastEvent) {
    const std::map<std::string, Ran> ran = Together("sandbox");
    EXPECT_EQ(ran.at("last").status, 137) << ran.at("last").Text();
    EXPECT_EQ(ran.at("first").status, 0) << ran.at("first").Text();
    EXPECT_EQ(ran.at("first").out, "x\nlived\n");
    EXPECT_EQ(ran.at("other").out, "x\nlived\n");
}

TEST_F(RulesRestrain, ScopeGroupIsAllThatTookPart) {
    const std::map<std::string, Ran> ran = Together("group");
    for (const char* part : {"first", "last"}) {
        EXPECT_EQ(ran.at(part).status, 137) << ran.at(part).Text();
        EXPECT_THAT(Actions(ran.at(part)), ElementsAre("kill-sandbox done"));
    }
    EXPECT_EQ(ran.at("other").status, 0) << ran.at("other").Text();
    EXPECT_EQ(ran.at("other").out, "x\nlived\n");
}

TEST_F(RulesRestrain, ANextAgentKnowsWhatWasDoneAndUndoesIt) {
    product_.Put("rules/a.yaml", AddressRule("10.0.1.1"));
    product_.Put("rules/b.yaml",
                 FileRule("secret", "response: {action: deny, deny: {read: TargetFilename}}\n"));
    std::filesystem::create_directories(product_.Path("in"));
    // What it was given back is what its policy says, which a next agent finds by its name.
    product_.Configure(absl::StrCat("policy_dirs: [", product_.Path("policies"), "]\n"));
    product_.Put("policies/open.yaml", product_.Get("open.yaml"));
    const pid_t pid = product_.StartRun("open",
                                        {"/bin/sh", "-c",
                                         absl::StrCat("echo x >/tmp/secret; cat /tmp/secret; python3 -c \"",
                                                      Watch({"10.0.1.1"}), "\"; cat /tmp/secret")},
                                        "long", {"--in", product_.Path("in")});
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get("long.out"), "10.0.1.1 errno 1\n"); }))
        << product_.Get("long.out") << product_.Get("long.err");
    const std::string id = OnlySandbox();
    ASSERT_EQ(product_.Stockade({"freeze", id}).status, 0);
    for (const char* condition : {"Denied", "Frozen"}) EXPECT_THAT(Ps(), HasSubstr(condition));
    KillAgent([] {});
    for (const char* condition : {"Denied", "Frozen", "Adopted"}) EXPECT_THAT(Ps(), HasSubstr(condition));
    const Ran thaw = product_.Stockade({"thaw", id});
    EXPECT_EQ(thaw.status, 0) << thaw.err;
    EXPECT_THAT(Ps(), Not(HasSubstr("Frozen")));
    // The rules are what they were, and would deny it anew: these two are given back.
    std::filesystem::remove(product_.Path("rules/a.yaml"));
    std::filesystem::remove(product_.Path("rules/b.yaml"));
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get("run/agent.log"), "rules: 0 rules"); }));
    const Ran release = product_.Stockade({"release", id});
    EXPECT_EQ(release.status, 0) << release.err;
    EXPECT_THAT(Ps(), Not(HasSubstr("Denied")));
    EXPECT_TRUE(Until([&] { return absl::EndsWith(product_.Get("long.out"), "10.0.1.1 open\n"); }))
        << product_.Get("long.out");
    product_.Put("in/stop", "");
    const Ran ran = product_.Finish(pid, "long");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_TRUE(absl::EndsWith(ran.out, "10.0.1.1 open\nx\n")) << ran.Text();
}

// What the rings still hold is read again: what it shows bears the id that it had, and says so.
TEST_F(RulesRestrain, AFindingThatIsFoundAgainIsMarked) {
    product_.Put("rules/a.yaml", FileRule("marked", ""));
    std::filesystem::create_directories(product_.Path("in"));
    const pid_t pid = Long(
        "echo x >/tmp/marked; echo up; while ! [ -e /tmp/on ]; do cat /tmp/marked >/dev/null; n=$((n+1)); "
        "[ $n = 200 ] && touch /tmp/on; done; echo done; sleep 3; cat /tmp/marked");
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get("long.out"), "up"); }))
        << product_.Get("long.err");
    KillAgent(
        [&] { EXPECT_TRUE(Until([&] { return absl::StrContains(product_.Get("long.out"), "done"); })); });
    const Ran ran = product_.Finish(pid, "long");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    std::map<std::string, int> times;
    size_t again = 0, fresh = 0;
    for (const Json& event : Of(ran, "finding")) {
        if (At(event, "finding.rule") != "marked") continue;
        const std::string id = At(event, "id"), hash = At(event, "finding.hash");
        EXPECT_THAT(id, HasSubstr(absl::StrCat(At(event, "sandbox.id"), ".")));
        EXPECT_TRUE(absl::EndsWith(id, "." + hash.substr(0, 12))) << id;
        const bool marked = At(event, "finding.again") == "true";
        // Whoever has one twice knows it by that.
        if (++times[id] > 1) {
            EXPECT_TRUE(marked) << id;
        }
        ++(marked ? again : fresh);
    }
    EXPECT_GT(again, 0u) << ran.Text();
    EXPECT_GT(fresh, 0u);
    EXPECT_TRUE(Until([&] { return product_.LeftOver().empty(); })) << product_.LeftOver();
}

}  // namespace
}  // namespace stockade::tests
