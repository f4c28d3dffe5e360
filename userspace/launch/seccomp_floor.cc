// What no profile lifts, only grants: refused by number or by the value of an argument.
//
// Written in BPF by hand and not with libseccomp, for two of its properties are in the way. It
// compares 64 bits where the kernel looks at 32 (an ioctl request, a socket family), so a caller
// could smuggle a value past a refusal in the upper half. And it cannot say "allow all but".
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <initializer_list>

#include "bpf/wire/policy.h"
#include "userspace/launch/seccomp.h"

namespace stockade::launch {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArch = AUDIT_ARCH_X86_64;
constexpr uint32_t kX32Bit = 0x40000000;
#elif defined(__aarch64__)
constexpr uint32_t kArch = AUDIT_ARCH_AARCH64;
constexpr uint32_t kX32Bit = 0;
#else
#error "the seccomp floor knows x86_64 and arm64"
#endif

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t Refuse(int error) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(error); }

// Numbers of the generic table that Debian 12's headers may lack.
constexpr uint32_t kNrOpenTreeAttr = 467;
constexpr uint32_t kNrStatmount = 457, kNrListmount = 458;
constexpr uint32_t kNrFchmodat2 = 452;
// Linux 6.16: coredump and namespace calls to come are unknown to the profile, hence ENOSYS.

// Type of a socket without SOCK_NONBLOCK and SOCK_CLOEXEC.
constexpr uint32_t kSocketTypeMask = 0xf;
constexpr uint32_t kProtoMptcp = 262, kProtoSctp = 132;
constexpr uint32_t kFamilyAlg = 38, kFamilyVsock = 40;
constexpr uint32_t kTiocLinux = 0x541c;
constexpr uint32_t kSetLease = 1024, kSetDelegation = 1040;  // F_SETLEASE; F_SETDELEG of Linux 6.19

constexpr uint32_t kSetIds = S_ISUID | S_ISGID;
// The flags of open that make a file, and with it look at the mode. Without the C library's
// O_DIRECTORY, which O_TMPFILE holds as well.
constexpr uint32_t kOpenMakes = O_CREAT | (O_TMPFILE & ~O_DIRECTORY);

constexpr uint32_t kNsUsers = CLONE_NEWUSER | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET |
                              CLONE_NEWCGROUP | 0x80u /* CLONE_NEWTIME */;
constexpr uint32_t kNsMounts = CLONE_NEWNS;

// Assembles one filter. Each block tests what is loaded and falls through when it does not apply.
class Floor {
  public:
    Floor(uint64_t grants, bool writable_binds) : grants_(grants), writable_binds_(writable_binds) {}

    std::vector<sock_filter> Build();

  private:
    bool Granted(sk_grant grant) const { return (grants_ >> grant & 1) != 0; }
    void Op(uint16_t code, uint32_t k, uint8_t jt = 0, uint8_t jf = 0) { code_.push_back({code, jt, jf, k}); }
    void LoadNumber() { Op(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)); }
    // The low half of an argument, which is all that the kernel reads of an int. Little-endian.
    void LoadArg(unsigned index) {
        Op(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * index));
    }
    void Return(uint32_t value) { Op(BPF_RET | BPF_K, value); }
    void ReturnIfEqual(uint32_t k, uint32_t value) {
        Op(BPF_JMP | BPF_JEQ | BPF_K, k, 0, 1);
        Return(value);
    }
    void RefuseCalls(bool lifted, int error, std::initializer_list<long> numbers) {
        if (lifted) return;
        for (long number : numbers) ReturnIfEqual(static_cast<uint32_t>(number), Refuse(error));
    }
    // Emits `body` to be run only for the call; the number is loaded again after it.
    template <typename Body>
    void ForCall(long number, Body body) {
        Op(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 0);
        size_t jump = code_.size() - 1;
        body();
        LoadNumber();
        code_[jump].jf = static_cast<uint8_t>(code_.size() - jump - 1);
    }
    void Modes();
    void Leases();
    void ModeArg(long number, unsigned mode, int flags = -1);
    void Numbers();
    void Namespaces();
    void Values();
    void Sockets();
    void InetSocket(uint32_t family);

    uint64_t grants_;
    bool writable_binds_;
    std::vector<sock_filter> code_;
};

// Refuses set-id bits in argument `mode`, where `flags` (an argument of open) make it count.
// Ends the filter: no other block of the floor is about these calls, and opens are frequent.
void Floor::ModeArg(long number, unsigned mode, int flags) {
    ForCall(number, [&] {
        if (flags >= 0) {
            LoadArg(static_cast<unsigned>(flags));
            Op(BPF_JMP | BPF_JSET | BPF_K, kOpenMakes, 1, 0);
            Return(kAllow);
        }
        LoadArg(mode);
        Op(BPF_JMP | BPF_JSET | BPF_K, kSetIds, 0, 1);
        Return(Refuse(EPERM));
        Return(kAllow);
    });
}

