// Wrong input and a host that lacks something: one line that says what to do, 125, and nothing half done.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/tools/product.h"
#include "userspace/base/fd.h"

namespace stockade::tests {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Input : public ::testing::Test {
  protected:
    static void SetUpTestSuite() { product_ = new Product; }
    static void TearDownTestSuite() { delete product_; }
    static std::string Policy(const std::string& name, const std::string& spec) {
        return product_->Put(
            name + ".yaml",
            absl::StrCat("apiVersion: stockade.dev/v1\nkind: SandboxPolicy\nmetadata: {name: ", name,
                         "}\nspec:\n", spec));
    }
    static void ExpectNothingLeft() {
        EXPECT_TRUE(Until([] { return product_->LeftOver().empty(); })) << product_->LeftOver();
    }
    static inline Product* product_;
};

void ExpectRefused(const Ran& ran, const std::vector<std::string>& words, bool one_line = true) {
    EXPECT_EQ(ran.status, 125) << ran.Text();
    EXPECT_EQ(ran.out, "");
    for (const std::string& word : words) EXPECT_THAT(ran.err, HasSubstr(word));
    if (one_line) {
        EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    }
}

const std::vector<std::string>& Proof() {
    static const auto* words = new std::vector<std::string>{"/bin/sh", "-c", "echo ran"};
    return *words;
}

TEST_F(Input, BrokenPoliciesAreSaidWithTheirPlace) {
    ExpectRefused(product_->Run(product_->Put("broken.yaml", "apiVersion: [\n"), Proof()), {"broken.yaml:"},
                  false);
    ExpectRefused(product_->Run(Policy("unknown", "  exek: {allow: [/bin/sh]}\n"), Proof()),
                  {"unknown.yaml:5:3", "exek", "exec"}, false);
    ExpectRefused(product_->Run(Policy("glob", "  exec: {allow: [\"bin/[sh\"]}\n"), Proof()),
                  {"glob.yaml:5:"}, false);
    // All errors at once.
    ExpectRefused(
        product_->Run(Policy("many", "  mode: enforced\n  exec: {allow: [sh]}\n  network: {alow: []}\n"),
                      Proof()),
        {"many.yaml:5:", "many.yaml:6:", "many.yaml:7:"}, false);
    ExpectRefused(product_->Run(product_->Put("empty.yaml", ""), Proof()), {"empty.yaml", "empty"});
    ExpectRefused(product_->Run(product_->Put("binary.yaml", std::string("\0\1\2\xff", 4)), Proof()),
                  {"binary.yaml"}, false);
    ExpectRefused(product_->Run(product_->Put("huge.yaml", std::string(1 << 20, '#')), Proof()),
                  {"huge.yaml"});
    ExpectRefused(product_->Run(Policy("extends", "  extends: [no-such-policy]\n"), Proof()),
                  {"no-such-policy"}, false);
    ExpectNothingLeft();
}

TEST_F(Input, MissingThingsAreNamed) {
    ExpectRefused(product_->Run("no-such-policy", Proof()), {"no-such-policy"});
    ExpectRefused(product_->Run("/no/such.yaml", Proof()), {"/no/such.yaml"});
    ExpectRefused(product_->Run("networkless", Proof(), {"--in", "/no/such/dir"}), {"--in", "/no/such/dir"});
    ExpectRefused(product_->Run("networkless", Proof(), {"--out", "/no/such/dir"}),
                  {"--out", "/no/such/dir"});
    ExpectRefused(product_->Run("networkless", Proof(), {"--rootfs", "/no/such/dir"}), {"/no/such/dir"});
    ExpectRefused(product_->Run("networkless", Proof(), {"--seccomp", "/no/such.json"}), {"/no/such.json"});
    ExpectRefused(product_->Run("networkless", Proof(), {"--runtime", "vm"}), {"vm"});
    ExpectNothingLeft();
}

// Where "a home directory" is asked for, or the socket of a container runtime.
TEST_F(Input, PlacesThatLeadOutAreNotShown) {
    for (const char* dir : {"/", "/root", "/home"}) {
        if (!std::filesystem::exists(dir)) continue;
        ExpectRefused(product_->Run("networkless", Proof(), {"--in", dir}), {dir});
        ExpectRefused(product_->Run("networkless", Proof(), {"--bind", dir}), {dir});
    }
    ExpectNothingLeft();
}

TEST_F(Input, TheExitStatusSaysWhatHappened) {
    const std::vector<std::pair<int, std::vector<std::string>>> cases = {
        {0, {"/bin/true"}},
        {7, {"/bin/sh", "-c", "exit 7"}},
        {125, {"/bin/sh", "-c", "exit 125"}},
        {126, {"/etc"}},
        {126, {"/etc/passwd"}},
        {127, {"/no/such/program"}},
        {127, {"no-such-program"}},
        {128 + SIGTERM, {"/bin/sh", "-c", "kill -TERM $$"}},
        {128 + SIGABRT, {"/bin/sh", "-c", "kill -ABRT $$"}},
        {128 + SIGKILL, {"/bin/sh", "-c", "kill -KILL $$"}},
    };
    for (const auto& [status, command] : cases) {
        const Ran ran = product_->Run("networkless", command);
        EXPECT_EQ(ran.status, status) << command.back() << "\n" << ran.Text();
        EXPECT_EQ(At(ran.result, "exit_code"), absl::StrCat(status)) << command.back();
        if (status == 126 || status == 127) {
            EXPECT_THAT(ran.err, HasSubstr(command.back()));
        }
    }
    ExpectNothingLeft();
}

// Runs `stockade run` with something done to the child first.
Ran RunChanged(Product& product, const std::function<void()>& in_child) {
    return product.Finish(
        product.StartStockade({"run", "--policy", "networkless", "--", "/bin/sh", "-c", "echo ran"},
                              "changed", in_child),
        "changed");
}

TEST_F(Input, WithoutRootItSaysUseSudo) {
    // Binaries of the build may lie where only root can look.
    const std::string copy = product_->Path("stockade");
    std::filesystem::copy_file(BinPath("stockade"), copy, std::filesystem::copy_options::overwrite_existing);
    chmod(copy.c_str(), 0755);
    const pid_t pid = Start({.argv = {copy, "--config", product_->config(), "run", "--", "/bin/true"},
                             .out = product_->Path("nobody.out"),
                             .err = product_->Path("nobody.err"),
                             .in_child = [] {
                                 if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
                                     _exit(98);
                             }});
    ExpectRefused(product_->Finish(pid, "nobody"), {"sudo"});
}

TEST(Host, WithoutCgroup2NothingIsStarted) {
    Product product;
    const Ran ran = RunChanged(product, [] {
        if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
            _exit(98);
        if (umount2(Cgroup2().c_str(), MNT_DETACH) != 0) _exit(97);
    });
    ExpectRefused(ran, {"cgroup"});
    EXPECT_TRUE(Until([&] { return product.AgentPid() == 0; }));  // it says why before it is gone
    EXPECT_FALSE(std::filesystem::exists(product.pin_dir()));
}

TEST(Host, WithoutABpfFileSystemNothingIsStarted) {
    Product product("pin_dir: /var/tmp/not-a-bpffs\n");
    const Ran ran = RunChanged(product, [] {});
    ExpectRefused(ran, {"bpf"});
    EXPECT_TRUE(Until([&] { return product.AgentPid() == 0; }));
    EXPECT_EQ(product.LeftOver(), "");
}

TEST(Host, ABrokenConfigurationIsSaidWithItsPlace) {
    Product product("bakend: lsm\n");
    ExpectRefused(RunChanged(product, [] {}), {"config.yaml:", "bakend"});
    EXPECT_TRUE(Until([&] { return product.AgentPid() == 0; }));
}

TEST_F(Input, RequireLsmFailsWhereItIsNot) {
    const bool lsm = At(ParseJson(product_->Stockade({"doctor", "-o", "json"}).out), "backend") == "lsm";
    const Ran ran = product_->Run("networkless", Proof(), {"--require", "lsm"});
    if (lsm) {
        EXPECT_EQ(ran.status, 0) << ran.Text();
    } else {
        ExpectRefused(ran, {"--require lsm", "stockade doctor"});
    }
    ExpectNothingLeft();
}

// --- where events go ------------------------------------------------------------------------------------------

TEST_F(Input, AFullDiskUnderEventsIsSaidAndTheRunGoesOn) {
    const Ran ran = product_->Stockade({"run", "--policy", "networkless", "--events", "/dev/full", "--",
                                        "/bin/sh", "-c", "echo ran; exit 3"});
    EXPECT_EQ(ran.status, 3) << ran.Text();
    EXPECT_EQ(ran.out, "ran\n");
    EXPECT_THAT(ran.err, HasSubstr("--events"));
    EXPECT_THAT(ran.err, HasSubstr("No space left"));
    ExpectNothingLeft();
}

TEST_F(Input, ADiskThatFillsLeavesWholeLines) {
    const std::string dir = product_->Path("small");
    std::filesystem::create_directory(dir);
    ASSERT_EQ(mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=16k"), 0);
    const Ran ran =
        product_->Stockade({"run", "--policy", "networkless", "--events", dir + "/e", "--", "/bin/sh", "-c",
                            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do /bin/true; done; exit 3"});
    const std::string text = ReadText(dir + "/e");
    EXPECT_EQ(umount(dir.c_str()), 0);
    EXPECT_EQ(ran.status, 3) << ran.Text();
    EXPECT_THAT(ran.err, HasSubstr("No space left"));
    ASSERT_THAT(text, Not(IsEmpty()));
    // The last line may be cut by the disk; those before it are whole.
    const std::string whole = text.substr(0, text.rfind('\n') + 1);
    size_t at = 0;
    while (at < whole.size()) {
        const size_t end = whole.find('\n', at);
        EXPECT_NE(ParseJson(whole.substr(at, end - at)).kind_case(), Json::KIND_NOT_SET)
            << whole.substr(at, end - at);
        at = end + 1;
    }
}

TEST_F(Input, AClosedEventsPipeDoesNotEndTheRun) {
    const std::string out = product_->Path("out");
    std::filesystem::create_directory(out);
    const pid_t pid =
        product_->StartStockade({"run", "--policy", "networkless", "--out", out, "--events", "-", "--",
                                 "/bin/sh", "-c", "echo ran >/out/ran; exit 3"},
                                "pipe", [] {
                                    int fds[2];
                                    if (pipe(fds) != 0 || close(fds[0]) != 0 || dup2(fds[1], 1) != 1)
                                        _exit(98);
                                    close(fds[1]);
                                });
    EXPECT_EQ(Wait(pid), 3) << product_->Get("pipe.err");
    EXPECT_EQ(product_->Get("out/ran"), "ran\n");
    EXPECT_THAT(product_->Get("pipe.err"), HasSubstr("Broken pipe"));
    ExpectNothingLeft();
}

TEST_F(Input, AResultThatCannotBeWrittenIsSaid) {
    const Ran ran =
        product_->Stockade({"run", "--policy", "networkless", "--result", "/dev/full", "--", "/bin/true"});
    EXPECT_THAT(ran.err, HasSubstr("/dev/full"));
    ExpectRefused(product_->Stockade(
                      {"run", "--policy", "networkless", "--result", "/no/such/dir/r", "--", "/bin/true"}),
                  {"--result", "/no/such/dir/r"});
}

// The command's own lines must not pass for events.
TEST_F(Input, EventsOnStandardOutputAreAloneThere) {
    const std::vector<std::string> words = {"run",      "--policy", "networkless",
                                            "--events", "-",        "--",
                                            "/bin/sh",  "-c",       "echo '{\"kind\":\"for''ged\"}'"};
    const Ran ran = product_->Stockade(words);
    EXPECT_EQ(ran.status, 0) << ran.Text();
    EXPECT_THAT(ran.out, Not(HasSubstr("forged")));
    EXPECT_THAT(ran.out, HasSubstr("\"kind\":\"summary\""));
    EXPECT_THAT(ran.err, HasSubstr("forged"));
    // Where both are one file nobody could tell them apart.
    const Ran one = product_->Finish(product_->StartStockade(words, "one", [] { dup2(1, 2); }), "one");
    EXPECT_EQ(one.status, 125);
    EXPECT_THAT(one.out, HasSubstr("--events -"));
    EXPECT_THAT(one.out, Not(HasSubstr("forged")));
}

// The sandbox shares the caller's standard error: it makes it non-blocking, fills it, and is refused something.
TEST_F(Input, ANonBlockingStandardErrorHidesNothingAndStaysAsItWas) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const std::string config = product_->config();
    const std::string program = BinPath("stockade");
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        execl(program.c_str(), program.c_str(), "--config", config.c_str(), "run", "--policy", "networkless",
              "--", "python3", "-c",
              "import os, socket\n"
              "os.set_blocking(2, False)\n"
              "try: socket.socket().connect(('127.0.0.1', 4001))\n"
              "except PermissionError: pass\n"
              "try:\n"
              "  while True: os.write(2, b'x' * 4096)\n"
              "except BlockingIOError: pass\n"
              "os._exit(7)\n",
              nullptr);
        _exit(99);
    }
    // Full, so that whoever writes next must wait for us.
    pollfd room = {.fd = ends[1], .events = POLLOUT, .revents = 0};
    EXPECT_TRUE(Until([&] { return poll(&room, 1, 0) == 0; }));
    EXPECT_TRUE(Until([] { return product_->LeftOver().empty(); })) << product_->LeftOver();
    std::string text;
    const Fd reader(ends[0]);
    std::thread thread([&] { text = ReadAll(reader.get(), 1 << 22).value_or(""); });
    EXPECT_EQ(Wait(pid), 7);
    EXPECT_EQ(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
    close(ends[1]);
    thread.join();
    EXPECT_THAT(text, HasSubstr("refused: the policy does not allow a connection to 127.0.0.1:4001"));
}

}  // namespace
}  // namespace stockade::tests
