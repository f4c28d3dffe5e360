// The agent dies under sandboxes that attack without pause: nothing gets through, the next agent takes over.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/tools/product.h"
#include "userspace/api/channel.h"
#include "userspace/base/fd.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kSandboxes = 20;

// Each attack is "prevented" by the coverage table on both backends, and would work without a policy:
// /dev/shm is writable by its mount, bash is there, sockets can be made and the sandbox has a loopback.
constexpr char kPolicy[] =
    "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: attacker}\n"
    "spec:\n  mode: MODE\n"
    "  exec: {allow: [/bin/sh, /bin/sleep, \"/usr/bin/python3*\"], violation: deny}\n"
    "  files: {read: [/usr/**, /in/**], write: [/tmp/**]}\n"
    "  network: {allow: []}\n";

// Shells attack below the rate at which repeats are counted instead of recorded, so that each number must be
// there. The pythons try the network as fast as they can: were it open for a millisecond, they would be through.
constexpr char kShell[] =
    "n=0\nwhile ! [ -e /in/stop ]; do\n"
    "  for i in 1 2 3; do { echo x >/dev/shm/dropper; } 2>/dev/null && echo EFFECT write; done\n"
    "  /bin/bash -c 'echo EFFECT exec' 2>/dev/null\n"
    "  n=$((n + 1)); echo \"attempts $n\"; /bin/sleep 0.2\n"
    "done\n";
constexpr char kPython[] =
    "import os, socket, time\nn = 0\n"
    "while not os.path.exists('/in/stop'):\n"
    "  for call in ('bind', 'connect'):\n"
    "    s = socket.socket()\n"
    "    try: getattr(s, call)(('127.0.0.1', 4243)); print('EFFECT', call, flush=True)\n"
    "    except PermissionError: pass\n"
    "    except ConnectionRefusedError: print('EFFECT', call, flush=True)\n"
    "    s.close()\n"
    "  try: open('/dev/shm/dropper', 'w'); print('EFFECT write', flush=True)\n"
    "  except PermissionError: pass\n"
    "  n += 1; print('attempts', n, flush=True)\n"
    "  end = time.monotonic() + 0.2; s = socket.socket()\n"
    "  while time.monotonic() < end:\n"
    "    try: s.connect(('127.0.0.1', 4243)); print('EFFECT connect', flush=True)\n"
    "    except PermissionError: pass\n"
    "    except OSError: print('EFFECT connect', flush=True)\n"
    "  s.close()\n";

class Agent : public ::testing::Test {
  protected:
    // Long enough for what the test looks at while no agent runs.
    Agent() : product_("agent_wait_seconds: 60\n") {
        product_.Put("in/ready", "");
        for (const char* mode : {"enforce", "observe"}) {
            std::string text = kPolicy;
            text.replace(text.find("MODE"), 4, mode);
            product_.Put(absl::StrCat(mode, ".yaml"), text);
        }
    }
    static std::string Tag(int i) { return absl::StrCat("s", i); }
    static bool IsPython(int i) { return i % 5 == 0; }
    pid_t StartAttacker(int i, const char* mode = "enforce") {
        const bool python = IsPython(i);
        return product_.StartRun(product_.Path(absl::StrCat(mode, ".yaml")),
                                 {python ? "python3" : "/bin/sh", "-c", python ? kPython : kShell}, Tag(i),
                                 {"--in", product_.Path("in"), "--session", Tag(i)});
    }
    int Attempts(int i) const {
        int attempts = 0, best = 0;
        for (const absl::string_view line : absl::StrSplit(product_.Get(Tag(i) + ".out"), '\n')) {
            const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
            if (words.size() == 2 && words[0] == "attempts" && absl::SimpleAtoi(words[1], &attempts)) {
                best = std::max(best, attempts);
            }
        }
        return best;
    }
    // All of them go on attacking from now on.
    void ExpectProgress(const char* when) {
        std::vector<int> before(kSandboxes);
        for (int i = 0; i < kSandboxes; i++) before[i] = Attempts(i);
        for (int i = 0; i < kSandboxes; i++) {
            EXPECT_TRUE(Until([&] { return Attempts(i) > before[i]; }, 60))
                << when << ": sandbox " << i << " stands still at " << before[i] << "\n"
                << product_.Get(Tag(i) + ".err");
        }
    }
    Product product_;
};

// "fork1 exec2 lifecycle0 ...": what a failed expectation needs to be understood.
std::string Numbers(const Ran& ran) {
    std::string text;
    for (const Json& event : ran.events) {
        absl::StrAppend(&text, At(event, "kind"), At(event, "lifecycle.op"), At(event, "kernel_seq"), " ");
    }
    return text;
}

