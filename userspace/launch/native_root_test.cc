#include "userspace/launch/native.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "userspace/launch/launch_testing.h"

namespace stockade::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Native, RunsTheCommandAndPassesItsStatus) {
    Ran ran = RunProbe({"getpid", "exit", "7"});
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_TRUE(ran.exec.started) << ran.exec.stage;
    EXPECT_EQ(ran.exit_status, 7);
    EXPECT_EQ(ran.out, "pid 2\n");
}

TEST(Native, ExitStatusesAreThoseOfAShell) {
    EXPECT_EQ(RunProbe({"exit", "0"}).exit_status, 0);
    EXPECT_EQ(RunProbe({"die", "15"}).exit_status, 128 + 15);
    EXPECT_EQ(RunProbe({"die", "9"}).exit_status, 128 + 9);
    Ran missing = RunSandbox(MakeSpec({"no-such-program"}));
    EXPECT_FALSE(missing.exec.started);
    EXPECT_EQ(missing.exec.exit_status, 127);
    EXPECT_EQ(missing.exit_status, 127);
    Ran forbidden = RunSandbox(MakeSpec({"/etc/passwd"}));
    EXPECT_EQ(forbidden.exec.exit_status, 126);
    EXPECT_EQ(forbidden.exec.error, EACCES);
    EXPECT_EQ(forbidden.exit_status, 126);
}

// What MakeSpec makes, in the two halves.
struct Halves {
    NativeSpec base, rest;
};
Halves MakeHalves(std::vector<std::string> argv) {
    Halves halves;
    halves.rest = MakeSpec(std::move(argv));
    halves.base.id = halves.rest.id;
    halves.base.cgroup = std::move(halves.rest.cgroup);
    return halves;
}

Ran RunAhead(std::vector<std::string> argv) {
    Ran ran;
    Collector collector;
    Halves halves = MakeHalves(std::move(argv));
    halves.rest.stdio[1] = halves.rest.stdio[2] = collector.fd();
    auto sandbox = NativeSandbox::Prepare(std::move(halves.base));
    ran.status = sandbox.status();
    if (ran.status.ok()) ran.status = (*sandbox)->Complete(std::move(halves.rest));
    if (!ran.status.ok()) return ran;
    auto exec = (*sandbox)->Release();
    if (exec.ok()) ran.exec = *exec;
    auto status = (*sandbox)->Wait();
    if (status.ok()) ran.exit_status = *status;
    ran.status = (*sandbox)->Destroy().status();
    ran.out = collector.Text();
    return ran;
}

bool HasCgroup(const std::string& id) { return access((TestHome().path + "/" + id).c_str(), F_OK) == 0; }

TEST(Native, MadeAheadItIsTheSameSandbox) {
    const std::vector<std::string> looks = {
        // Where and how all is mounted, without what the kernel numbers: ids, devices, and the source.
        "cut -d' ' -f4- /proc/self/mountinfo | sort",
        "cat /proc/self/status | grep -E '^(Cap|NoNewPrivs|Seccomp|Groups|NS)'",
        "cat /proc/self/limits; ls -l /proc/self/fd | wc -l; hostname; cat /etc/hosts /etc/group | grep -v "
        "^sandbox",
        "stat -c '%a %n' / /out /tmp /dev /dev/* /etc/*; touch /x /usr/x /etc/x /dev/x 2>&1; echo y >/out/y; "
        "cat /out/y",
    };
    for (const std::string& look : looks) {
        const Ran once = RunSandbox(MakeSpec({"/bin/sh", "-c", look}));
        const Ran ahead = RunAhead({"/bin/sh", "-c", look});
        ASSERT_TRUE(ahead.status.ok()) << ahead.status;
        EXPECT_EQ(ahead.out, once.out);
        EXPECT_EQ(ahead.exit_status, once.exit_status);
        EXPECT_FALSE(once.out.empty());
    }
}

