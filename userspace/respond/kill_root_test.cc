// On real cgroups: what must die dies, what cannot yet is told apart.
#include "userspace/respond/kill.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/respond/killer.h"

namespace stockade::respond {
namespace {

std::string Cgroup2() {
    std::ifstream mounts("/proc/self/mounts");
    std::string device, where, type, rest;
    while (mounts >> device >> where >> type && std::getline(mounts, rest)) {
        if (type == "cgroup2") return where;
    }
    return "";
}

// A cgroup of its own that is gone at the end, with all in it.
class TestCgroup {
  public:
    explicit TestCgroup(const std::string& name)
        : path_(Cgroup2() + "/sk_kill_" + std::to_string(getpid()) + "_" + name) {
        EXPECT_EQ(mkdir(path_.c_str(), 0755), 0) << path_;
        auto fd = Fd::Open(path_, O_RDONLY | O_DIRECTORY);
        EXPECT_TRUE(fd.ok()) << fd.status();
        if (fd.ok()) dir_ = *std::move(fd);
    }
    ~TestCgroup() {
        std::ofstream(path_ + "/cgroup.kill") << "1";
        (void)WaitEmpty(dir_.get(), 5'000'000'000);
        EXPECT_EQ(rmdir(path_.c_str()), 0) << path_;
    }
    int fd() const { return dir_.get(); }

    // Runs `body` in a child inside; returns after the child has said that it is ready.
    template <typename Body>
    pid_t Spawn(Body body) {
        int ready[2];
        EXPECT_EQ(pipe(ready), 0);
        const pid_t pid = fork();
        if (pid == 0) {
            const int procs = openat(fd(), "cgroup.procs", O_WRONLY);
            if (procs < 0 || write(procs, "0", 1) != 1) _exit(9);
            body(ready[1]);
            _exit(0);
        }
        close(ready[1]);
        char byte;
        EXPECT_EQ(read(ready[0], &byte, 1), 1);
        close(ready[0]);
        return pid;
    }

  private:
    std::string path_;
    Fd dir_;
};

void Ready(int fd) { (void)!write(fd, "r", 1); }

void IgnoreAll() {
    for (int signo = 1; signo < 65; ++signo) signal(signo, SIG_IGN);
}

void Reap(pid_t pid) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
}

TEST(KillCgroup, EndsAProcessThatIgnoresEverySignalAndTimesEachStep) {
    TestCgroup cgroup("ignore");
    const pid_t pid = cgroup.Spawn([](int fd) {
        IgnoreAll();
        Ready(fd);
        for (;;) pause();
    });
    size_t seen = 0;
    const KillReport report = KillCgroup(cgroup.fd(), {}, [&](uint64_t deadline) {
        EXPECT_GT(deadline, BootNow());
        seen = ListPids(cgroup.fd(), 10).size();
    });
    EXPECT_TRUE(report.status.ok()) << report.status;
    EXPECT_FALSE(report.pending);
    EXPECT_EQ(seen, 1u) << "evidence is taken while it is still there";
    EXPECT_LE(report.times.freeze_asked_ns, report.times.frozen_ns);
    EXPECT_LE(report.times.frozen_ns, report.times.evidence_ns);
    EXPECT_LE(report.times.evidence_ns, report.times.kill_asked_ns);
    EXPECT_LE(report.times.kill_asked_ns, report.times.empty_ns);
    Reap(pid);
}

TEST(KillCgroup, WithoutTheFreezerEvidenceIsOfTasksThatWereNotWoken) {
    TestCgroup cgroup("unfrozen");
    const pid_t pid = cgroup.Spawn([](int fd) {
        Ready(fd);
        for (;;) pause();
    });
    std::string events;
    const KillReport report = KillCgroup(cgroup.fd(), {.freeze = false}, [&](uint64_t deadline) {
        EXPECT_GT(deadline, BootNow());
        EXPECT_EQ(ListPids(cgroup.fd(), 10), std::vector<int>{pid});
        std::ifstream file("/proc/self/fd/" + std::to_string(cgroup.fd()) + "/cgroup.events");
        events.assign(std::istreambuf_iterator<char>(file), {});
    });
    EXPECT_NE(events.find("frozen 0"), std::string::npos) << events;
    EXPECT_TRUE(report.status.ok()) << report.status;
    EXPECT_EQ(report.times.freeze_asked_ns, 0u);
    EXPECT_EQ(report.times.frozen_ns, 0u);
    EXPECT_GT(report.times.evidence_ns, 0u);
    EXPECT_GT(report.times.empty_ns, 0u);
    Reap(pid);
}

uint64_t StartOf(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string word;
    for (int i = 0; i < 22; ++i) file >> word;  // the test's own name has no blank
    return std::stoull(word) * 10'000'000;
}

TEST(KillOne, EndsThatProcessAndNoOtherOfItsNumber) {
    TestCgroup cgroup("one");
    const auto wait = [](int fd) {
        Ready(fd);
        for (;;) pause();
    };
    const pid_t one = cgroup.Spawn(wait), other = cgroup.Spawn(wait);
    EXPECT_TRUE(absl::IsNotFound(KillOne(cgroup.fd(), one, StartOf(one) + 20'000'000))) << "another start is another process";
    EXPECT_TRUE(absl::IsNotFound(KillOne(cgroup.fd(), getpid(), StartOf(getpid())))) << "we are not in the cgroup";
    EXPECT_EQ(ListPids(cgroup.fd(), 10).size(), 2u);
    const Status status = KillOne(cgroup.fd(), one, StartOf(one));
    EXPECT_TRUE(status.ok()) << status;
    Reap(one);
    EXPECT_EQ(ListPids(cgroup.fd(), 10), std::vector<int>{other});
    EXPECT_TRUE(absl::IsNotFound(KillOne(cgroup.fd(), one, 1)));
    EXPECT_TRUE(AskKill(cgroup.fd()).ok());
    Reap(other);
}

TEST(SetFrozen, StopsAndLetsGoOn) {
    TestCgroup cgroup("frozen");
    auto* const count = static_cast<std::atomic<uint64_t>*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const pid_t pid = cgroup.Spawn([count](int fd) {
        Ready(fd);
        for (;;) ++*count;
    });
    const Status frozen = SetFrozen(cgroup.fd(), true, 5'000'000'000);
    ASSERT_TRUE(frozen.ok()) << frozen;
    const uint64_t before = *count;
    usleep(50'000);  // time in which it would go on
    EXPECT_EQ(*count, before);
    EXPECT_TRUE(SetFrozen(cgroup.fd(), false, 5'000'000'000).ok());
    const uint64_t end = BootNow() + 5'000'000'000;
    while (*count == before && BootNow() < end) usleep(1000);
    EXPECT_GT(*count, before);
    EXPECT_TRUE(SetFrozen(cgroup.fd(), true, 5'000'000'000).ok());
    EXPECT_TRUE(AskKill(cgroup.fd()).ok()) << "what is frozen can be killed";
    Reap(pid);
    munmap(count, 4096);
}

TEST(KillCgroup, EndsAForkBombOf400) {
    TestCgroup cgroup("bomb");
    // The bomb is bounded by a counter that all share, not by a limit that the kernel keeps:
    // each task forks as long as fewer than 400 live.
    auto* alive = static_cast<std::atomic<int>*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(alive, MAP_FAILED);
    const pid_t pid = cgroup.Spawn([alive](int fd) {
        signal(SIGCHLD, SIG_IGN);
        IgnoreAll();
        ++*alive;
        for (;;) {
            if (alive->load() >= 400) {
                Ready(fd);
                // Go on: every task that ends is replaced.
                if (fork() == 0) _exit(0);
                continue;
            }
            if (fork() == 0) ++*alive;
        }
    });
    const KillReport report = KillCgroup(cgroup.fd(), {.empty_wait_ns = 20'000'000'000}, nullptr);
    EXPECT_TRUE(report.status.ok()) << report.status;
    EXPECT_FALSE(report.pending);
    EXPECT_GE(alive->load(), 400);
    EXPECT_TRUE(ListPids(cgroup.fd(), 10).empty());
    Reap(pid);
    munmap(alive, 4096);
}

TEST(KillCgroup, ReachesChildCgroups) {
    TestCgroup cgroup("nested");
    ASSERT_EQ(mkdirat(cgroup.fd(), "inner", 0755), 0);
    const pid_t pid = cgroup.Spawn([&cgroup](int fd) {
        const int procs = openat(cgroup.fd(), "inner/cgroup.procs", O_WRONLY);
        if (write(procs, "0", 1) == 1) Ready(fd);
        for (;;) pause();
    });
    EXPECT_EQ(ListPids(cgroup.fd(), 10), std::vector<int>{pid});
    EXPECT_FALSE(KillCgroup(cgroup.fd(), {}, nullptr).pending);
    Reap(pid);
    EXPECT_EQ(unlinkat(cgroup.fd(), "inner", AT_REMOVEDIR), 0);
}

TEST(KillCgroup, AnEmptyCgroupIsEmptyAtOnce) {
    TestCgroup cgroup("empty");
    const KillReport report = KillCgroup(cgroup.fd(), {}, nullptr);
    EXPECT_TRUE(report.status.ok()) << report.status;
    EXPECT_FALSE(report.pending);
    EXPECT_NE(report.times.empty_ns, 0u);
}

// An agent that takes over holds the directory of a cgroup that somebody else removes.
TEST(KillCgroup, ARemovedCgroupIsEmptyAtOnce) {
    const std::string path = Cgroup2() + "/sk_kill_" + std::to_string(getpid()) + "_removed";
    ASSERT_EQ(mkdir(path.c_str(), 0755), 0);
    const auto dir = Fd::Open(path, O_RDONLY | O_DIRECTORY);
    ASSERT_TRUE(dir.ok()) << dir.status();
    ASSERT_EQ(rmdir(path.c_str()), 0);
    const KillReport report = KillCgroup(dir->get(), {}, nullptr);
    EXPECT_TRUE(report.status.ok()) << report.status;
    EXPECT_FALSE(report.pending);
    EXPECT_NE(report.times.empty_ns, 0u);
}

// A file system on a loop device that can be frozen: writers to it sleep uninterruptibly.
class FrozenFs {
  public:
    FrozenFs() {
        char name[] = "/tmp/sk_frozen_XXXXXX";
        dir_ = mkdtemp(name);
        const std::string image = dir_ + "/image", mount = dir_ + "/mnt";
        std::filesystem::create_directory(mount);
        const std::string command = "truncate -s 16M " + image + " && mkfs.ext4 -q -F " + image +
                                    " 2>/dev/null && mount -o loop " + image + " " + mount + " 2>/dev/null";
        ready_ = std::system(command.c_str()) == 0;
    }
    ~FrozenFs() {
        Thaw();
        root_.Reset();
        if (ready_) (void)umount2((dir_ + "/mnt").c_str(), MNT_DETACH);
        std::filesystem::remove_all(dir_);
    }
    bool Freeze() {
        auto root = Fd::Open(dir_ + "/mnt", O_RDONLY | O_DIRECTORY);
        if (!ready_ || !root.ok()) return false;
        root_ = *std::move(root);
        frozen_ = ioctl(root_.get(), FIFREEZE, 0) == 0;
        return frozen_;
    }
    void Thaw() {
        if (frozen_) (void)ioctl(root_.get(), FITHAW, 0);
        frozen_ = false;
    }
    std::string File() const { return dir_ + "/mnt/file"; }

  private:
    std::string dir_;
    Fd root_;
    bool ready_ = false;
    bool frozen_ = false;
};

char StateOf(pid_t pid) {
    auto stat = ReadFile("/proc/" + std::to_string(pid) + "/stat", 4096);
    if (!stat.ok()) return '?';
    const size_t at = stat->rfind(')');
    return at == std::string::npos || at + 2 >= stat->size() ? '?' : (*stat)[at + 2];
}

TEST(KillCgroup, ATaskInStateDIsPendingAndNotKilled) {
    FrozenFs fs;
    if (!fs.Freeze()) GTEST_SKIP() << "no file system on a loop device can be frozen here";
    TestCgroup cgroup("dstate");
    const std::string file = fs.File();
    const pid_t pid = cgroup.Spawn([&file](int fd) {
        Ready(fd);
        (void)open(file.c_str(), O_CREAT | O_WRONLY, 0600);  // sleeps until the thaw
    });
    const uint64_t deadline = BootNow() + 5'000'000'000;
    while (StateOf(pid) != 'D' && BootNow() < deadline) sched_yield();
    ASSERT_EQ(StateOf(pid), 'D');
    const KillReport report = KillCgroup(cgroup.fd(), {.empty_wait_ns = 100'000'000}, nullptr);
    EXPECT_TRUE(report.pending);
    EXPECT_EQ(report.times.empty_ns, 0u);
    EXPECT_EQ(report.left, std::vector<int>{pid});
    fs.Thaw();
    auto empty = WaitEmpty(cgroup.fd(), 5'000'000'000);
    ASSERT_TRUE(empty.ok()) << empty.status();
    EXPECT_TRUE(*empty);
    Reap(pid);
}

TEST(Killer, ATaskInStateDDoesNotHoldUpItsEnd) {
    FrozenFs fs;
    if (!fs.Freeze()) GTEST_SKIP() << "no file system on a loop device can be frozen here";
    TestCgroup cgroup("halt");
    const std::string file = fs.File();
    const pid_t pid = cgroup.Spawn([&file](int fd) {
        Ready(fd);
        (void)open(file.c_str(), O_CREAT | O_WRONLY, 0600);  // sleeps until the thaw
    });
    uint64_t deadline = BootNow() + 5'000'000'000;
    while (StateOf(pid) != 'D' && BootNow() < deadline) sched_yield();
    ASSERT_EQ(StateOf(pid), 'D');
    auto killer = Killer::Create();
    ASSERT_TRUE(killer.ok()) << killer.status();
    auto fd = Fd::Dup(cgroup.fd());
    ASSERT_TRUE(fd.ok());
    (*killer)->Start({.id = "d",
                      .cgroup = *std::move(fd),
                      .options = {.empty_wait_ns = 50'000'000},
                      .evidence = {},
                      .wait_pending = true});
    pollfd entry{.fd = (*killer)->event_fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&entry, 1, 5000), 1);
    const std::vector<Killed> finished = (*killer)->Finished();
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_TRUE(finished[0].report.pending);
    EXPECT_FALSE(finished[0].last);
    const uint64_t start = BootNow();
    killer->reset();
    EXPECT_LT(BootNow() - start, 2'000'000'000u);
    EXPECT_EQ(StateOf(pid), 'D');
    fs.Thaw();
    Reap(pid);
}

TEST(Killer, HundredAtOnceEachWithAReport) {
    auto killer = Killer::Create();
    ASSERT_TRUE(killer.ok()) << killer.status();
    constexpr int kCount = 100;
    std::vector<std::unique_ptr<TestCgroup>> cgroups;
    std::vector<pid_t> pids;
    for (int i = 0; i < kCount; ++i) {
        cgroups.push_back(std::make_unique<TestCgroup>("many" + std::to_string(i)));
        pids.push_back(cgroups.back()->Spawn([](int fd) {
            IgnoreAll();
            Ready(fd);
            for (;;) pause();
        }));
    }
    for (int i = 0; i < kCount; ++i) {
        auto fd = Fd::Dup(cgroups[i]->fd());
        ASSERT_TRUE(fd.ok());
        (*killer)->Start({.id = std::to_string(i), .cgroup = *std::move(fd), .options = {}, .evidence = {}});
    }
    int finished = 0;
    while (finished < kCount) {
        pollfd entry{.fd = (*killer)->event_fd(), .events = POLLIN, .revents = 0};
        ASSERT_EQ(poll(&entry, 1, 20000), 1) << "after " << finished;
        for (const Killed& killed : (*killer)->Finished()) {
            ++finished;
            EXPECT_TRUE(killed.last);
            EXPECT_FALSE(killed.report.pending) << killed.id;
            EXPECT_TRUE(killed.report.status.ok()) << killed.report.status;
        }
    }
    for (const pid_t pid : pids) Reap(pid);
}

}  // namespace
}  // namespace stockade::respond
