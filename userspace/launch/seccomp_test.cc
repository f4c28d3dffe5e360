#include "userspace/launch/seccomp.h"

#include <gmock/gmock.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "bpf/wire/policy.h"
#include "userspace/launch/seccomp_default.h"

namespace stockade::launch {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
#endif

// Runs a filter as the kernel does: the subset of classic BPF that seccomp takes.
uint32_t Evaluate(const std::vector<sock_filter>& code, long number, std::vector<uint64_t> args,
                  uint32_t arch = kArch) {
    seccomp_data data{};
    data.nr = static_cast<int>(number);
    data.arch = arch;
    for (size_t i = 0; i < args.size(); ++i) data.args[i] = args[i];
    uint32_t a = 0, scratch[16] = {};
    for (size_t pc = 0; pc < code.size(); ++pc) {
        const sock_filter& op = code[pc];
        switch (op.code) {
            case BPF_LD | BPF_W | BPF_ABS:
                memcpy(&a, reinterpret_cast<char*>(&data) + op.k, 4);
                break;
            case BPF_LD | BPF_MEM:
                a = scratch[op.k & 15];
                break;
            case BPF_ST:
                scratch[op.k & 15] = a;
                break;
            case BPF_ALU | BPF_AND | BPF_K:
                a &= op.k;
                break;
            case BPF_JMP | BPF_JA:
                pc += op.k;
                break;
            case BPF_JMP | BPF_JEQ | BPF_K:
                pc += a == op.k ? op.jt : op.jf;
                break;
            case BPF_JMP | BPF_JGT | BPF_K:
                pc += a > op.k ? op.jt : op.jf;
                break;
            case BPF_JMP | BPF_JGE | BPF_K:
                pc += a >= op.k ? op.jt : op.jf;
                break;
            case BPF_JMP | BPF_JSET | BPF_K:
                pc += (a & op.k) != 0 ? op.jt : op.jf;
                break;
            case BPF_RET | BPF_K:
                return op.k;
            default:
                ADD_FAILURE() << "instruction " << op.code;
                return 0;
        }
    }
    ADD_FAILURE() << "ran past the end";
    return 0;
}

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t Errno(int error) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(error); }

TEST(SeccompFloor, EveryGrantLiftsItsOwnCallsAndNoOther) {
    struct Row {
        sk_grant grant;
        long call;
    };
    const Row rows[] = {{SK_GRANT_IO_URING, SYS_io_uring_setup},
                        {SK_GRANT_BPF, SYS_bpf},
                        {SK_GRANT_PERF_EVENT, SYS_perf_event_open},
                        {SK_GRANT_PTRACE, SYS_ptrace},
                        {SK_GRANT_MOUNT, SYS_mount},
                        {SK_GRANT_CHROOT, SYS_chroot},
                        {SK_GRANT_SETNS, SYS_setns},
                        {SK_GRANT_USERFAULTFD, SYS_userfaultfd},
                        {SK_GRANT_KEYCTL, SYS_keyctl},
                        {SK_GRANT_MODULE, SYS_finit_module},
                        {SK_GRANT_KEXEC, SYS_kexec_load},
                        {SK_GRANT_OPEN_BY_HANDLE, SYS_open_by_handle_at}};
    for (const Row& granted : rows) {
        auto code = SeccompFloor(1ull << granted.grant);
        for (const Row& row : rows) {
            EXPECT_EQ(Evaluate(code, row.call, {}), row.call == granted.call ? kAllow : Errno(EPERM))
                << granted.grant << " " << row.call;
        }
    }
}

TEST(SeccompFloor, SocketGrants) {
    struct Row {
        int grant;
        uint64_t family, type, protocol;
    };
    const Row rows[] = {{SK_GRANT_RAW_SOCKET, 2, 3, 255}, {SK_GRANT_PACKET_SOCKET, 17, 3, 0},
                        {SK_GRANT_PING_SOCKET, 2, 2, 1},  {SK_GRANT_VSOCK, 40, 1, 0},
                        {SK_GRANT_AF_ALG, 38, 5, 0},      {SK_GRANT_NETLINK, 16, 3, 12},
                        {SK_GRANT_SCTP, 10, 5, 132},      {SK_GRANT_OTHER_SOCKET, 43, 1, 0}};
    const auto closed = SeccompFloor(0);
    for (const Row& row : rows) {
        EXPECT_EQ(Evaluate(closed, SYS_socket, {row.family, row.type, row.protocol}), Errno(EPERM))
            << row.grant;
        auto code = SeccompFloor(1ull << row.grant);
        EXPECT_EQ(Evaluate(code, SYS_socket, {row.family, row.type, row.protocol}), kAllow) << row.grant;
        EXPECT_EQ(Evaluate(code, SYS_socket, {2, 1, 0}), kAllow);
        if (row.grant != SK_GRANT_OTHER_SOCKET) {
            EXPECT_EQ(Evaluate(code, SYS_socket, {44, 3, 0}), Errno(EPERM)) << row.grant;
        }
    }
}

