// Ends that nobody wanted: killed clients and keepers, fork bombs, tools that do not listen.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/product.h"
#include "userspace/base/fd.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class End : public ::testing::Test {
  protected:
    static void SetUpTestSuite() { product_ = new Product; }
    static void TearDownTestSuite() { delete product_; }
    void TearDown() override {
        EXPECT_TRUE(Until([] { return product_->LeftOver().empty(); })) << product_->LeftOver();
        EXPECT_THAT(product_->Processes(), IsEmpty());
    }
    // A tool of several processes, some of them in sessions of their own; ready when it says "up".
    static pid_t StartTool(const std::string& tag, const std::string& policy = "networkless") {
        const pid_t pid = product_->StartRun(policy,
                                             {"python3", "-c",
                                              "import os, signal, time\n"
                                              "for n in range(1, 65):\n"
                                              "  try: signal.signal(n, signal.SIG_IGN)\n"
                                              "  except (OSError, ValueError): pass\n"
                                              "for i in range(4):\n"
                                              "  if os.fork() == 0:\n"
                                              "    os.setsid()\n"
                                              "    while True: time.sleep(1000)\n"
                                              "print('up', flush=True)\n"
                                              "while True: time.sleep(1000)\n"},
                                             tag);
        EXPECT_TRUE(Until([&] { return product_->Get(tag + ".out") == "up\n"; }))
            << product_->Get(tag + ".err");
        EXPECT_GE(product_->Processes().size(), 5u);
        return pid;
    }
    static inline Product* product_;
};

TEST_F(End, AKilledClientTakesItsSandboxWithIt) {
    const pid_t client = StartTool("client");
    kill(client, SIGKILL);
    EXPECT_EQ(Wait(client), 137);
    EXPECT_TRUE(Until([] { return product_->Processes().empty(); }));
}

TEST_F(End, AKilledKeeperTakesItsSandboxWithIt) {
    const pid_t client = StartTool("keeper");
    const pid_t shim = product_->ShimPid();
    ASSERT_NE(shim, 0);
    kill(shim, SIGKILL);
    EXPECT_TRUE(Until([] { return product_->Processes().empty(); }));
    const Ran ran = product_->Finish(client, "keeper");
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_THAT(ran.err, Not(IsEmpty()));
    EXPECT_EQ(product_->Run("networkless", {"/bin/true"}).status, 0);
}

TEST_F(End, AgentClientAndKeeperKilledAtOnce) {
    const pid_t client = StartTool("all");
    const pid_t shim = product_->ShimPid();
    ASSERT_NE(shim, 0);
    const pid_t agent = product_->AgentPid();
    ASSERT_NE(agent, 0);
    for (const pid_t pid : {agent, client, shim}) kill(pid, SIGKILL);
    EXPECT_EQ(Wait(client), 137);
    // Nobody is left who could do it but the kernel, and the next start.
    EXPECT_TRUE(Until([] { return product_->Processes().empty(); }));
    EXPECT_EQ(product_->Run("networkless", {"/bin/true"}).status, 0);
}

TEST_F(End, ATimeoutEndsWhatIgnoresEverySignal) {
    const Ran ran =
        product_->Run("networkless", {"/bin/sh", "-c", "trap '' TERM INT HUP QUIT; while :; do :; done"},
                      {"--timeout", "500ms"});
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(At(ran.result, "end"), "timeout");
    EXPECT_THAT(ran.err, HasSubstr("timeout"));
}

TEST_F(End, StockadeKillEndsWhatIgnoresEverySignal) {
    const pid_t client = StartTool("ignores");
    ASSERT_EQ(product_->Sandboxes().size(), 1u);
    const Ran killed = product_->Stockade({"kill", product_->Sandboxes()[0], "--reason", "enough of it"});
    EXPECT_EQ(killed.status, 0) << killed.Text();
    EXPECT_TRUE(product_->Processes().empty()) << "kill answers when it is empty";
    const Ran ran = product_->Finish(client, "ignores");
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_THAT(ran.err, HasSubstr("enough of it"));
}

