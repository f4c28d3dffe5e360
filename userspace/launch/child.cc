#include "userspace/launch/child.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

// Where the init keeps its descriptors once all others are closed. While it waits for its order, the socket and the
// root have the places of what comes later.
enum Slot { kGo = 3, kStatus, kExec, kRuleset, kSignalFd, kSlotEnd };
constexpr int kOrderSocket = kRuleset, kRoot = kSignalFd;
// Descriptors are first lifted above all slots, so that none is overwritten while they are put
// in order. RLIMIT_NOFILE is at least 1024 wherever root runs; the plan lowers it afterwards.
constexpr int kLift = 128;

struct Received {
    const ChildPlan* plan = nullptr;
    int stdio[3] = {-1, -1, -1};
    int mounts[kMaxOrderMounts] = {};
};

void Send(int fd, ChildMessage::Kind kind, const StepError& what, int value) {
    ChildMessage message{kind, what.step, kind == ChildMessage::kExited ? value : what.error, what.index};
    // Nobody is there to be told when the launcher is gone; the pipe's end kills us.
    (void)!write(fd, &message, sizeof(message));
}

int Lift(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, kLift); }

// Puts what the wait needs into its slots and closes all else but the standard streams: what the launcher holds, its ends
// of our pipes among it, must end with the launcher.
StepError SettleToWait(const ChildBase& base) {
    const int from[] = {base.go_fd, base.status_fd, base.exec_fd, base.order_fd, base.root_fd};
    int lifted[kSlotEnd - kGo];
    for (int i = 0; i < kSlotEnd - kGo; ++i) {
        if ((lifted[i] = Lift(from[i])) < 0) return {kDescriptors, errno, i};
    }
    for (int slot = kGo; slot < kSlotEnd; ++slot) {
        if (dup3(lifted[slot - kGo], slot, O_CLOEXEC) < 0) return {kDescriptors, errno, slot};
    }
    if (SysCloseRange(kSlotEnd, ~0u, 0) != 0) return {kDescriptors, errno, 6};
    return {};
}

// Puts the command's streams and what the init keeps into their places and closes all else. `ruleset` may be -1.
StepError Settle(const int (&stdio)[3], int ruleset, int signal_fd) {
    for (int i = 0; i < 3; ++i) {
        if (dup2(stdio[i], i) < 0) return {kDescriptors, errno, 4};
    }
    // They may sit in a slot already: lift them first.
    int lifted_signal = Lift(signal_fd);
    int lifted_ruleset = ruleset < 0 ? -1 : Lift(ruleset);
    if (lifted_signal < 0 || (ruleset >= 0 && lifted_ruleset < 0)) return {kDescriptors, errno, 5};
    if (dup3(lifted_signal, kSignalFd, O_CLOEXEC) < 0) return {kDescriptors, errno, kSignalFd};
    if (ruleset < 0) {
        (void)close(kRuleset);  // an absent ruleset: whatever was there must not stay
    } else if (dup3(lifted_ruleset, kRuleset, O_CLOEXEC) < 0) {
        return {kDescriptors, errno, kRuleset};
    }
    if (SysCloseRange(kSlotEnd, ~0u, 0) != 0) return {kDescriptors, errno, 6};
    return {};
}

StepError Loopback() {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return {kLoopback, errno, 0};
    ifreq request{};
    memcpy(request.ifr_name, "lo", 3);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    int rc = ioctl(fd, SIOCSIFFLAGS, &request);
    int error = errno;
    close(fd);
    return rc == 0 ? StepError{} : StepError{kLoopback, error, 1};
}

// Default dispositions for all: the launcher's handlers and ignores are not the command's.
void ResetSignals() {
    for (int signo = 1; signo < NSIG; ++signo) (void)signal(signo, SIG_DFL);
}

StepError MakeSignalFd(int* fd) {
    sigset_t all, child;
    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    ResetSignals();
    if (sigprocmask(SIG_SETMASK, &all, nullptr) != 0) return {kSignals, errno, 0};
    *fd = signalfd(-1, &child, SFD_CLOEXEC);
    return *fd < 0 ? StepError{kSignals, errno, 1} : StepError{};
}