TEST(Native, MadeAheadItIsOfOneUseAndRefusesWhatItIsNot) {
    Halves halves = MakeHalves({"probe", "exit", "3"});
    auto sandbox = NativeSandbox::Prepare(std::move(halves.base));
    ASSERT_TRUE(sandbox.ok()) << sandbox.status();
    ASSERT_TRUE((*sandbox)->Complete(std::move(halves.rest)).ok());
    EXPECT_EQ((*sandbox)->Complete(MakeHalves({"probe", "exit", "4"}).rest).code(),
              absl::StatusCode::kFailedPrecondition);
    ASSERT_TRUE((*sandbox)->Release().ok());
    EXPECT_EQ((*sandbox)->Wait().value_or(-1), 3);

    const std::pair<const char*, void (*)(NativeSpec&)> others[] = {
        {"egress", [](NativeSpec& spec) { spec.egress = Egress::kVeth; }},
        {"rootfs", [](NativeSpec& spec) { spec.rootfs = *Fd::Open("/usr", O_PATH); }},
        {"/out", [](NativeSpec& spec) { spec.out_max_bytes = 4096; }},
        {"/tmp", [](NativeSpec& spec) { spec.tmp_max_bytes = 4096; }},
        {"id", [](NativeSpec& spec) { spec.id += "0"; }},
        {"uid", [](NativeSpec& spec) { spec.uid = 0; }},
        {"seccomp", [](NativeSpec& spec) { spec.seccomp = {}; }},
    };
    for (const auto& [name, change] : others) {
        Halves other = MakeHalves({"probe", "exit", "3"});
        const std::string id = other.base.id;
        auto made = NativeSandbox::Prepare(std::move(other.base));
        ASSERT_TRUE(made.ok()) << made.status();
        EXPECT_TRUE(HasCgroup(id));
        const int pid = (*made)->pid();
        change(other.rest);
        EXPECT_EQ((*made)->Complete(std::move(other.rest)).code(), absl::StatusCode::kInvalidArgument)
            << name;
        EXPECT_FALSE(HasCgroup(id)) << name;
        EXPECT_NE(kill(pid, 0), 0) << name;
    }
}

TEST(Native, MadeAheadAndNeverUsedItLeavesNothing) {
    NativeSpec base = MakeHalves({"probe"}).base;
    base.id = "sbx_test_unused";
    base.cgroup = *CreateCgroup(TestHome(), base.id, {});
    {
        auto sandbox = NativeSandbox::Prepare(std::move(base));
        ASSERT_TRUE(sandbox.ok()) << sandbox.status();
        EXPECT_TRUE(HasCgroup("sbx_test_unused"));
    }
    EXPECT_FALSE(HasCgroup("sbx_test_unused"));
}

// Its launcher is killed: the socket's end ends the init, which holds nothing that would keep the cgroup locked.
TEST(Native, MadeAheadItDiesWithItsLauncher) {
    Halves halves = MakeHalves({"probe"});
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const std::string id = halves.base.id;
    const pid_t launcher = fork();
    if (launcher == 0) {
        auto sandbox = NativeSandbox::Prepare(std::move(halves.base));
        const int pid = sandbox.ok() ? (*sandbox)->pid() : -1;
        (void)!write(ends[1], &pid, sizeof(pid));
        pause();
    }
    halves = {};
    int pid = -1;
    ASSERT_EQ(read(ends[0], &pid, sizeof(pid)), ssize_t{sizeof(pid)});
    ASSERT_GT(pid, 1);
    EXPECT_EQ(kill(pid, 0), 0);
    ASSERT_EQ(kill(launcher, SIGKILL), 0);
    ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
    auto events = [&] { return *ReadFile(TestHome().path + "/" + id + "/cgroup.events", 256); };
    EXPECT_TRUE(Eventually([&] { return events().find("populated 0") != std::string::npos; }));
    EXPECT_GE(CleanLeftovers(TestHome()).cgroups, 1);
    EXPECT_FALSE(HasCgroup(id));
}

TEST(Native, RealInterpreterWorks) {
    Ran ran = RunSandbox(MakeSpec({"python3", "-c", "print(42)"}));
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_EQ(ran.out, "42\n");
    EXPECT_EQ(ran.exit_status, 0);
}

}  // namespace
}  // namespace stockade::launch