// A writable bind shows the caller's files as the sandbox's own. What the sandbox makes there
// belongs to the caller on the host, where the mount's nosuid is not: a set-id program among it
// would be the caller's, root's perhaps, for whoever starts it. mkdir drops these bits itself.
void Floor::Modes() {
    ModeArg(SYS_openat, 3, 2);
    ModeArg(SYS_fchmod, 1);
    ModeArg(SYS_fchmodat, 2);
    ModeArg(kNrFchmodat2, 2);
    ModeArg(SYS_mknodat, 2);
#if defined(__x86_64__)  // the generic table has only the calls with "at"
    ModeArg(SYS_open, 2, 1);
    ModeArg(SYS_creat, 1);
    ModeArg(SYS_chmod, 1);
    ModeArg(SYS_mknod, 1);
#endif
    // Its mode lies in memory. Programs that know it fall back to openat.
    if (writable_binds_) RefuseCalls(false, ENOSYS, {SYS_openat2});
}

// Whoever owns a file may lease it, read-only mounts and descriptors included: the host's next
// open of it for writing (or reading) would then wait for the sandbox, for
// /proc/sys/fs/lease-break-time seconds each.
void Floor::Leases() {
    ForCall(SYS_fcntl, [&] {
        LoadArg(1);
        ReturnIfEqual(kSetLease, Refuse(EPERM));
        ReturnIfEqual(kSetDelegation, Refuse(EPERM));
        Return(kAllow);
    });
}

void Floor::Numbers() {
    RefuseCalls(Granted(SK_GRANT_MOUNT), EPERM,
                {SYS_mount, SYS_umount2, SYS_pivot_root, SYS_open_tree, SYS_move_mount, SYS_fsopen,
                 SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, kNrOpenTreeAttr});
    RefuseCalls(false, EPERM,
                {kNrStatmount, kNrListmount, SYS_swapon, SYS_swapoff, SYS_reboot, SYS_acct, SYS_quotactl,
                 SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_vhangup, SYS_sethostname,
                 SYS_setdomainname, SYS_syslog, SYS_lookup_dcookie, SYS_nfsservctl});
    RefuseCalls(Granted(SK_GRANT_CHROOT), EPERM, {SYS_chroot});
    RefuseCalls(Granted(SK_GRANT_PTRACE), EPERM,
                {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise,
                 SYS_pidfd_getfd, SYS_kcmp});
    RefuseCalls(Granted(SK_GRANT_BPF), EPERM, {SYS_bpf});
    RefuseCalls(Granted(SK_GRANT_PERF_EVENT), EPERM, {SYS_perf_event_open});
    RefuseCalls(Granted(SK_GRANT_IO_URING), EPERM,
                {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register});
    RefuseCalls(Granted(SK_GRANT_KEYCTL), EPERM, {SYS_keyctl, SYS_add_key, SYS_request_key});
    RefuseCalls(Granted(SK_GRANT_MODULE), EPERM, {SYS_init_module, SYS_finit_module, SYS_delete_module});
    RefuseCalls(Granted(SK_GRANT_KEXEC), EPERM, {SYS_kexec_load, SYS_kexec_file_load});
    RefuseCalls(Granted(SK_GRANT_USERFAULTFD), EPERM, {SYS_userfaultfd});
    RefuseCalls(Granted(SK_GRANT_OPEN_BY_HANDLE), EPERM, {SYS_open_by_handle_at});
    RefuseCalls(Granted(SK_GRANT_SETNS), EPERM, {SYS_setns});
}

void Floor::Namespaces() {
    const bool users = Granted(SK_GRANT_USERNS), mounts = Granted(SK_GRANT_MNTNS);
    const uint32_t refused = (users ? 0 : kNsUsers) | (mounts ? 0 : kNsMounts);
    if (refused == 0) return;
    // Its flags lie in memory, which another thread can change after the look: told to be absent,
    // the C library falls back to clone.
    RefuseCalls(false, ENOSYS, {SYS_clone3});
    // In clone, 0x80 is part of the exit signal's byte and not CLONE_NEWTIME.
    ForCall(SYS_clone, [&] {
        LoadArg(0);
        Op(BPF_JMP | BPF_JSET | BPF_K, refused & ~0xffu, 0, 1);
        Return(Refuse(EPERM));
    });
    ForCall(SYS_unshare, [&] {
        LoadArg(0);
        Op(BPF_JMP | BPF_JSET | BPF_K, refused, 0, 1);
        Return(Refuse(EPERM));
    });
}