// What the event of a kill says; each step has its time, and none is before the one that led to it.
void ExpectKilledInOrder(const Ran& ran) {
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(At(ran.result, "end"), "policy") << ran.Text();
    int64_t last = 0;
    for (const char* step : {"condemned", "evidence", "kill_asked", "empty", "removed"}) {
        int64_t at = 0;
        EXPECT_TRUE(absl::SimpleAtoi(At(ran.result, absl::StrCat("times.", step, "_boot_ns")), &at)) << step;
        EXPECT_GE(at, last) << step;
        last = at;
    }
    EXPECT_EQ(At(ran.result, "removal.clean"), "true");
    bool said = false;
    for (const Json& event : ran.events) said |= At(event, "lifecycle.op") == "killed";
    EXPECT_TRUE(said);
}

std::string KillPolicy(Product& product) {
    return product.Put("kill.yaml",
                       "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: kill}\nspec:\n"
                       "  violation: kill-sandbox\n  exec: {allow: [\"/usr/bin/python3*\"]}\n"
                       "  files: {read: [/usr/**], write: [/out/**]}\n  network: {allow: []}\n");
}

// 400 processes that fork without pause, while one of them starts a shell.
TEST_F(End, AForkBombOfFourHundredIsEnded) {
    const Ran ran =
        product_->Run(KillPolicy(*product_), {"python3", "-c",
                                              "import os\n"
                                              "r, w = os.pipe(); ready, say = os.pipe()\n"
                                              "for i in range(400):\n"
                                              "  if os.fork() == 0:\n"
                                              "    os.close(w); os.write(say, b'x'); os.read(r, 1)\n"
                                              "    while True:\n"
                                              "      pid = os.fork()\n"
                                              "      if pid == 0: os._exit(0)\n"
                                              "      os.write(say, b'y'); os.waitpid(pid, 0)\n"
                                              "have = 0\n"
                                              "while have < 400: have += len(os.read(ready, 400))\n"
                                              "print('400 up', flush=True)\n"
                                              "os.close(w)\n"
                                              "while b'y' not in os.read(ready, 400): pass\n"
                                              "os.execv('/bin/bash', ['bash', '-c', 'echo ran'])\n"});
    EXPECT_EQ(ran.out, "400 up\n");
    ExpectKilledInOrder(ran);
}

// All of them at one moment: when the pipe that they read from ends.
TEST_F(End, AHundredViolatorsAtOnce) {
    const Ran ran =
        product_->Run(KillPolicy(*product_), {"python3", "-c",
                                              "import os\n"
                                              "r, w = os.pipe(); ready, say = os.pipe()\n"
                                              "for i in range(100):\n"
                                              "  if os.fork() == 0:\n"
                                              "    os.close(w); os.write(say, b'x'); os.read(r, 1)\n"
                                              "    os.execv('/bin/bash', ['bash', '-c', 'echo ran'])\n"
                                              "have = 0\n"
                                              "while have < 100: have += len(os.read(ready, 100))\n"
                                              "os.close(w)\n"
                                              "os.wait()\n"
                                              "while True: pass\n"});
    EXPECT_EQ(ran.out, "");
    ExpectKilledInOrder(ran);
}

// Nobody answers a sandbox in which a child is in the middle of vfork: its parent cannot be interrupted.
TEST_F(End, AParentInVforkIsEnded) {
    const Ran ran =
        product_->Run("networkless",
                      {"python3", "-c",
                       "import ctypes; libc = ctypes.CDLL(None)\nif libc.vfork() == 0: libc.sleep(1000)\n"},
                      {"--timeout", "1s"});
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(At(ran.result, "end"), "timeout");
}

// What the sandbox wrote before it was killed is not handed out as if it were a result.
TEST_F(End, OutOfAKilledSandboxIsNotCopied) {
    std::filesystem::create_directory(product_->Path("out"));
    const Ran ran =
        product_->Run(KillPolicy(*product_),
                      {"python3", "-c", "import os\nopen('/out/x', 'w').write('x')\nos.system('id')\n"},
                      {"--out", product_->Path("out")});
    ExpectKilledInOrder(ran);
    EXPECT_FALSE(std::filesystem::exists(product_->Path("out/x")));
    EXPECT_THAT(ran.err, HasSubstr("/out"));
}

// Forty refusals that kill nobody fill the list of the result before the one that kills.
std::string FortyThen(const std::string& last) {
    return absl::StrCat(
        "import os, socket\n"
        "open('/out/x', 'w').write('x')\n"
        "for port in range(4001, 4041):\n"
        "  try: socket.socket().connect(('127.0.0.1', port))\n"
        "  except PermissionError: pass\n",
        last);
}

