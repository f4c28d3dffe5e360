// A real guest does what a sandbox has to do. Emulated: slow, and asserted by no clock.
#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/microvm/testing_guest.h"
#include "userspace/base/clock.h"
#include "userspace/launch/out_copy.h"

namespace stockade::guest {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(GuestTest, AWholeRun) {
    GuestSpec spec = Spec(
        "cat /in/hello; cat >/out/copy; mkdir /out/d; echo deep >/out/d/f; ln -s /etc/passwd /out/link; "
        "mkfifo /out/fifo; : >/out/empty;"
        "chmod 6755 /out/copy; touch /in/x /x 2>/dev/null && echo WRITABLE; echo oops >&2; setsid sleep "
        "100000 & exit 7");
    spec.input_fd = images_->input.get();
    // More than pipes and queues between the two hold.
    stdin_ = std::string(3 << 20, '\0');
    for (size_t i = 0; i < stdin_.size(); ++i) stdin_[i] = static_cast<char>(i * 2654435761u >> 13);
    const GuestResult result = Go(spec);
    ASSERT_EQ(result.state, GuestState::kCompleted) << Told(result);
    EXPECT_EQ(result.exited->status(), 7u);
    EXPECT_EQ(result.exited->signal(), 0u);
    EXPECT_EQ(stdout_, "hello from the host\n");
    EXPECT_EQ(stderr_, "oops\n");
    EXPECT_EQ(result.stdout_bytes, stdout_.size());
    EXPECT_THAT(result.kernel, HasSubstr("6.12"));
    EXPECT_TRUE(WIFEXITED(result.qemu_status) && WEXITSTATUS(result.qemu_status) == 0) << result.qemu_status;

    EXPECT_EQ(*ReadFile(top_ + "/out/copy", 16 << 20), stdin_);
    EXPECT_EQ(*ReadFile(top_ + "/out/d/f", 100), "deep\n");
    EXPECT_EQ(std::filesystem::file_size(top_ + "/out/empty"), 0u);
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(top_ + "/out/link")));
    struct stat st;
    ASSERT_EQ(stat((top_ + "/out/copy").c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0755u);
    EXPECT_EQ(result.out.files, 3u);
    EXPECT_EQ(result.out.directories, 1u);
    EXPECT_THAT(result.out.skipped,
                testing::UnorderedElementsAre(std::pair("link", "symlink"), std::pair("fifo", "fifo")));

    // And on to whoever asked, by the copier that knows their rights.
    ASSERT_EQ(mkdir((top_ + "/target").c_str(), 0777), 0);
    ASSERT_EQ(chown((top_ + "/target").c_str(), 1234, 1234), 0);
    const Fd target = *Fd::Open(top_ + "/target", O_RDONLY | O_DIRECTORY);
    auto copied = launch::CopyOut(out_dir_.get(), target.get(), 1234, 1234);
    ASSERT_TRUE(copied.ok()) << copied.status();
    EXPECT_EQ(copied->files, 3u);
    ASSERT_EQ(stat((top_ + "/target/d/f").c_str(), &st), 0);
    EXPECT_EQ(st.st_uid, 1234u);
}

TEST_F(GuestTest, TheCommandHasNoRightsAndSeesNoPort) {
    const GuestResult result = Go(Spec(
        "id; grep -E '^(Cap|NoNewPrivs|Groups)' /proc/self/status; echo dev: $(ls /dev); echo top: $(ls /);"
        "ls /sys /dev/vport* 2>&1 | head -n 1; for n in 1 2 3 4 5; do mknod /tmp/p$n c 246 $n 2>/dev/null && "
        "echo MADE_A_NODE; done;"
        "ls -d /proc/1 2>/dev/null && echo SEES_INIT; kill -9 1 2>/dev/null && echo KILLED_INIT; cat "
        "/proc/self/mountinfo | grep -c . ;"
        "hostname; date +%s; head -c 16 /dev/urandom | wc -c"));
    ASSERT_EQ(result.state, GuestState::kCompleted) << Told(result);
    EXPECT_THAT(stdout_, HasSubstr("uid=1000 gid=1000"));
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
        EXPECT_THAT(stdout_, HasSubstr(absl::StrCat(set, ":\t0000000000000000\n")));
    }
    EXPECT_THAT(stdout_, HasSubstr("NoNewPrivs:\t1\n"));
    EXPECT_THAT(stdout_, HasSubstr("dev: fd full null random shm stderr stdin stdout tty urandom zero\n"));
    EXPECT_THAT(stdout_, HasSubstr("top: bin dev etc in out proc tmp\n"));
    EXPECT_THAT(stdout_, HasSubstr("No such file"));
    for (const char* wrong : {"MADE_A_NODE", "SEES_INIT", "KILLED_INIT", "vport"})
        EXPECT_THAT(stdout_, Not(HasSubstr(wrong)));
    EXPECT_THAT(stdout_, HasSubstr("\nguest\n"));
    // Its clock is the host's: within the hour that no machine is slow by, where it would be 1970 or the image's otherwise.
    const std::string line = stdout_.substr(stdout_.find("\nguest\n") + 7);
    EXPECT_NEAR(atof(line.c_str()), WallNow() / 1e9, 3600);
    EXPECT_THAT(stdout_, testing::EndsWith("16\n"));
}

