// What a process inside can see and do, asked by real attempts.
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstddef>

#include "absl/strings/str_split.h"
#include "bpf/wire/policy.h"
#include "userspace/launch/launch_testing.h"

namespace stockade::launch {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Probe(std::vector<std::string> words) {
    Ran ran = RunProbe(std::move(words));
    EXPECT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_TRUE(ran.exec.started) << ran.exec.stage << " " << ran.exec.error;
    return ran.out;
}

TEST(Isolation, NothingOfTheHostsFilesButTheSystem) {
    std::string out =
        Probe({"ls", "/", "ls", "/home", "ls", "/root", "ls", "/var", "ls", "/run", "ls", "/boot", "open",
               "/etc/shadow", "open", "/etc/ssl/private", "open", "/usr/bin/env"});
    EXPECT_THAT(out, HasSubstr("ls /home: ENOENT"));
    EXPECT_THAT(out, HasSubstr("ls /root: ENOENT"));
    EXPECT_THAT(out, HasSubstr("ls /var: ENOENT"));
    EXPECT_THAT(out, HasSubstr("ls /run: ENOENT"));
    EXPECT_THAT(out, HasSubstr("ls /boot: ENOENT"));
    EXPECT_THAT(out, HasSubstr("open ENOENT\nopen ENOENT\nopen ok\n"));
    EXPECT_THAT(out, Not(HasSubstr("/work")));
}

TEST(Isolation, OnlyScratchIsWritable) {
    std::string out = Probe({"write", "/tmp/x", "write", "/out/x", "write", "/dev/shm/x", "write", "/x",
                             "write", "/usr/x", "write", "/etc/x", "write", "/dev/x", "write", "/dev/null",
                             "write", "/proc/sys/kernel/core_pattern"});
    EXPECT_EQ(out,
              "write ok\nwrite ok\nwrite ok\nwrite EROFS\nwrite EROFS\nwrite EROFS\nwrite EROFS\nwrite ok\n"
              "write EACCES\n");
}

TEST(Isolation, ScratchIsBounded) {
    NativeSpec spec = MakeSpec({"probe", "fill", "/tmp/big", "fill", "/out/big"});
    spec.out_max_bytes = 8u << 20;
    spec.tmp_max_bytes = 4u << 20;
    Ran ran = RunSandbox(std::move(spec));
    EXPECT_EQ(ran.out, absl::StrCat("fill ENOSPC ", 4 << 20, "\nfill ENOSPC ", 8 << 20, "\n"));
}

TEST(Isolation, NoDescriptorAboveTwo) {
    Fd leaked;
    leaked.Reset(open("/etc/passwd", O_RDONLY));  // deliberately inheritable
    ASSERT_TRUE(leaked.ok());
    EXPECT_EQ(Probe({"fds"}), "fds 0 1 2\n");
}

TEST(Isolation, NoCapabilitiesAndOwnIds) {
    std::string out = Probe({"status"});
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
        EXPECT_THAT(out, HasSubstr(absl::StrCat(set, ":\t0000000000000000\n")));
    }
    EXPECT_THAT(out, HasSubstr("NoNewPrivs:\t1\n"));
    EXPECT_THAT(out, HasSubstr("Seccomp:\t2\n"));
    EXPECT_THAT(out, HasSubstr("Groups:\t \n"));
    EXPECT_THAT(out, Not(HasSubstr("Uid:\t0")));
}

TEST(Isolation, TheInitIsOutOfReach) {
    EXPECT_EQ(Probe({"init"}),
              "sched_setaffinity EPERM\nsched_setscheduler EPERM\nsetpriority EPERM\nprlimit EPERM\nkill EPERM\n");
}

TEST(Isolation, EscapesAreRefusedByValue) {
    std::string out = Probe({"escapes"});
    for (const char* name : {"unshare_user",
                             "unshare_mount",
                             "unshare_smuggled",
                             "clone_user",
                             "setns",
                             "mount",
                             "umount",
                             "open_tree",
                             "fsopen",
                             "mount_setattr",
                             "pivot_root",
                             "chroot",
                             "ptrace",
                             "process_vm_readv",
                             "pidfd_getfd",
                             "bpf",
                             "perf_event_open",
                             "io_uring_setup",
                             "keyctl",
                             "add_key",
                             "init_module",
                             "kexec_load",
                             "userfaultfd",
                             "open_by_handle_at",
                             "ioctl_tiocsti",
                             "ioctl_tiocsti_smuggled",
                             "ioctl_tioclinux",
                             "setuid_0",
                             "reboot"}) {
        EXPECT_THAT(out, HasSubstr(absl::StrCat(name, " EPERM\n")));
    }
    EXPECT_THAT(out, HasSubstr("clone3 ENOSYS\n"));
    EXPECT_THAT(out, HasSubstr("unknown_call ENOSYS\n"));
    EXPECT_THAT(out, HasSubstr("unshare_files ok\n"));
}