// The path to execute, found before the label so that the search is no event. Null: none, and
// `error` says why, as a shell would.
const char* FindCommand(const ChildPlan& plan, int* error) {
    *error = ENOENT;
    for (const char* const* path = plan.candidates; *path != nullptr; ++path) {
        struct stat st;
        if (stat(*path, &st) != 0) {
            if (errno == EACCES) *error = EACCES;
            continue;
        }
        if (!S_ISREG(st.st_mode) || access(*path, X_OK) != 0) {
            *error = EACCES;
            continue;
        }
        return *path;
    }
    return nullptr;
}

StepError MakeBase(const ChildBase& base) {
    StepError failed;
    if (unshare(CLONE_NEWCGROUP) != 0) return {kCgroupNamespace, errno, 0};
    if (sethostname(base.host_name, strlen(base.host_name)) != 0) return {kHostName, errno, 0};
    if (failed = Loopback(); !failed.ok()) return failed;
    if (failed = EnterRoot(base); !failed.ok()) return failed;
    if (failed = LimitKernelMemory(); !failed.ok()) return failed;
    if (failed = MaskProc(); !failed.ok()) return failed;
    if (setsid() < 0) return {kSession, errno, 0};
    umask(022);
    return {};
}

// The launcher's end without an order ends us, and with us all of the sandbox.
StepError ReceiveOrder(const ChildBase& base, Received* received) {
    constexpr size_t kMaxFds = kOrderFixedFds + kMaxOrderMounts;
    ChildOrder order{};
    iovec bytes{&order, sizeof(order)};
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t n;
    do {
        n = recvmsg(kOrderSocket, &message, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return {kOrder, errno, 0};
    if (n == 0) _exit(125);
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (n != sizeof(order) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || header == nullptr ||
        header->cmsg_type != SCM_RIGHTS || order.plan_bytes < sizeof(ChildPlan) ||
        order.plan_bytes > kPlanRoom) {
        return {kOrder, EBADMSG, 1};
    }
    int fds[kMaxFds];
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), count * sizeof(int));
    void* at = mmap(base.plan_at, order.plan_bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, fds[0], 0);
    if (at == MAP_FAILED) return {kOrder, errno, 2};
    received->plan = static_cast<const ChildPlan*>(at);
    if (count != kOrderFixedFds + received->plan->mount_count) return {kOrder, EBADMSG, 3};
    memcpy(received->stdio, fds + 1, sizeof(received->stdio));
    memcpy(received->mounts, fds + kOrderFixedFds, (count - kOrderFixedFds) * sizeof(int));
    return {};
}

StepError ObeyOrder(const ChildBase& base, const Received& received) {
    const ChildPlan& plan = *received.plan;
    StepError failed;
    for (size_t i = 0; i < plan.mount_count; ++i) {
        failed = Attach(kRoot, {received.mounts[i], plan.targets[i]}, base.mount_count + i);
        if (!failed.ok()) return failed;
    }
    mount_attr attr{};
    attr.attr_set = MOUNT_ATTR_RDONLY;
    if (SysMountSetattr(kRoot, "", AT_EMPTY_PATH, &attr) != 0) return {kReadOnlyRoot, errno, 0};
    // The launcher may have been called otherwise while it had no command.
    (void)prctl(PR_SET_NAME, "stockade-shim");  // fails for no name
    int signal_fd = -1, ruleset = -1;
    if (failed = MakeSignalFd(&signal_fd); !failed.ok()) return failed;
    if (failed = DropPrivileges(plan); !failed.ok()) return failed;
    if (chdir(plan.cwd) != 0) return {kWorkingDirectory, errno, 0};
    if (failed = MakeRuleset(plan, &ruleset); !failed.ok()) return failed;
    return Settle(received.stdio, ruleset, signal_fd);
}

StepError LockCommand(const ChildPlan& plan) {
    if (plan.landlock_fs != 0 || plan.landlock_scoped != 0) {
        if (syscall(kNrLandlockRestrict, kRuleset, 0) != 0) return {kLandlock, errno, 0};
    }
    // The floor first: it lets the second filter be installed, which the profile need not.
    if (prctl(PR_SET_SECCOMP, 2 /* SECCOMP_MODE_FILTER */, &plan.floor) != 0) return {kSeccomp, errno, 0};
    if (prctl(PR_SET_SECCOMP, 2, &plan.profile) != 0) return {kSeccomp, errno, 1};
    return {};
}

