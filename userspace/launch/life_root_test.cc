// Beginning and end: what is born where, and what is left after which death.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>

#include "userspace/launch/launch_testing.h"

namespace stockade::launch {
namespace {

using testing::HasSubstr;

std::string CgroupPath(const std::string& id) { return absl::StrCat(TestHome().path, "/", id); }

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

size_t CountTasks(const std::string& id) {
    auto text = ReadFile(CgroupPath(id) + "/cgroup.procs", 1 << 20);
    return text.ok() ? static_cast<size_t>(std::count(text->begin(), text->end(), '\n')) : 0;
}

size_t CountMounts() {
    auto text = ReadFile("/proc/self/mountinfo", 16 << 20);
    return static_cast<size_t>(std::count(text->begin(), text->end(), '\n'));
}

TEST(Life, BornInTheCgroupAndSilentUntilReleased) {
    Collector out;
    NativeSpec spec = MakeSpec({"probe", "getpid"});
    const std::string id = spec.id;
    spec.stdio[1] = out.fd();
    auto sandbox = NativeSandbox::Create(std::move(spec));
    ASSERT_TRUE(sandbox.ok()) << sandbox.status();
    auto procs = ReadFile(CgroupPath(id) + "/cgroup.procs", 4096);
    EXPECT_EQ(*procs, absl::StrCat((*sandbox)->pid(), "\n"));
    // Of the init, root is the sandbox's already: what a policy's literals are resolved in.
    EXPECT_FALSE(Exists(absl::StrCat("/proc/", (*sandbox)->pid(), "/root/home")));
    EXPECT_TRUE(Exists(absl::StrCat("/proc/", (*sandbox)->pid(), "/root/probe")));
    ASSERT_TRUE((*sandbox)->Release().ok());
    EXPECT_EQ(*(*sandbox)->Wait(), 0);
    ASSERT_TRUE((*sandbox)->Destroy().ok());
    EXPECT_EQ(out.Text(), "pid 2\n");
    EXPECT_FALSE(Exists(CgroupPath(id)));
}

TEST(Life, InitHoldsNothingOfTheLauncher) {
    Fd secret;
    secret.Reset(open("/etc/passwd", O_RDONLY));
    auto sandbox = NativeSandbox::Create(MakeSpec({"probe", "pause"}));
    ASSERT_TRUE(sandbox.ok()) << sandbox.status();
    ASSERT_TRUE((*sandbox)->Release().ok());
    for (int fd = 0; fd < 64; ++fd) {
        char target[256] = {};
        if (readlink(absl::StrCat("/proc/", (*sandbox)->pid(), "/fd/", fd).c_str(), target,
                     sizeof(target) - 1) < 0) {
            continue;
        }
        EXPECT_TRUE(std::string(target) == "/dev/null" || std::string(target).rfind("pipe:", 0) == 0 ||
                    std::string(target) == "anon_inode:[signalfd]")
            << fd << " " << target;
    }
}

TEST(Life, NoMountReachesTheHost) {
    const size_t before = CountMounts();
    auto sandbox = NativeSandbox::Create(MakeSpec({"probe", "pause"}));
    ASSERT_TRUE(sandbox.ok());
    EXPECT_EQ(CountMounts(), before);
}

TEST(Life, DestroyKillsAllAndTwiceIsOnce) {
    NativeSpec spec = MakeSpec({"probe", "brood", "50", "pause"});
    const std::string id = spec.id;
    auto sandbox = NativeSandbox::Create(std::move(spec));
    ASSERT_TRUE(sandbox.ok()) << sandbox.status();
    ASSERT_TRUE((*sandbox)->Release().ok());
    ASSERT_TRUE(Eventually([&] { return CountTasks(id) == 52; })) << CountTasks(id);
    auto first = (*sandbox)->Destroy();
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_LE(first->kill_ns, first->empty_ns);
    EXPECT_LE(first->empty_ns, first->removed_ns);
    EXPECT_FALSE(Exists(CgroupPath(id)));
    auto second = (*sandbox)->Destroy();
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second->removed_ns, first->removed_ns);
    EXPECT_EQ(*(*sandbox)->Wait(), 137);
    EXPECT_FALSE((*sandbox)->Signal(SIGTERM).ok());
}

TEST(Life, EndOfTheCommandIsTheEndOfAll) {
    NativeSpec spec = MakeSpec({"probe", "brood", "5", "exit", "4"});
    const std::string id = spec.id;
    auto sandbox = NativeSandbox::Create(std::move(spec));
    ASSERT_TRUE(sandbox.ok());
    ASSERT_TRUE((*sandbox)->Release().ok());
    EXPECT_EQ(*(*sandbox)->Wait(), 4);
    EXPECT_EQ(CountTasks(id), 0u);
}

TEST(Life, SignalsReachTheCommand) {
    auto sandbox = NativeSandbox::Create(MakeSpec({"probe", "pause"}));
    ASSERT_TRUE(sandbox.ok());
    ASSERT_TRUE((*sandbox)->Release().ok());
    ASSERT_TRUE((*sandbox)->Signal(SIGTERM).ok());
    EXPECT_EQ(*(*sandbox)->Wait(), 128 + SIGTERM);
}

// A launcher of its own, killed: nothing may stay running, and the next start cleans the cgroup.
TEST(Life, KilledLauncherLeavesNothing) {
    const std::string id = absl::StrCat("sbx_killed_", getpid());
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
        NativeSpec spec = MakeSpec({"probe", "brood", "20", "pause"});
        (void)RemoveCgroup(spec.cgroup.parent, spec.cgroup.name);
        auto cgroup = CreateCgroup(TestHome(), id, {});
        if (!cgroup.ok()) _exit(1);
        spec.cgroup = *std::move(cgroup);
        auto sandbox = NativeSandbox::Create(std::move(spec));
        if (!sandbox.ok() || !(*sandbox)->Release().ok()) _exit(1);
        (void)!write(ready[1], "1", 1);
        for (;;) pause();
    }
    close(ready[1]);
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    ASSERT_TRUE(Eventually([&] { return CountTasks(id) == 22; })) << CountTasks(id);
    // Alive: cleaning must not touch it.
    EXPECT_EQ(CleanLeftovers(TestHome()).cgroups, 0);
    EXPECT_EQ(CountTasks(id), 22u);
    kill(launcher, SIGKILL);
    waitpid(launcher, nullptr, 0);
    EXPECT_TRUE(Eventually([&] { return CountTasks(id) == 0; })) << CountTasks(id);
    EXPECT_TRUE(Exists(CgroupPath(id)));
    Leftovers left = CleanLeftovers(TestHome());
    EXPECT_EQ(left.cgroups, 1);
    EXPECT_THAT(left.failed, testing::IsEmpty());
    EXPECT_FALSE(Exists(CgroupPath(id)));
}