TEST(Isolation, GrantsLiftTheirEntriesOnly) {
    NativeSpec spec = MakeSpec({"probe", "escapes", "socket", "17", "3", "0"});
    auto compiled =
        CompileSeccomp(1ull << SK_GRANT_IO_URING | 1ull << SK_GRANT_USERNS | 1ull << SK_GRANT_MNTNS);
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    spec.seccomp = *compiled;
    Ran ran = RunSandbox(std::move(spec));
    EXPECT_THAT(ran.out, Not(HasSubstr("io_uring_setup EPERM")));
    EXPECT_THAT(ran.out, HasSubstr("unshare_user ok"));
    EXPECT_THAT(ran.out, Not(HasSubstr("clone3 ENOSYS")));
    EXPECT_THAT(ran.out, HasSubstr("bpf EPERM"));
    EXPECT_THAT(ran.out, HasSubstr("chroot EPERM"));
    EXPECT_THAT(ran.out, HasSubstr("socket_17_3_0 EPERM"));
}

TEST(Isolation, SocketsAreAnAllowlist) {
    const std::string out = Probe({"socket", "1", "1", "0", "socket", "2", "1", "0", "socket", "2", "1", "6",
                                   "socket", "2", "1", "262", "socket", "2", "2", "17", "socket", "10", "1",
                                   "0", "socket", "16", "3", "0", "socket", "2", "526337", "0",
                                   // refused: raw, ping, SCTP, packet, netfilter, ALG, vsock, smuggled
                                   "socket", "2", "3", "1", "socket", "2", "2", "1", "socket", "2", "1",
                                   "132", "socket", "17", "3", "0", "socket", "16", "3", "12", "socket", "38",
                                   "5", "0", "socket", "40", "1", "0", "socket", "0x100000011", "3", "0"});
    for (const char* allowed : {"1_1_0", "2_1_0", "2_1_6", "2_2_17", "16_3_0", "2_526337_0"}) {
        EXPECT_THAT(out, HasSubstr(absl::StrCat("socket_", allowed, " ok\n")));
    }
    EXPECT_THAT(out, Not(HasSubstr("socket_10_1_0 EPERM")));   // no IPv6 on some kernels
    EXPECT_THAT(out, Not(HasSubstr("socket_2_1_262 EPERM")));  // nor MPTCP
    for (const char* refused :
         {"2_3_1", "2_2_1", "2_1_132", "17_3_0", "16_3_12", "38_5_0", "40_1_0", "0x100000011_3_0"}) {
        EXPECT_THAT(out, HasSubstr(absl::StrCat("socket_", refused, " EPERM\n")));
    }
}

TEST(Isolation, ProcessesOfTheHostAndOfOthersAreInvisible) {
    NativeSpec other = MakeSpec({"probe", "pause"});
    auto running = NativeSandbox::Create(std::move(other));
    ASSERT_TRUE(running.ok()) << running.status();
    ASSERT_TRUE((*running)->Release().ok());
    std::string out = Probe({"ls", "/proc", "kill", "1", "kill", std::to_string((*running)->pid())});
    // Not even the init of its own: hidepid, and it is not dumpable.
    std::string numbers;
    for (const std::string& name :
         std::vector<std::string>(absl::StrSplit(out.substr(0, out.find('\n')), ' '))) {
        if (!name.empty() && isdigit(name[0])) numbers += name + " ";
    }
    EXPECT_EQ(numbers, "2 ");
    EXPECT_THAT(out, HasSubstr("kill ESRCH"));
    ASSERT_EQ(kill((*running)->pid(), 0), 0);
}

TEST(Isolation, InitSurvivesItsSandbox) {
    // A signal from inside does not reach pid 1, and /proc/1 is closed.
    Ran ran =
        RunProbe({"kill", "1", "open", "/proc/1/environ", "open", "/proc/1/root/etc/passwd", "exit", "3"});
    EXPECT_EQ(ran.exit_status, 3);
    EXPECT_THAT(ran.out, Not(HasSubstr("open ok")));
}

