#include "userspace/launch/native.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <optional>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/launch/child_process.h"
#include "userspace/launch/native_check.h"
#include "userspace/launch/network.h"
#include "userspace/launch/root.h"

namespace stockade::launch {
namespace {

constexpr int kFailedStartKillMs = 5000;
constexpr int kKilledStatus = 128 + SIGKILL;

int ShellStatus(int wait_status) {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

int ExecStatus(const ChildMessage& message) {
    if (message.step != kExecve) return 125;
    return message.error == ENOENT ? 127 : 126;
}

class NativeSandboxImpl : public NativeSandbox {
  public:
    explicit NativeSandboxImpl(NativeSpec spec) : spec_(std::move(spec)) {}
    ~NativeSandboxImpl() override { (void)Destroy(kFailedStartKillMs); }

    Status Start();
    Status StartPrepared();
    Status Complete(NativeSpec spec) override;
    // Removes what is there, and adds to `why` what could not be.
    Status Undo(const Status& why);
    pid_t pid() const override { return child_.pid; }
    int pidfd() const override { return child_.pidfd.get(); }
    int master() const override { return tree_.master.get(); }
    InKind in_kind() const override { return tree_.in_kind; }
    int landlock_abi() const override { return landlock_abi_; }
    int out_fd() const override { return tree_.out.get(); }
    std::string host_address() const override { return slot_.host_address; }
    std::string host_link() const override { return slot_.link; }
    void Kill() override;
    Status StartRelease() override { return Go(kGoRelease); }
    int exec_fd() const override { return child_.exec.get(); }
    StatusOr<ExecResult> FinishRelease() override;
    Status Signal(int signo) override;
    StatusOr<int> Wait() override;
    bool signalled() const override { return signalled_; }
    StatusOr<DestroyReport> Destroy(int timeout_ms) override;

  private:
    Status MakeBase();
    Status MakeRest();
    Status Go(unsigned char order);
    void ReadExit();
    void ReapInit();
    Status CloseNetwork();

    NativeSpec spec_;
    RootTree tree_;
    ChildProcess child_;
    NetworkSlot slot_;
    std::unique_ptr<HostForwarder> forwarder_;
    int landlock_abi_ = 0;
    std::mutex go_mutex_;  // Signal comes from any thread
    std::optional<int> exit_status_;
    bool signalled_ = false;
    bool reaped_ = false;
    std::optional<DestroyReport> destroyed_;
    DestroyReport report_;
};

Status NativeSandboxImpl::MakeBase() {
    landlock_abi_ = LandlockAbi();
    if (spec_.egress == Egress::kVeth) {
        SK_ASSIGN_OR_RETURN(slot_, TakeNetworkSlot());
    }
    SK_ASSIGN_OR_RETURN(tree_, BuildBase(spec_, spec_.egress_dns ? slot_.host_address : ""));
    SK_ASSIGN_OR_RETURN(child_, StartChild(tree_, spec_.cgroup.dir.get()));
    return absl::OkStatus();
}

Status NativeSandboxImpl::Start() {
    SK_RETURN_IF_ERROR(MakeBase());
    return MakeRest();
}

Status NativeSandboxImpl::StartPrepared() {
    SK_RETURN_IF_ERROR(MakeBase());
    return WaitPrepared(child_, tree_);
}

Status NativeSandboxImpl::Complete(NativeSpec spec) {
    if (!child_.order.ok()) return absl::FailedPreconditionError("the sandbox has its command already");
    spec.cgroup = std::move(spec_.cgroup);
    const bool fits = FitsPrepared(spec) && spec.id == spec_.id;
    spec_ = std::move(spec);
    Status status =
        fits ? CheckSpec(spec_) : absl::InvalidArgumentError("no command for a sandbox made ahead");
    if (status.ok()) status = MakeRest();
    return status.ok() ? status : Undo(status);
}

Status NativeSandboxImpl::MakeRest() {
    Status ready = AddOrder(spec_, tree_);
    if (ready.ok()) ready = SendOrder(child_, spec_, tree_, landlock_abi_);
    if (ready.ok()) ready = WaitReady(child_, tree_, spec_.cwd);
    // Only the sandbox needs them from here on: its namespace holds them.
    tree_.root.Reset();
    tree_.terminal.Reset();
    tree_.mounts.clear();
    spec_.in.Reset();
    spec_.rootfs.Reset();
    spec_.binds.clear();
    SK_RETURN_IF_ERROR(ready);
    if (slot_.ok()) SK_RETURN_IF_ERROR(ConnectNetwork(slot_, child_.pidfd.get(), spec_.egress_dns));
    if (!spec_.host_ports.empty()) {
        SK_ASSIGN_OR_RETURN(forwarder_, HostForwarder::Create(child_.pidfd.get(), spec_.host_ports));
    }
    return absl::OkStatus();
}

Status NativeSandboxImpl::Go(unsigned char order) {
    std::lock_guard<std::mutex> lock(go_mutex_);
    if (!child_.go.ok()) return absl::FailedPreconditionError("the sandbox has been destroyed");
    ssize_t n;
    do {
        n = write(child_.go.get(), &order, 1);
    } while (n < 0 && errno == EINTR);
    return n == 1 ? absl::OkStatus() : ErrnoStatus(errno, "order the sandbox's init");
}

StatusOr<ExecResult> NativeSandboxImpl::FinishRelease() {
    ChildMessage message{};
    SK_ASSIGN_OR_RETURN(bool some, ReadMessage(child_.exec.get(), &message));
    child_.exec.Reset();
    ExecResult result;
    if (some) {
        result.error = message.error;
        result.stage = ChildStepName(message.step);
        result.exit_status = ExecStatus(message);
        return result;
    }
    // End of file is a successful execve, or the death of all who could have written.
    pollfd p{child_.pidfd.get(), POLLIN, 0};
    result.started = true;
    if (poll(&p, 1, 0) == 1) {
        ReadExit();
        if (signalled_ && exit_status_ == kKilledStatus) result.started = false;
        result.exit_status = result.started ? 0 : kKilledStatus;
        if (!result.started) result.stage = "killed";
    }
    return result;
}

Status NativeSandboxImpl::Signal(int signo) {
    if (signo <= 0 || signo > 64) return absl::InvalidArgumentError("no such signal");
    return Go(static_cast<unsigned char>(signo));
}

// After the end of the init: what it had to say of the command.
void NativeSandboxImpl::ReadExit() {
    if (exit_status_.has_value()) return;
    exit_status_ = kKilledStatus;
    signalled_ = true;
    ChildMessage message{};
    for (;;) {
        auto some = ReadMessage(child_.status.get(), &message);
        if (!some.ok() || !*some) return;
        if (message.kind != ChildMessage::kExited) continue;
        exit_status_ = ShellStatus(message.error);
        signalled_ = WIFSIGNALED(message.error);
    }
}

void NativeSandboxImpl::Kill() {
    // Both: the cgroup's reaches what entered from outside and needs no task of the sandbox to come to run, the
    // init's works where the cgroup's file cannot be opened. Its end is seen at the pidfd.
    if (spec_.cgroup.dir.ok()) (void)KillCgroup(spec_.cgroup.dir, 0);
    (void)syscall(SYS_pidfd_send_signal, child_.pidfd.get(), SIGKILL, nullptr, 0);
}

StatusOr<int> NativeSandboxImpl::Wait() {
    if (exit_status_.has_value()) return *exit_status_;
    pollfd p{child_.pidfd.get(), POLLIN, 0};
    while (poll(&p, 1, -1) < 0) {
        if (errno != EINTR) return ErrnoStatus(errno, "wait for the sandbox");
    }
    ReadExit();
    ReapInit();
    return *exit_status_;
}

void NativeSandboxImpl::ReapInit() {
    if (reaped_ || child_.pid < 0) return;
    while (waitpid(child_.pid, nullptr, 0) < 0) {
        if (errno != EINTR) break;  // ECHILD: the launcher ignores SIGCHLD, so nobody stays
    }
    reaped_ = true;
}

Status NativeSandboxImpl::Undo(const Status& why) {
    const auto destroyed = Destroy(kFailedStartKillMs);
    if (destroyed.ok()) return why;
    return Status(why.code(), absl::StrCat(why.message(), "; and then: ", destroyed.status().message()));
}

Status NativeSandboxImpl::CloseNetwork() {
    forwarder_.reset();
    return slot_.ok() ? DisconnectNetwork(slot_) : absl::OkStatus();
}

StatusOr<DestroyReport> NativeSandboxImpl::Destroy(int timeout_ms) {
    if (destroyed_.has_value()) return *destroyed_;
    {
        std::lock_guard<std::mutex> lock(go_mutex_);
        child_.go.Reset();
    }
    if (report_.kill_ns == 0) report_.kill_ns = BootNow();
    if (spec_.cgroup.dir.ok()) SK_RETURN_IF_ERROR(KillCgroup(spec_.cgroup.dir, timeout_ms));
    report_.empty_ns = BootNow();
    if (child_.pid >= 0) {
        ReapInit();
        ReadExit();
    }
    SK_RETURN_IF_ERROR(CloseNetwork());
    if (spec_.cgroup.parent.ok()) {
        SK_RETURN_IF_ERROR(RemoveCgroup(spec_.cgroup.parent, spec_.cgroup.name));
        spec_.cgroup.dir.Reset();
        spec_.cgroup.parent.Reset();
    }
    report_.removed_ns = BootNow();
    destroyed_ = report_;
    return report_;
}

}  // namespace

StatusOr<std::unique_ptr<NativeSandbox>> NativeSandbox::Create(NativeSpec spec) {
    Status valid = CheckSpec(spec);
    auto sandbox = std::make_unique<NativeSandboxImpl>(std::move(spec));
    Status status = valid.ok() ? sandbox->Start() : valid;
    if (status.ok()) return std::unique_ptr<NativeSandbox>(std::move(sandbox));
    return sandbox->Undo(status);
}

StatusOr<std::unique_ptr<NativeSandbox>> NativeSandbox::Prepare(NativeSpec base) {
    Status valid = FitsPrepared(base) ? CheckBase(base) : absl::InvalidArgumentError("more than a base");
    auto sandbox = std::make_unique<NativeSandboxImpl>(std::move(base));
    Status status = valid.ok() ? sandbox->StartPrepared() : valid;
    if (status.ok()) return std::unique_ptr<NativeSandbox>(std::move(sandbox));
    return sandbox->Undo(status);
}

bool FitsPrepared(const NativeSpec& spec) {
    const NativeSpec usual;
    return !spec.rootfs.ok() && spec.egress == usual.egress && !spec.egress_dns &&
           spec.out_max_bytes == usual.out_max_bytes && spec.tmp_max_bytes == usual.tmp_max_bytes;
}

}  // namespace stockade::launch