// Numbers that are neither in an event nor in one that says that they are lost.
std::string Gaps(const Ran& ran) {
    std::set<int64_t> seen;
    int64_t value = 0, last = 0;
    for (const Json& event : ran.events) {
        if (absl::SimpleAtoi(At(event, "kernel_seq"), &value) && value > 0) seen.insert(value);
    }
    std::string gaps;
    for (const int64_t number : seen) {
        if (number != last + 1) absl::StrAppend(&gaps, last + 1, "..", number - 1, " ");
        last = number;
    }
    return gaps;
}

TEST_F(Agent, KilledUnderTwentyAttackersLetsNothingThrough) {
    std::vector<pid_t> clients;
    for (int i = 0; i < kSandboxes; i++) clients.push_back(StartAttacker(i));
    ExpectProgress("before");
    ASSERT_EQ(product_.Sandboxes().size(), size_t{kSandboxes});
    const pid_t before = product_.AgentPid();
    ASSERT_NE(before, 0);

    // Clients that miss their agent start another, one at a time, under this lock: held, none comes.
    Fd lock(open(product_.Path("run/start.lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
    product_.StopAgent(SIGKILL);
    ExpectProgress("without an agent");
    EXPECT_EQ(product_.AgentPid(), 0);
    EXPECT_EQ(product_.Sandboxes().size(), size_t{kSandboxes});
    lock.Reset();

    const pid_t after = product_.AwaitAgent(before);
    ASSERT_NE(after, 0) << product_.Get("run/agent.log");
    EXPECT_TRUE(Until([&] { return absl::StrContains(product_.Get("run/agent.log"), "pins adopted"); }));
    EXPECT_THAT(product_.Get("run/agent.log"), HasSubstr("programs of the earlier agent kept"));
    ExpectProgress("under the next agent");
    const std::string ps = product_.Stockade({"ps", "-o", "json"}).out;
    EXPECT_THAT(ps, HasSubstr("Adopted"));

    product_.Put("in/stop", "");
    for (int i = 0; i < kSandboxes; i++) {
        const Ran ran = product_.Finish(clients[i], Tag(i));
        EXPECT_EQ(ran.status, 0) << i << ": " << ran.err;
        EXPECT_THAT(ran.out, Not(HasSubstr("EFFECT"))) << i;
        EXPECT_FALSE(ran.Refusals().empty()) << i << ": " << Numbers(ran);
        // A repeat takes a number, and has no event of its own.
        if (!IsPython(i)) {
            EXPECT_EQ(Gaps(ran), "") << i << ": " << Numbers(ran);
        }
        for (const Json& event : ran.events) {
            if (At(event, "kind") == "lost")
                ADD_FAILURE() << i << ": records were lost: " << At(event, "lost.count");
            EXPECT_EQ(At(event, "sandbox.session"), Tag(i)) << At(event, "kind");
        }
    }
    EXPECT_TRUE(Until([&] { return product_.LeftOver().empty(); })) << product_.LeftOver();
}

// That the attacks are attacks: where nothing stops them, each has its effect.
TEST_F(Agent, ControlTheAttacksWorkUnderObserve) {
    const std::vector<std::pair<int, std::vector<const char*>>> cases = {
        {1, {"EFFECT write", "EFFECT exec"}}, {0, {"EFFECT write", "EFFECT bind", "EFFECT connect"}}};
    for (const auto& [i, effects] : cases) {
        std::filesystem::remove(product_.Path("in/stop"));
        const pid_t pid = StartAttacker(i, "observe");
        EXPECT_TRUE(Until([&] { return Attempts(i) > 0; }, 60)) << product_.Get(Tag(i) + ".err");
        product_.Put("in/stop", "");
        const Ran ran = product_.Finish(pid, Tag(i));
        EXPECT_EQ(ran.status, 0) << ran.Text();
        for (const char* effect : effects) EXPECT_THAT(ran.out, HasSubstr(effect));
    }
}

TEST_F(Agent, ASecondOneIsRefusedAndTheFirstWorksOn) {
    ASSERT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
    const pid_t first = product_.AgentPid();
    const pid_t second = Start({.argv = {BinPath("stockaded"), "--idle-exit", "60s", "--config", product_.config()},
                                .out = product_.Path("second.out"),
                                .err = product_.Path("second.err")});
    EXPECT_EQ(Wait(second), 125);
    EXPECT_THAT(product_.Get("second.err"), HasSubstr("another agent runs"));
    EXPECT_EQ(product_.AgentPid(), first);
    EXPECT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
}

TEST_F(Agent, PinsOfAnotherAbiAreRefusedWithTheCure) {
    std::filesystem::create_directories(product_.pin_dir() + "/abi99/maps");
    const Ran refused = product_.Run("networkless", {"/bin/true"});
    EXPECT_EQ(refused.status, 125) << refused.Text();
    EXPECT_THAT(refused.err, HasSubstr("abi99"));
    EXPECT_THAT(refused.err, HasSubstr("stockade doctor --clean"));
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    EXPECT_TRUE(Until([&] { return product_.AgentPid() == 0; }));
    const Ran cured = product_.Stockade({"doctor", "--clean"});
    EXPECT_EQ(cured.status, 0) << cured.Text();
    EXPECT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
}

// What an agent that died while it pinned has left is removed by the next.
TEST_F(Agent, HalfMadePinsAreRemoved) {
    std::filesystem::create_directories(product_.pin_dir() + "/new_12345/maps");
    EXPECT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
    EXPECT_FALSE(std::filesystem::exists(product_.pin_dir() + "/new_12345"));
}

TEST_F(Agent, AClientThatDoesNotReadIsToldWhatItMissed) {
    const std::string policy = product_.Put(
        "noisy.yaml",
        "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: noisy}\nspec:\n  mode: observe\n"
        "  exec: {allow: [/usr/**]}\n  files: {read: [/**], write: [/**]}\n  network: {allow: []}\n"
        "  record: {files: all}\n");
    ASSERT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
    StatusOr<api::Channel> slow = api::Channel::Connect(product_.Path("run/agent.sock"));
    ASSERT_TRUE(slow.ok()) << slow.status();
    api::Message question;
    question.mutable_events()->set_follow(true);
    ASSERT_TRUE(slow->Send(question).ok());
    const Ran ran =
        product_.Stockade({"run", "-p", policy, "--", "python3", "-c",
                           "import os, time\nend = time.time() + 4\n"
                           "while time.time() < end: os.close(os.open('/etc/hostname', os.O_RDONLY))\n"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    uint64_t lost = 0;
    v1::Event event;
    while (lost == 0) {
        StatusOr<api::Packet> packet = slow->Receive(5000);
        ASSERT_TRUE(packet.ok()) << packet.status();
        ASSERT_TRUE(event.ParseFromString(packet->message.event_record().event()));
        if (event.has_lost() && event.lost().stage() == "client") lost = event.lost().count();
    }
    EXPECT_EQ(event.kind(), "lost");
    EXPECT_FALSE(event.id().empty());
}

// Only the agent knows that the policy killed the command; without its word nothing leaves /out.
TEST_F(Agent, WithoutItsWordNothingIsCopied) {
    product_.Configure("agent_wait_seconds: 5\n");
    std::filesystem::create_directory(product_.Path("unjudged"));
    const std::string policy =
        product_.Put("process.yaml",
                     "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: process}\nspec:\n"
                     "  exec: {allow: [\"/usr/bin/python3*\"], violation: kill-process}\n"
                     "  files: {read: [/usr/**, /in/**], write: [/out/**]}\n  network: {allow: []}\n");
    const pid_t client =
        product_.StartRun(policy,
                          {"python3", "-c",
                           "import os, time\n"
                           "open('/out/x', 'w').write('x')\n"
                           "print('up', flush=True)\n"
                           "while not os.path.exists('/in/now'): time.sleep(0.01)\n"
                           "os.execv('/bin/bash', ['bash', '-c', 'echo ran'])\n"},
                          "unjudged_run", {"--out", product_.Path("unjudged"), "--in", product_.Path("in")});
    ASSERT_TRUE(Until([&] { return product_.Get("unjudged_run.out") == "up\n"; }))
        << product_.Get("unjudged_run.err");
    const pid_t shim = product_.ShimPid();
    ASSERT_NE(shim, 0);
    Fd lock(open(product_.Path("run/start.lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
    product_.StopAgent(SIGKILL);
    product_.Put("in/now", "");
    EXPECT_TRUE(Until([&] { return kill(shim, 0) != 0; })) << "the keeper waits for ever";
    EXPECT_FALSE(std::filesystem::exists(product_.Path("unjudged/x")));
    lock.Reset();
    const Ran ran = product_.Finish(client, "unjudged_run");
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(ran.out, "up\n");
    EXPECT_TRUE(Until([&] { return product_.LeftOver().empty(); })) << product_.LeftOver();
}

TEST_F(Agent, ADeadOneWithoutASuccessorEndsItsSandboxes) {
    product_.Configure("agent_wait_seconds: 1\n");
    const pid_t client = product_.StartRun("networkless", {"/bin/sh", "-c", "echo up; sleep 1000"}, "alone");
    ASSERT_TRUE(Until([&] { return product_.Get("alone.out") == "up\n"; })) << product_.Get("alone.err");
    // Nobody may start another; see above.
    Fd lock(open(product_.Path("run/start.lock").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(lock.get(), LOCK_EX), 0);
    product_.StopAgent(SIGKILL);
    EXPECT_TRUE(Until([&] { return product_.Processes().empty(); })) << "it outlives its agent";
    lock.Reset();
    EXPECT_EQ(product_.Finish(client, "alone").status, 137);
    EXPECT_EQ(product_.Run("networkless", {"/bin/true"}).status, 0);
    EXPECT_TRUE(Until([&] { return product_.LeftOver().empty(); })) << product_.LeftOver();
}

}  // namespace
}  // namespace stockade::tests
