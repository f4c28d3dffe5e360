#include "userspace/guest/confine.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "userspace/base/errno.h"

namespace stockade::guest {
namespace {

struct Limit {
    __rlimit_resource_t resource;
    rlim_t value;
};
// NOFILE: ten of ours, and what QEMU opens of its own. FSIZE: no file grows under it, whatever it can open.
constexpr Limit kLimits[] = {{RLIMIT_CORE, 0}, {RLIMIT_NOFILE, 64}, {RLIMIT_FSIZE, 0}};
constexpr uint64_t kNamespaces =
    CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWCGROUP;

// All that the child needs, laid out before the clone: between clone and execve it may not allocate, since another thread
// of ours may have held the allocator's lock.
struct Order {
    std::vector<char*> argv;
    std::vector<int> fds;
    ConfineOptions options;
    int go = -1, starter = -1, errors = -1, null = -1;  // `starter`: the other end of `go`
};

[[noreturn]] void Fail(const char* step) {
    const char* error = strerrorname_np(errno);
    for (const char* part : {"confine: ", step, ": ", error == nullptr ? "?" : error, "\n"}) {
        (void)!write(2, part, strlen(part));  // nobody else could be told
    }
    _exit(125);
}

bool BindReadOnly(const char* from, const char* to, unsigned long flags) {
    return mount(from, to, nullptr, MS_BIND, nullptr) == 0 &&
           mount(nullptr, to, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | flags, nullptr) == 0;
}

// A tmpfs over /tmp in this mount namespace becomes the root.
void EnterEmptyRoot(bool kvm) {
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) Fail("make mounts private");
    if (mount("qemu", "/tmp", "tmpfs", MS_NOSUID, "mode=755,size=64k,nr_inodes=64") != 0)
        Fail("mount a root");
    if (chdir("/tmp") != 0) Fail("enter the root");
    for (const char* dir : {"usr", "proc", "dev", "old", "etc"}) {
        if (mkdir(dir, 0755) != 0) Fail("make the root's directories");
    }
    if (!BindReadOnly("/usr", "usr", MS_NODEV)) Fail("bind /usr");
    // As on any system since the two were merged; older ones are not supported.
    if (symlink("usr/lib", "lib") != 0 || symlink("usr/lib64", "lib64") != 0) Fail("link /lib");
    // The loader's index: without it libraries in folders of their own are not found.
    const int cache = open("etc/ld.so.cache", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (cache < 0 || close(cache) != 0 ||
        !BindReadOnly("/etc/ld.so.cache", "etc/ld.so.cache", MS_NODEV | MS_NOEXEC)) {
        Fail("bind /etc/ld.so.cache");
    }
    if (mknod("dev/null", S_IFCHR | 0666, makedev(1, 3)) != 0 || chmod("dev/null", 0666) != 0 ||
        mknod("dev/urandom", S_IFCHR | 0444, makedev(1, 9)) != 0 || chmod("dev/urandom", 0444) != 0) {
        Fail("make devices");
    }
    if (kvm && (mknod("dev/kvm", S_IFCHR | 0666, makedev(10, 232)) != 0 || chmod("dev/kvm", 0666) != 0))
        Fail("make /dev/kvm");
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) Fail("mount /proc");
    if (syscall(SYS_pivot_root, ".", "old") != 0 || umount2("/old", MNT_DETACH) != 0 || rmdir("/old") != 0)
        Fail("leave the old root");
    if (mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, nullptr) != 0)
        Fail("seal the root");
    if (chdir("/") != 0) Fail("enter the root");
}

void DropRights(const ConfineOptions& options) {
    for (const Limit& limit : kLimits) {
        const rlimit both{.rlim_cur = limit.value, .rlim_max = limit.value};
        if (setrlimit(limit.resource, &both) != 0) Fail("set limits");
    }
    for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) Fail("drop the bounding set");
    }
    // The system calls themselves: the C library's wrappers signal every thread that the starter had, and wait for them.
    if (syscall(SYS_setgroups, 0, nullptr) != 0 ||
        syscall(SYS_setresgid, options.gid, options.gid, options.gid) != 0 ||
        syscall(SYS_setresuid, options.uid, options.uid, options.uid) != 0) {
        Fail("become unprivileged");
    }
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, 2> none{};
    if (syscall(SYS_capset, &header, none.data()) != 0) Fail("drop capabilities");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) Fail("set no_new_privs");
}