TEST(SeccompFloor, NamespacesByFlag) {
    const auto closed = SeccompFloor(0);
    const uint64_t thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SETTLS;
    EXPECT_EQ(Evaluate(closed, SYS_clone, {thread}), kAllow);
    EXPECT_EQ(Evaluate(closed, SYS_clone, {CLONE_VM | CLONE_VFORK | 17}), kAllow);
    for (uint64_t flag : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS,
                          CLONE_NEWCGROUP}) {
        EXPECT_EQ(Evaluate(closed, SYS_clone, {flag | 17}), Errno(EPERM));
        EXPECT_EQ(Evaluate(closed, SYS_unshare, {flag}), Errno(EPERM));
    }
    const auto users = SeccompFloor(1ull << SK_GRANT_USERNS);
    EXPECT_EQ(Evaluate(users, SYS_clone, {CLONE_NEWUSER | CLONE_NEWPID}), kAllow);
    EXPECT_EQ(Evaluate(users, SYS_clone, {CLONE_NEWUSER | CLONE_NEWNS}), Errno(EPERM));
    EXPECT_EQ(Evaluate(users, SYS_clone3, {}), Errno(ENOSYS));
    const auto both = SeccompFloor(1ull << SK_GRANT_USERNS | 1ull << SK_GRANT_MNTNS);
    EXPECT_EQ(Evaluate(both, SYS_clone3, {}), kAllow);
}

TEST(SeccompFloor, ForeignAbisAndQueries) {
    const auto code = SeccompFloor(0);
    EXPECT_EQ(Evaluate(code, SYS_read, {}, AUDIT_ARCH_I386), SECCOMP_RET_KILL_PROCESS);
#if defined(__x86_64__)
    EXPECT_EQ(Evaluate(code, SYS_read | 0x40000000, {}), Errno(ENOSYS));
#endif
    EXPECT_EQ(Evaluate(code, SYS_prlimit64, {0, 4, 0, 0x1000}), kAllow);
    EXPECT_EQ(Evaluate(code, SYS_prlimit64, {0, 4, 0x7fff00000000, 0}), Errno(0));
    EXPECT_EQ(Evaluate(code, SYS_prlimit64, {0, 7, 0x7fff00000000, 0}), kAllow);
    EXPECT_EQ(Evaluate(code, SYS_ioctl, {0, 0xdeadbeef00000000ull | TIOCSTI}), Errno(EPERM));
    EXPECT_EQ(Evaluate(code, SYS_ioctl, {0, TIOCGWINSZ}), kAllow);
    EXPECT_EQ(Evaluate(code, SYS_fcntl, {0, 1024 | 1ull << 32, 1}), Errno(EPERM));  // F_SETLEASE
    EXPECT_EQ(Evaluate(code, SYS_fcntl, {0, 1040, 0x1000}), Errno(EPERM));          // F_SETDELEG
    EXPECT_EQ(Evaluate(code, SYS_fcntl, {0, 1025}), kAllow);
}

TEST(SeccompFloor, SetIdBitsOfAModeThatCounts) {
    for (const auto& code : {SeccompFloor(0), SeccompFloor(~0ull)}) {
        EXPECT_EQ(Evaluate(code, SYS_fchmod, {3, 04755}), Errno(EPERM));
        EXPECT_EQ(Evaluate(code, SYS_fchmod, {3, 02755 | 1ull << 40}), Errno(EPERM));
        EXPECT_EQ(Evaluate(code, SYS_fchmod, {3, 01777}), kAllow);
        EXPECT_EQ(Evaluate(code, SYS_fchmodat, {0, 0, 02755}), Errno(EPERM));
        EXPECT_EQ(Evaluate(code, 452, {0, 0, 04755, 0}), Errno(EPERM));
        EXPECT_EQ(Evaluate(code, SYS_mknodat, {0, 0, 04755}), Errno(EPERM));
        EXPECT_EQ(Evaluate(code, SYS_openat, {0, 0, 0101, 04755}), Errno(EPERM));
        EXPECT_EQ(Evaluate(code, SYS_openat, {0, 0, 020200001, 04755}), Errno(EPERM));
        EXPECT_EQ(Evaluate(code, SYS_openat, {0, 0, 0101, 0755}), kAllow);
        // Without a file to be made the kernel ignores the mode, and so may the caller.
        EXPECT_EQ(Evaluate(code, SYS_openat, {0, 0, 0, 06755}), kAllow);
        EXPECT_EQ(Evaluate(code, SYS_openat, {0, 0, 0200000, 06755}), kAllow);
    }
    EXPECT_EQ(Evaluate(SeccompFloor(0), SYS_openat2, {}), kAllow);
    EXPECT_EQ(Evaluate(SeccompFloor(0, true), SYS_openat2, {}), Errno(ENOSYS));
    EXPECT_EQ(CompileSeccomp(1ull << SK_GRANT_IO_URING, "", true).status().code(),
              absl::StatusCode::kInvalidArgument);
}

