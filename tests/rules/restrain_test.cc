// What responses take from a sandbox, from which ones, and what a next agent knows of it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>

#include <map>

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
    std::string Ps() { return product_.Stockade({"ps", "-o", "json"}).out; }
};

TEST_F(RulesRestrain, ADeniedNameIsNotAskedForAgain) {
    World world;
    ASSERT_TRUE(world.status().ok()) << world.status();
    world.Answer("bait.egress.test", World::kOutside);
    world.Answer("good.egress.test", World::kOutside);
    product_.Put("names.yaml",
                 absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: "
                              "names}\nspec:\n  exec: {allow: [/**]}\n"
                              "  files: {read: [/**], write: [/tmp/**, /dev/**]}\n"
                              "  network: {allow: [{name: \"*.egress.test\"}]}\n  dns: {resolvers: [",
                              World::kResolver,
                              "]}\n"
                              "  record: {dns: all}\n"));
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
    product_.Put("rules/b.yaml",
                 FileRule("secret", "response: {action: deny, deny: {read: TargetFilename}}\n"));
    std::filesystem::create_directories(product_.Path("in"));
    // What it was given back is what its policy says, which a next agent finds by its name.
    product_.Configure(absl::StrCat("policy_dirs: [", product_.Path("policies"), "]\n"));
    product_.Put("policies/open.yaml", product_.Get("open.yaml"));
    const pid_t pid = product_.StartRun(
        "open",
        {"/bin/sh", "-c",
         "echo x >/tmp/secret; while cat /tmp/secret 2>/dev/null; do sleep 0.05; done; echo denied; "
         "while ! [ -e /in/stop ]; do sleep 0.05; done; cat /tmp/secret"},
        "long", {"--in", product_.Path("in")});
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get("long.out"), "denied\n"); }))
        << product_.Get("long.out") << product_.Get("long.err");
    const std::string id = OnlySandbox();
    ASSERT_EQ(product_.Stockade({"freeze", id}).status, 0);
    for (const char* condition : {"Denied", "Frozen"}) EXPECT_THAT(Ps(), HasSubstr(condition));
    KillAgent([] {});
    for (const char* condition : {"Denied", "Frozen", "Adopted"}) EXPECT_THAT(Ps(), HasSubstr(condition));
    const Ran thaw = product_.Stockade({"thaw", id});
    EXPECT_EQ(thaw.status, 0) << thaw.err;
    EXPECT_THAT(Ps(), Not(HasSubstr("Frozen")));
    // The rule is what it was, and would deny it anew.
    std::filesystem::remove(product_.Path("rules/b.yaml"));
    ASSERT_TRUE(Until([&] { return absl::StrContains(product_.Get("run/agent.log"), "rules: 0 rules"); }));
    const Ran release = product_.Stockade({"release", id});
    EXPECT_EQ(release.status, 0) << release.err;
    EXPECT_THAT(Ps(), Not(HasSubstr("Denied")));
    product_.Put("in/stop", "");
    const Ran ran = product_.Finish(pid, "long");
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_TRUE(absl::EndsWith(ran.out, "denied\nx\n")) << ran.Text();
}

}  // namespace
}  // namespace stockade::tests