[[noreturn]] void RunConfined(const Order& order) {
    // Out of the way of the numbers that are to be theirs, then there. O_CLOEXEC does not come along with dup2.
    // Ours of the starter's end would keep it open.
    if (close(order.starter) != 0) Fail("close the starter's end");
    const int base = kFirstFd + static_cast<int>(order.fds.size());
    if (dup2(order.errors, 2) < 0 || dup2(order.null, 0) < 0 || dup2(2, 1) < 0) Fail("set up stdio");
    std::array<int, 32> moved{};
    for (size_t i = 0; i < order.fds.size(); ++i) {
        moved[i] = fcntl(order.fds[i], F_DUPFD_CLOEXEC, base + 64);
        if (moved[i] < 0) Fail("move descriptors");
    }
    const int go = fcntl(order.go, F_DUPFD_CLOEXEC, base + 64);
    if (go < 0) Fail("move descriptors");
    for (size_t i = 0; i < order.fds.size(); ++i) {
        if (dup2(moved[i], kFirstFd + static_cast<int>(i)) < 0) Fail("number descriptors");
    }
    EnterEmptyRoot(order.options.kvm);
    DropRights(order.options);
    // Only now: a change of user clears it. Then the starter is asked whether it still lives: its end of the pipe is closed
    // where it does not.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) Fail("end with the starter");
    char byte = 0;
    if (read(go, &byte, 1) != 1) _exit(125);
    if (syscall(SYS_close_range, static_cast<unsigned>(base), ~0u, 0) != 0) Fail("close descriptors");
    char* env[] = {nullptr};
    execve(order.argv[0], order.argv.data(), env);
    Fail("execve");
}

StatusOr<Confined> Clone(const Order& order, Fd errors) {
    Confined confined;
    int pidfd = -1;
    clone_args args{};
    args.flags = kNamespaces | CLONE_PIDFD | (order.options.cgroup >= 0 ? CLONE_INTO_CGROUP : 0);
    args.pidfd = reinterpret_cast<uint64_t>(&pidfd);
    args.exit_signal = SIGCHLD;
    args.cgroup = order.options.cgroup >= 0 ? static_cast<uint64_t>(order.options.cgroup) : 0;
    const long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid < 0) return ErrnoStatus(errno, "clone into new namespaces");
    if (pid == 0) RunConfined(order);
    confined.pid = static_cast<pid_t>(pid);
    confined.pidfd = Fd(pidfd);
    confined.errors = std::move(errors);
    return confined;
}

StatusOr<std::pair<Fd, Fd>> MakePipe(int flags) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | flags) != 0) return ErrnoStatus(errno, "make a pipe");
    return std::pair(Fd(fds[0]), Fd(fds[1]));
}

}  // namespace

StatusOr<Confined> StartConfined(const std::vector<std::string>& command, const std::vector<int>& fds,
                                 const ConfineOptions& options) {
    if (options.uid == 0 || options.gid == 0) return absl::InvalidArgumentError("QEMU is never run as root");
    if (command.empty() || fds.size() > 32)
        return absl::InvalidArgumentError("no command, or more than 32 descriptors");
    Order order{.argv = {}, .fds = fds, .options = options};
    for (const std::string& word : command) order.argv.push_back(const_cast<char*>(word.c_str()));
    order.argv.push_back(nullptr);
    SK_ASSIGN_OR_RETURN(auto go, MakePipe(0));
    SK_ASSIGN_OR_RETURN(auto errors, MakePipe(O_NONBLOCK));
    SK_ASSIGN_OR_RETURN(const Fd null, Fd::Open("/dev/null", O_RDWR));
    order.go = go.first.get();
    order.starter = go.second.get();
    order.errors = errors.second.get();
    order.null = null.get();
    SK_ASSIGN_OR_RETURN(Confined confined, Clone(order, std::move(errors.first)));
    go.first.Reset();
    if (write(go.second.get(), "g", 1) != 1 && errno != EPIPE) {
        Status status = ErrnoStatus(errno, "let QEMU go");
        (void)EndConfined(confined, 10000);  // the first failure is the one to tell
        return status;
    }
    return confined;
}

StatusOr<int> EndConfined(Confined& confined, int timeout_ms) {
    // ESRCH: it has ended, and is waited for all the same.
    (void)syscall(SYS_pidfd_send_signal, confined.pidfd.get(), SIGKILL, nullptr, 0);
    pollfd fd{confined.pidfd.get(), POLLIN, 0};
    int rc;
    do {
        rc = poll(&fd, 1, timeout_ms);
    } while (rc < 0 && errno == EINTR);
    if (rc == 0) return absl::DeadlineExceededError("QEMU does not end: kill pending");
    int status = 0;
    if (waitpid(confined.pid, &status, 0) != confined.pid) return ErrnoStatus(errno, "wait for QEMU");
    confined.pid = -1;
    return status;
}

}  // namespace stockade::guest