TEST_F(End, AKillBehindManyRefusalsHasItsReasonAndKeepsItsFiles) {
    std::filesystem::create_directory(product_->Path("many"));
    const std::string policy =
        product_->Put("process.yaml",
                      "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: process}\nspec:\n"
                      "  exec: {allow: [\"/usr/bin/python3*\"], violation: kill-process}\n"
                      "  files: {read: [/usr/**], write: [/out/**]}\n  network: {allow: []}\n");
    const std::string exec = "os.execv('/bin/bash', ['bash', '-c', 'echo ran'])\n";
    const Ran ran =
        product_->Run(policy, {"python3", "-c", FortyThen(exec)}, {"--out", product_->Path("many")});
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(At(ran.result, "end"), "policy") << ran.Text();
    EXPECT_THAT(At(ran.result, "reason"), HasSubstr("/bash"));
    EXPECT_EQ(At(ran.result, "code"), "exec.not_allowed");
    EXPECT_FALSE(std::filesystem::exists(product_->Path("many/x")));
    EXPECT_THAT(ran.err, HasSubstr("nothing was copied from /out"));
    // Control: the same, without the last step.
    const Ran control =
        product_->Run(policy, {"python3", "-c", FortyThen("")}, {"--out", product_->Path("many")});
    EXPECT_EQ(control.status, 0) << control.Text();
    EXPECT_EQ(product_->Get("many/x"), "x");
}

// Where deny can only be a kill, it is one: of the command itself.
TEST_F(End, ADenyThatHadToKillKeepsItsFiles) {
    std::filesystem::create_directory(product_->Path("deny"));
    const std::string policy =
        product_->Put("deny.yaml",
                      "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: deny}\nspec:\n"
                      "  exec: {allow: [\"/usr/bin/python3*\"]}\n"
                      "  files: {read: [/usr/**], write: [/out/**]}\n  network: {allow: []}\n");
    const Ran ran = product_->Run(
        policy, {"python3", "-c", FortyThen("os.execv('/bin/bash', ['bash', '-c', 'echo ran'])\n")},
        {"--out", product_->Path("deny")});
    EXPECT_EQ(ran.out, "");
    if (ran.status != 137) {
        EXPECT_EQ(At(ran.result, "end"), "exited") << ran.Text();  // refused, and Python says so
        return;
    }
    EXPECT_EQ(At(ran.result, "end"), "policy") << ran.Text();
    EXPECT_THAT(At(ran.result, "reason"), HasSubstr("/bash"));
    EXPECT_FALSE(std::filesystem::exists(product_->Path("deny/x")));
}

// Beyond its rate the kernel counts refusals and does not record them: that is no loss.
TEST_F(End, AFloodOfRefusalsLosesNothingAndIsCounted) {
    const Ran ran = product_->Run("networkless", {"python3", "-c",
                                                  "import os, socket, time\n"
                                                  "s = socket.socket()\n"
                                                  "for i in range(20000):\n"
                                                  "  try: s.connect(('127.0.0.1', 4001))\n"
                                                  "  except PermissionError: pass\n"
                                                  "try: open('/dev/shm/x', 'w')\n"
                                                  "except PermissionError: pass\n"
                                                  "time.sleep(3)\n"});
    EXPECT_EQ(ran.status, 0) << ran.Text();
    for (const Json& event : ran.events) EXPECT_NE(At(event, "kind"), "lost");
    EXPECT_THAT(ran.err, Not(HasSubstr("lost")));
    EXPECT_THAT(ran.err, HasSubstr("more refusals of the same kind that were not recorded singly"));
    int64_t unrecorded = 0;
    EXPECT_TRUE(absl::SimpleAtoi(At(ran.result, "summary.refusals_unrecorded"), &unrecorded));
    EXPECT_GT(unrecorded, 15000);
    EXPECT_LT(unrecorded, 20100);
}