TEST_F(GuestTest, ASignalIsToldAsOne) {
    const GuestResult result = Go(Spec("echo before; kill -TERM $$; echo after"));
    ASSERT_EQ(result.state, GuestState::kCompleted) << Told(result);
    EXPECT_EQ(result.exited->signal(), static_cast<uint32_t>(SIGTERM));
    EXPECT_EQ(stdout_, "before\n");
}

TEST_F(GuestTest, ACommandThatIsNotThere) {
    GuestSpec spec = Spec("");
    spec.argv = {"no-such-command"};
    const GuestResult result = Go(spec);
    ASSERT_EQ(result.state, GuestState::kNotStarted) << Told(result);
    EXPECT_EQ(result.error, static_cast<uint32_t>(ENOENT));
    EXPECT_THAT(result.reason, HasSubstr("execve"));
    EXPECT_FALSE(result.exited.has_value());
}

TEST_F(GuestTest, ARunThatIsTooLong) {
    GuestSpec spec = Spec("echo begun; sleep 100000");
    spec.timeouts.run_ms = 1000;
    const GuestResult result = Go(spec);
    EXPECT_EQ(result.state, GuestState::kTimedOut) << Told(result);
    EXPECT_EQ(result.stage, Stage::kRunning);
    EXPECT_THAT(result.reason, HasSubstr("while the command ran"));
    EXPECT_TRUE(WIFSIGNALED(result.qemu_status));
}

TEST_F(GuestTest, TheCallerEndsIt) {
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
    Fd ours(fds[1]), theirs(fds[0]);
    GuestSpec spec = Spec("sleep 100000");
    spec.cancel_fd = theirs.get();
    std::thread ender([&] {
        EXPECT_GT(WaitForQemu(), 0);
        ours.Reset();
    });
    GuestResult result;
    {
        auto ended = RunGuest(spec);
        ASSERT_TRUE(ended.ok()) << ended.status();
        result = *std::move(ended);
    }
    ender.join();
    EXPECT_EQ(result.state, GuestState::kCancelled) << Told(result);
    EXPECT_TRUE(result.gone);
    ExpectEmptyCgroup();
}

TEST_F(GuestTest, QemuIsConfined) {
    pid_t pid = -1;
    std::string status, root, net, limits;
    std::thread looker([&] {
        pid = WaitForQemu();
        const std::string proc = absl::StrCat("/proc/", pid);
        // Until it is QEMU, and no more what becomes it.
        const uint64_t deadline = BootNow() + 60'000'000'000;
        std::error_code error;
        while (BootNow() < deadline &&
               std::filesystem::read_symlink(proc + "/exe", error).filename().string().rfind("qemu", 0) !=
                   0) {
            std::this_thread::yield();
        }
        status = ReadFile(proc + "/status", 65536).value_or("");
        for (const auto& entry : std::filesystem::directory_iterator(proc + "/root", error))
            root += entry.path().filename().string() + " ";
        net = ReadFile(proc + "/net/dev", 65536).value_or("");
        limits = ReadFile(proc + "/limits", 65536).value_or("");
        (void)kill(pid, SIGKILL);
    });
    auto result = RunGuest(Spec("sleep 100000"));
    looker.join();
    ASSERT_TRUE(result.ok()) << result.status();
    // QEMU was killed from outside.
    EXPECT_EQ(result->state, GuestState::kLost) << Told(*result);
    EXPECT_TRUE(WIFSIGNALED(result->qemu_status) && WTERMSIG(result->qemu_status) == SIGKILL);
    EXPECT_TRUE(result->gone);
    ExpectEmptyCgroup();
    EXPECT_THAT(status, HasSubstr("Uid:\t61337\t61337\t61337\t61337"));
    EXPECT_THAT(status, HasSubstr("CapEff:\t0000000000000000"));
    EXPECT_THAT(status, HasSubstr("CapBnd:\t0000000000000000"));
    EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
    // Lines of /proc/net/dev with a device: lo alone.
    EXPECT_EQ(std::count(net.begin(), net.end(), ':'), 1) << net;
    EXPECT_THAT(limits, testing::ContainsRegex("Max file size +0 "));
    for (const char* absent : {"home", "root", "var", "work", "tmp"})
        EXPECT_THAT(" " + root, Not(HasSubstr(absl::StrCat(" ", absent, " "))));
    EXPECT_THAT(root, HasSubstr("usr"));
}

TEST_F(GuestTest, ItEndsWithItsStarter) {
    const pid_t starter = fork();
    if (starter == 0) {
        (void)RunGuest(Spec("sleep 100000"));
        _exit(0);
    }
    ASSERT_GT(starter, 0);
    EXPECT_GT(WaitForQemu(), 0);
    ASSERT_EQ(kill(starter, SIGKILL), 0);
    ASSERT_EQ(waitpid(starter, nullptr, 0), starter);
    ExpectEmptyCgroup();
}

}  // namespace
}  // namespace stockade::guest