TEST(Isolation, MaskedProc) {
    std::string out =
        Probe({"open", "/proc/meminfo", "ls", "/proc/acpi", "ls", "/sys", "open", "/proc/self/maps"});
    EXPECT_THAT(out, HasSubstr("open ok\n"));
    EXPECT_THAT(out, HasSubstr("ls /sys: ENOENT"));
    Ran keys = RunSandbox(MakeSpec({"cat", "/proc/keys", "/proc/kallsyms", "/proc/timer_list"}));
    EXPECT_EQ(keys.out, "");
}

TEST(Isolation, KernelMemoryIsBoundedAndTheSandboxGoesFirst) {
    Ran ran =
        RunSandbox(MakeSpec({"sh", "-c",
                             "cd /proc/sys/kernel; cat /proc/self/oom_score_adj shmmax shmall msgmni sem;"
                             "echo 0 > /proc/self/oom_score_adj"}));
    EXPECT_THAT(ran.out, HasSubstr("1000\n67108864\n65536\n256\n250\t32000\t32\t128\n"));
    // What was set with this capability cannot be lowered without it.
    if (prctl(PR_CAPBSET_READ, CAP_SYS_RESOURCE) == 1) {
        EXPECT_THAT(ran.out, HasSubstr("Permission denied"));
    }
    // Of its own namespace only.
    auto host = ReadFile("/proc/sys/kernel/shmmax", 100);
    EXPECT_NE(*host, "67108864\n");
}

TEST(Isolation, CoreLimitStaysAndLiesAboutIt) {
    EXPECT_EQ(Probe({"core"}), "set_core ok\nget_core ok\ncore 1 1\n");
}

TEST(Isolation, NoNetworkButItsOwnLoopback) {
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    Fd owned(listener);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = absl::StrCat("stockade-launch-test-", getpid());
    memcpy(address.sun_path + 1, name.data(), name.size());
    auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    std::string out = Probe({"abstract", name, "connect", "127.0.0.1", "9", "connect", "192.0.2.1", "80"});
    EXPECT_EQ(out, "abstract ECONNREFUSED\nconnect ECONNREFUSED\nconnect ENETUNREACH\n");
    // The control: outside the name is there.
    Fd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
}

TEST(Isolation, LandlockConfines) {
    if (LandlockAbi() == 0) GTEST_SKIP() << "no landlock in this kernel";
    NativeSpec spec = MakeSpec({"probe", "open", "/usr/bin/env", "open", "/etc/passwd", "write", "/tmp/x",
                                "write", "/out/x", "exec", "/usr/bin/true"});
    spec.landlock =
        PlanLandlock(kLandlockRead | kLandlockWrite | kLandlockExecute, {{kLandlockRead, "/usr/", false},
                                                                         {kLandlockWrite, "/out/", false},
                                                                         {kLandlockExecute, "/probe", true}});
    Ran ran = RunSandbox(std::move(spec));
    EXPECT_TRUE(ran.exec.started) << ran.exec.stage << ran.exec.error;
    EXPECT_EQ(ran.out, "open ok\nopen EACCES\nwrite EACCES\nwrite ok\nexec EACCES\n");
}

TEST(Isolation, LandlockOfExecAloneLeavesRenamesBe) {
    if (LandlockAbi() < 2) GTEST_SKIP() << "landlock before ABI 2 refuses every move between directories";
    NativeSpec spec = MakeSpec({"probe", "write", "/tmp/a", "mkdir", "/tmp/d", "rename", "/tmp/a", "/tmp/d/b",
                                "exec", "/usr/bin/true"});
    spec.landlock = PlanLandlock(kLandlockExecute, {{kLandlockExecute, "/probe", true}});
    EXPECT_EQ(RunSandbox(std::move(spec)).out, "write ok\nmkdir ok\nrename ok\nexec EACCES\n");
}

TEST(Isolation, OciProfileReplacesTheListAndNotTheFloor) {
    NativeSpec spec = MakeSpec({"probe", "open", "/etc/passwd", "mkdir", "/tmp/x", "escapes"});
    auto compiled = CompileSeccomp(0, R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}]})");
    ASSERT_TRUE(compiled.ok()) << compiled.status();
    spec.seccomp = *compiled;
    Ran ran = RunSandbox(std::move(spec));
    EXPECT_THAT(ran.out, HasSubstr("open ok\nmkdir EACCES\n"));
    EXPECT_THAT(ran.out, HasSubstr("mount EPERM\n"));
    EXPECT_THAT(ran.out, HasSubstr("ioctl_tiocsti EPERM\n"));
}

}  // namespace
}  // namespace stockade::launch