// A file system on a loop device: while it is frozen, whoever writes to it sleeps in state D.
class Freezer {
  public:
    explicit Freezer(const std::string& dir) : dir_(dir) {
        std::filesystem::create_directories(dir_ + "/mnt");
        const std::string image = dir_ + "/image";
        const std::string command = absl::StrCat("truncate -s 16M ", image, " && mkfs.ext4 -q -F ", image,
                                                 " 2>/dev/null && mount -o loop ", image, " ", mnt());
        ready_ = std::system(command.c_str()) == 0 && chmod(mnt().c_str(), 0777) == 0;
    }
    ~Freezer() { Close(); }
    // Thaws, and is no mount of ours any more.
    void Close() {
        if (root_.ok()) (void)ioctl(root_.get(), FITHAW, 0);
        root_.Reset();
        if (std::exchange(ready_, false)) (void)umount2(mnt().c_str(), MNT_DETACH);
    }
    bool Freeze() {
        root_ = Fd(open(mnt().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        return ready_ && root_.ok() && ioctl(root_.get(), FIFREEZE, 0) == 0;
    }
    std::string mnt() const { return dir_ + "/mnt"; }

  private:
    std::string dir_;
    Fd root_;
    bool ready_ = false;
};

TEST_F(End, ATaskInStateDHasItsTrueEndAndKeepsItsSlot) {
    Freezer freezer(product_->Path("freezer"));
    if (!freezer.Freeze()) GTEST_SKIP() << "no file system on a loop device can be frozen here";
    const std::string policy =
        product_->Put("data.yaml",
                      "apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: data}\nspec:\n"
                      "  exec: {allow: [\"/usr/bin/python3*\"]}\n"
                      "  files: {read: [/usr/**], write: [/data/**]}\n  network: {allow: []}\n");
    const Ran ran = product_->Run(policy, {"python3", "-c", "open('/data/x', 'w')"},
                                  {"--bind", freezer.mnt() + ":/data:rw", "--timeout", "1s"});
    EXPECT_EQ(ran.status, 137) << ran.Text();
    EXPECT_EQ(At(ran.result, "end"), "timeout") << ran.Text();
    EXPECT_THAT(ran.err, HasSubstr("kill pending"));
    EXPECT_THAT(ran.err, Not(HasSubstr("not started")));
    EXPECT_THAT(product_->Stockade({"ps"}).out, HasSubstr("kill-pending"));
    EXPECT_EQ(product_->Sandboxes().size(), 1u);
    EXPECT_EQ(product_->Run("networkless", {"/bin/true"}).status, 0);
    // The agent ends while it waits; the next one waits on.
    const pid_t agent = product_->AgentPid();
    ASSERT_NE(agent, 0);  // kill(0) would be the test's own group
    kill(agent, SIGTERM);
    EXPECT_TRUE(Until([&] { return product_->AgentPid() != agent; }, 10));
    EXPECT_EQ(product_->Run("networkless", {"/bin/true"}).status, 0);
    EXPECT_EQ(product_->Sandboxes().size(), 1u);
    freezer.Close();
    EXPECT_TRUE(Until([] { return product_->LeftOver().empty(); })) << product_->LeftOver();
}

// A filter that kills leaves no record of the call.
TEST_F(End, AKillBySeccompIsARefusal) {
    const std::string profile = product_->Put(
        "kills.json",
        R"({"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["getpriority"],"action":"SCMP_ACT_KILL_PROCESS"}]})");
    const std::vector<std::string> call = {"python3", "-c", "import os; os.getpriority(os.PRIO_PROCESS, 0)"};
    const Ran ran = product_->Run("networkless", call, {"--seccomp", profile});
    EXPECT_EQ(ran.status, 128 + SIGSYS) << ran.Text();
    EXPECT_THAT(At(ran.result, "reason"), HasSubstr("a system call that seccomp refuses"));
    EXPECT_THAT(ran.err,
                HasSubstr("refused: a system call that seccomp refuses (refused.other_lock, by seccomp"));
    EXPECT_EQ(product_->Run("networkless", call).status, 0);
}

// The breaker holds the second kill of the minute back; the sandbox makes no call that would end it.
TEST(Breaker, ACondemnedSandboxIsKilledWhenItsTurnComes) {
    Product product("kills_per_minute: 1\n");
    const std::vector<std::string> spin = {"python3", "-c",
                                           "import os\n"
                                           "if os.fork() == 0: os.execv('/bin/bash', ['bash', '-c', ':'])\n"
                                           "while True: pass\n"};
    const Ran first = product.Run(KillPolicy(product), spin);
    EXPECT_EQ(At(first.result, "end"), "policy") << first.Text();
    EXPECT_THAT(first.err, Not(HasSubstr("breaker")));
    const Ran second = product.Run(KillPolicy(product), spin, {"--timeout", "90s"});
    ExpectKilledInOrder(second);
    EXPECT_THAT(second.err, HasSubstr("breaker"));
    bool said = false;
    for (const Json& event : second.events) said |= At(event, "lifecycle.op") == "degraded";
    EXPECT_TRUE(said);
}

}  // namespace
}  // namespace stockade::tests