// A container's view: what it calls the root is some level below the kernel's.
TEST(Life, ACgroupNamespaceIsNamedAndRefused) {
    const std::string root = TestHome().path.substr(0, TestHome().path.rfind('/'));
    const std::string place = absl::StrCat(TestHome().path, "/namespace");
    ASSERT_EQ(mkdir(place.c_str(), 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        auto procs = Fd::Open(place + "/cgroup.procs", O_WRONLY);
        if (!procs.ok() || !WriteAll(procs->get(), "0").ok()) _exit(1);
        if (unshare(CLONE_NEWCGROUP | CLONE_NEWNS) != 0) _exit(2);
        if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(3);
        if (umount2(root.c_str(), MNT_DETACH) != 0) _exit(4);
        if (mount("none", root.c_str(), "cgroup2", 0, nullptr) != 0) _exit(5);
        Status status = FindCgroupHome("inside").status();
        _exit(std::string(status.message()).find("cgroup namespace") == std::string::npos ? 6 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << WEXITSTATUS(status);
    EXPECT_TRUE(Eventually([&] { return rmdir(place.c_str()) == 0; }));
}

TEST(Life, FailedStartLeavesNothing) {
    NativeSpec spec = MakeSpec({"probe"});
    const std::string id = spec.id;
    spec.cwd = "/no/such/directory";
    auto sandbox = NativeSandbox::Create(std::move(spec));
    ASSERT_FALSE(sandbox.ok());
    EXPECT_THAT(std::string(sandbox.status().message()), HasSubstr("enter the working directory"));
    EXPECT_FALSE(Exists(CgroupPath(id)));
}

TEST(Life, SpecsThatNoHostCouldServe) {
    struct Case {
        const char* words;
        void (*spoil)(NativeSpec&);
    };
    const Case cases[] = {
        {"id", [](NativeSpec& s) { s.id = "../x"; }},
        {"uid", [](NativeSpec& s) { s.uid = 0; }},
        {"no command", [](NativeSpec& s) { s.argv.clear(); }},
        {"K=V", [](NativeSpec& s) { s.env.push_back("nothing"); }},
        {"seccomp", [](NativeSpec& s) { s.seccomp = {}; }},
        {"terminal", [](NativeSpec& s) { s.stdio[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC); }},
        {"socket", [](NativeSpec& s) { s.stdio[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }},
        {"socket", [](NativeSpec& s) { s.stdio[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }},
        {"neither a pipe",
         [](NativeSpec& s) { s.stdio[1] = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600); }},
        {"neither a pipe", [](NativeSpec& s) { s.stdio[0] = open("/dev/zero", O_RDONLY | O_CLOEXEC); }},
        {"plain absolute", [](NativeSpec& s) { s.binds[0].target = "/a/../../b"; }},
        {"is taken", [](NativeSpec& s) { s.binds[0].target = "/proc/x"; }},
    };
    for (const Case& one : cases) {
        NativeSpec spec = MakeSpec({"probe"});
        const std::string id = spec.cgroup.name;
        one.spoil(spec);
        auto sandbox = NativeSandbox::Create(std::move(spec));
        ASSERT_FALSE(sandbox.ok()) << one.words;
        EXPECT_EQ(sandbox.status().code(), absl::StatusCode::kInvalidArgument) << sandbox.status();
        EXPECT_THAT(std::string(sandbox.status().message()), HasSubstr(one.words));
        EXPECT_FALSE(Exists(CgroupPath(id))) << one.words;
    }
}

}  // namespace
}  // namespace stockade::launch