[[noreturn]] void RunCommand(const ChildPlan& plan, const char* path, int find_error) {
    StepError failed;
    if (setsid() < 0) failed = {kSession, errno, 1};
    if (failed.ok() && plan.tty && ioctl(0, TIOCSCTTY, 0) != 0) failed = {kTerminal, errno, 0};
    if (failed.ok() && path == nullptr) failed = {kExecve, find_error, 0};
    if (failed.ok()) failed = BecomeCommand(plan);
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, nullptr);
    if (failed.ok()) failed = LockCommand(plan);
    if (failed.ok()) {
        execve(path, plan.argv, plan.envp);
        failed = {kExecve, errno, 0};
    }
    Send(kExec, ChildMessage::kFailed, failed, 0);
    _exit(failed.step == kExecve ? (failed.error == ENOENT ? 127 : 126) : 125);
}

// Reaps everything; returns true when the command was among it.
bool Reap(pid_t command, int* status) {
    bool ended = false;
    for (;;) {
        int one = 0;
        pid_t pid = waitpid(-1, &one, WNOHANG);
        if (pid <= 0) return ended;
        if (pid == command) {
            *status = one;
            ended = true;
        }
    }
}

pid_t Release(const ChildPlan& plan, const char* path, int find_error) {
    // Raw: fork(3) takes locks of the allocator that a thread of the launcher may have held.
    clone_args args{};
    args.exit_signal = SIGCHLD;
    pid_t pid = static_cast<pid_t>(SysClone3(&args));
    if (pid == 0) RunCommand(plan, path, find_error);
    if (pid < 0) {
        StepError failed{kFork, errno, 0};
        Send(kExec, ChildMessage::kFailed, failed, 0);
        Send(kStatus, ChildMessage::kFailed, failed, 0);
        _exit(125);
    }
    close(kExec);  // its end of file tells the launcher that execve has succeeded
    if (const StepError failed = KeepToSignals(); !failed.ok()) {
        Send(kStatus, ChildMessage::kFailed, failed, 0);
        _exit(125);
    }
    return pid;
}

[[noreturn]] void RunInit(const ChildPlan& plan) {
    int find_error = 0;
    const char* path = FindCommand(plan, &find_error);
    if (const StepError failed = BecomeKeeper(); !failed.ok()) {
        Send(kStatus, ChildMessage::kFailed, failed, 0);
        _exit(125);
    }
    Send(kStatus, ChildMessage::kReady, {}, 0);
    pid_t command = -1;
    pollfd fds[2] = {{kGo, POLLIN, 0}, {kSignalFd, POLLIN, 0}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) _exit(125);
        if (fds[0].revents != 0) {
            unsigned char order;
            ssize_t n = read(kGo, &order, 1);
            if (n == 0) _exit(125);  // the launcher is gone, and with us all of the namespace goes
            if (n == 1 && order == kGoRelease && command < 0) command = Release(plan, path, find_error);
            if (n == 1 && order != kGoRelease && command > 0) (void)kill(command, order);
        }
        if (fds[1].revents != 0) {
            signalfd_siginfo info;
            (void)!read(kSignalFd, &info, sizeof(info));
            int status = 0;
            if (Reap(command, &status)) {
                Send(kStatus, ChildMessage::kExited, {}, status);
                _exit(0);
            }
        }
    }
}

}  // namespace

const char* ChildStepName(int32_t step) {
    static constexpr const char* kNames[] = {
#define X(name, words) words,
        SK_CHILD_STEPS(X)
#undef X
    };
    bool known = step >= 0 && static_cast<size_t>(step) < sizeof(kNames) / sizeof(kNames[0]);
    return known ? kNames[step] : "an unknown step";
}

void RunChild(const ChildBase& base) {
    StepError failed = MakeBase(base);
    if (failed.ok()) failed = SettleToWait(base);
    if (!failed.ok()) {
        Send(base.status_fd, ChildMessage::kFailed, failed, 0);
        // SettleToWait may have moved it already; both places are tried.
        if (failed.step == kDescriptors) Send(kStatus, ChildMessage::kFailed, failed, 0);
        _exit(125);
    }
    Send(kStatus, ChildMessage::kPrepared, {}, 0);
    Received received;
    failed = ReceiveOrder(base, &received);
    if (failed.ok()) failed = ObeyOrder(base, received);
    if (!failed.ok()) {
        Send(kStatus, ChildMessage::kFailed, failed, 0);
        _exit(125);
    }
    RunInit(*received.plan);
}

}  // namespace stockade::launch