TEST(SeccompDefault, AllowsWhatProgramsNeedAndNothingElse) {
    auto profile = DefaultProfile();
    ASSERT_TRUE(profile.ok()) << profile.status();
    for (long call : std::initializer_list<long>{SYS_read, SYS_execve, SYS_mmap, SYS_futex, SYS_clone,
                                                 SYS_seccomp, SYS_exit_group, 452l}) {
        EXPECT_EQ(Evaluate(*profile, call, {}), kAllow) << call;
    }
    for (long call : std::initializer_list<long>{SYS_vmsplice, SYS_migrate_pages, SYS_mbind, SYS_move_pages,
                                                 SYS_fanotify_init, SYS_adjtimex, 999l}) {
        EXPECT_EQ(Evaluate(*profile, call, {}), Errno(ENOSYS)) << call;
    }
    EXPECT_EQ(Evaluate(*profile, SYS_personality, {0xffffffff}), kAllow);
    EXPECT_EQ(Evaluate(*profile, SYS_personality, {0x40000}), Errno(ENOSYS));
}

TEST(SeccompOci, ReadsTheFormatOfTheSpecification) {
    auto profile = OciProfile(R"({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
        "architectures": ["SCMP_ARCH_X86_64"], "syscalls": [
        {"names": ["read", "fchmodat2", "s390_pci_mmio_read"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 8, "op": "SCMP_CMP_EQ"}]},
        {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}},
        {"names": ["ptrace"], "action": "SCMP_ACT_KILL_PROCESS"}]})");
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_EQ(Evaluate(*profile, SYS_read, {}), kAllow);
    EXPECT_EQ(Evaluate(*profile, 452, {}), kAllow);
    EXPECT_EQ(Evaluate(*profile, SYS_write, {}), Errno(EPERM));
    EXPECT_EQ(Evaluate(*profile, SYS_personality, {8}), kAllow);
    EXPECT_EQ(Evaluate(*profile, SYS_personality, {9}), Errno(EPERM));
    EXPECT_EQ(Evaluate(*profile, SYS_bpf, {}), Errno(EPERM));
    EXPECT_EQ(Evaluate(*profile, SYS_ptrace, {}), SECCOMP_RET_KILL_PROCESS);
}

TEST(SeccompOci, BadInputIsAnErrorWithItsReason) {
    const std::pair<const char*, const char*> cases[] = {
        {"", "seccomp profile: 1:1: not JSON"},
        {"[1]", "seccomp profile"},
        {"{\n  \"defaultAction\" \"x\"}", "2:19: not JSON: ':' is expected"},
        {"{\"a\": 1,}", "1:9: not JSON: a key"},
        {"{\"a\": \"b", "1:9: not JSON: the text has no end"},
        {"{} {}", "1:4: not JSON: nothing more"},
        {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscals": []})", "unknown key \"syscals\""},
        {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read"], "acton": "x"}]})",
         "unknown key \"acton\""},
        {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["unamee"], "action": "SCMP_ACT_ERRNO"}]})",
         "unknown system call \"unamee\""},
        {"{}", "defaultAction is missing"},
        {R"({"defaultAction": "SCMP_ACT_NOTIFY"})", "not supported"},
        {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [1]})", "no object"},
        {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"action": "SCMP_ACT_ERRNO"}]})", "no names"},
        {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ERRNO",
             "args": [{"index": 9, "op": "SCMP_CMP_EQ"}]}]})",
         "index 0 to 5"},
        {R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_ERRNO",
             "errnoRet": 70000}]})",
         "no errno"},
    };
    for (const auto& [text, words] : cases) {
        auto profile = OciProfile(text);
        ASSERT_FALSE(profile.ok()) << text;
        EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
        EXPECT_THAT(std::string(profile.status().message()), testing::HasSubstr(words));
    }
    EXPECT_FALSE(OciProfile(std::string(kMaxOciProfileBytes + 1, ' ')).ok());
    EXPECT_FALSE(OciProfile(std::string(100000, '[')).ok());
}

}  // namespace
}  // namespace stockade::launch