void Floor::Values() {
    // TIOCSTI types into the controlling terminal, TIOCLINUX pastes into the console.
    ForCall(SYS_ioctl, [&] {
        LoadArg(1);
        ReturnIfEqual(TIOCSTI, Refuse(EPERM));
        ReturnIfEqual(kTiocLinux, Refuse(EPERM));
    });
    // RLIMIT_CORE of 1 keeps a pipe handler of the host away, 0 does not: the limit stays, and
    // who wants to lower it is told that it is done.
    ForCall(SYS_prlimit64, [&] {
        LoadArg(1);
        Op(BPF_JMP | BPF_JEQ | BPF_K, RLIMIT_CORE, 0, 5);
        LoadArg(2);  // new_limit == NULL is a query; a pointer has bits in either half
        Op(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2);
        Op(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * 2 + 4));
        Op(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0);
        Return(Refuse(0));
    });
    ForCall(SYS_setrlimit, [&] {
        LoadArg(0);
        ReturnIfEqual(RLIMIT_CORE, Refuse(0));
    });
}

// inet: TCP, MPTCP and UDP, with the protocol named or left to the kernel.
void Floor::InetSocket(uint32_t family) {
    Op(BPF_JMP | BPF_JEQ | BPF_K, family, 0, 0);
    const size_t jump = code_.size() - 1;
    auto allow = [&](uint32_t type, std::initializer_list<uint32_t> protocols) {
        LoadArg(1);
        Op(BPF_ALU | BPF_AND | BPF_K, kSocketTypeMask);
        const auto skip = static_cast<uint8_t>(1 + 2 * protocols.size());
        Op(BPF_JMP | BPF_JEQ | BPF_K, type, 0, skip);
        LoadArg(2);
        for (uint32_t protocol : protocols) ReturnIfEqual(protocol, kAllow);
    };
    allow(SOCK_STREAM, {0, IPPROTO_TCP, kProtoMptcp});
    allow(SOCK_DGRAM, {0, IPPROTO_UDP});
    if (Granted(SK_GRANT_PING_SOCKET)) allow(SOCK_DGRAM, {IPPROTO_ICMP, IPPROTO_ICMPV6});
    if (Granted(SK_GRANT_SCTP)) {
        allow(SOCK_STREAM, {kProtoSctp});
        allow(SOCK_SEQPACKET, {0, kProtoSctp});
    }
    if (Granted(SK_GRANT_RAW_SOCKET)) {
        LoadArg(1);
        Op(BPF_ALU | BPF_AND | BPF_K, kSocketTypeMask);
        ReturnIfEqual(SOCK_RAW, kAllow);
    }
    Return(Refuse(EPERM));
    code_[jump].jf = static_cast<uint8_t>(code_.size() - jump - 1);
}

void Floor::Sockets() {
    if (Granted(SK_GRANT_OTHER_SOCKET)) return;
    Op(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0);
    Op(BPF_JMP | BPF_JA, 0);
    const size_t jump = code_.size() - 1;
    LoadArg(0);
    ReturnIfEqual(AF_UNIX, kAllow);
    InetSocket(AF_INET);
    LoadArg(0);
    InetSocket(AF_INET6);
    LoadArg(0);
    if (Granted(SK_GRANT_PACKET_SOCKET)) ReturnIfEqual(AF_PACKET, kAllow);
    if (Granted(SK_GRANT_VSOCK)) ReturnIfEqual(kFamilyVsock, kAllow);
    if (Granted(SK_GRANT_AF_ALG)) ReturnIfEqual(kFamilyAlg, kAllow);
    Op(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0);
    Return(Refuse(EPERM));
    LoadArg(2);
    ReturnIfEqual(0 /* NETLINK_ROUTE */, kAllow);
    Return(Granted(SK_GRANT_NETLINK) ? kAllow : Refuse(EPERM));
    code_[jump].k = static_cast<uint32_t>(code_.size() - jump - 1);
}

std::vector<sock_filter> Floor::Build() {
    Op(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
    Op(BPF_JMP | BPF_JEQ | BPF_K, kArch, 1, 0);
    Return(SECCOMP_RET_KILL_PROCESS);
    LoadNumber();
    if (kX32Bit != 0) {
        Op(BPF_JMP | BPF_JSET | BPF_K, kX32Bit, 0, 1);
        Return(Refuse(ENOSYS));
    }
    Modes();
    Leases();
    Numbers();
    Namespaces();
    Values();
    Sockets();
    Return(kAllow);
    return code_;
}

}  // namespace

std::vector<sock_filter> SeccompFloor(uint64_t grants, bool writable_binds) {
    return Floor(grants, writable_binds).Build();
}

}  // namespace stockade::launch
