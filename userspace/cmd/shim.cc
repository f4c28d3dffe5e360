#include "userspace/cmd/shim.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <csignal>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/cmd/shim_out.h"
#include "userspace/cmd/shim_spec.h"
#include "userspace/launch/dns_sockets.h"
#include "userspace/launch/native.h"

namespace stockade::cmd {
namespace {

using api::Message;
using api::Packet;

// The agent answers a created sandbox within milliseconds; this is for one that hangs.
constexpr uint64_t kGoWaitNs = 30'000'000'000;
// Draining the rings of a sandbox that flooded them takes the agent up to some seconds.
constexpr uint64_t kCollectWaitNs = 30'000'000'000;
// From SIGKILL to the last task's end. What is left then is in state D, and nobody knows for how long.
constexpr uint64_t kEndWaitNs = 10'000'000'000;
// From the agent's word that it kills to its kill. It looks at what runs before, which takes milliseconds.
constexpr uint64_t kAgentKillNs = 2'000'000'000;
// Waited for them once more when all else is done; the agent waits on.
constexpr int kLastWaitMs = 2000;
// Between two tries to reach a next agent.
constexpr int kReconnectMs = 50;

class Shim {
  public:
    Shim(Packet order, std::function<void()> named) : order_(std::move(order)), named_(std::move(named)) {
        control_ = api::Channel(order_.Take(api::FD_CONTROL));
    }
    int Run();

  private:
    enum class Phase { kWaitGo, kRunning, kEnded, kDone };
    const api::StartShim& start() const { return order_.message.start_shim(); }

    // Without a command: makes what does not depend on one, and waits. False when none came.
    bool AwaitCommand();
    Status MakeAhead();
    Status Build();
    void OnExec();
    void Loop();
    int PollTimeout() const;
    void OnDeadline();
    void OnControl();
    void HandleControl(const Message& message);
    void OnSignal(int number);
    void OnSession();
    void LoseAgent();
    void FindAgent();
    void End(const std::string& end, const std::string& reason);
    void AwaitKill(const std::string& end, const std::string& reason);
    void OnEnded(bool over);
    Status Destroy();
    void AskVerdict();
    void CopyOut();
    void Finish();
    void Fail(const Status& status);
    void Tell(const Message& message);
    void AddDns(std::vector<api::FdArg>* fds) const {
        if (!dns_.udp.ok()) return;
        fds->emplace_back(api::FD_DNS_UDP, dns_.udp.get());
        fds->emplace_back(api::FD_DNS_TCP, dns_.tcp.get());
    }
    void SetDeadline(uint64_t wait_ns) { deadline_ns_ = wait_ns == 0 ? 0 : BootNow() + wait_ns; }

    Packet order_;
    std::function<void()> named_;
    api::Channel control_;
    api::Channel session_;
    Fd out_;
    std::unique_ptr<launch::NativeSandbox> sandbox_;
    std::string unlimited_;   // controllers of its cgroup that are not there
    launch::DnsSockets dns_;  // kept for a next agent
    Phase phase_ = Phase::kWaitGo;
    uint64_t deadline_ns_ = 0;        // of the phase; 0 = none
    uint64_t agent_deadline_ns_ = 0;  // no agent: until when one is waited for; 0 = there is one
    bool over_ = true;                // nothing of it runs, or it never ran
    std::string end_;                 // why it was ended; empty = by itself
    std::string reason_;
    bool agent_kills_ = false;  // said so, and has not yet
    bool releasing_ = false;  // the command was let go, its execve is not through
    // Signals for a command that is not let go yet, by number; each once, as the kernel keeps pending ones.
    std::bitset<65> early_signals_;
    // Why nothing is copied from /out; only the agent knows whether its policy killed it.
    std::string withhold_ = "the agent's word on how it ended is missing";
    api::ShimEnded ended_;
    api::SessionEnded last_;
};

// Sends to the agent. A failure is the agent's end, which the next poll sees as well.
void Shim::Tell(const Message& message) {
    if (control_.ok() && !control_.Send(message).ok()) LoseAgent();
}

void Shim::Fail(const Status& status) {
    Message message;
    message.mutable_shim_failed()->set_error(std::string(status.message()));
    Tell(message);
    last_.set_id(start().id());
    last_.set_exit_code(125);
    last_.set_end("failed");
    last_.set_reason(std::string(status.message()));
}

Status Shim::MakeAhead() {
    launch::NativeSpec base;
    base.id = start().id();
    SK_ASSIGN_OR_RETURN(base.cgroup, MakeCgroup(start()));
    unlimited_ = base.cgroup.unlimited;
    SK_ASSIGN_OR_RETURN(sandbox_, launch::NativeSandbox::Prepare(std::move(base)));
    Message message;
    message.mutable_shim_started()->set_id(start().id());
    message.mutable_shim_started()->set_pid(getpid());
    return control_.Send(message);
}

bool Shim::AwaitCommand() {
    if (const Status status = MakeAhead(); !status.ok()) {
        Fail(status);
        return false;
    }
    while (true) {
        pollfd fds[] = {{.fd = control_.fd(), .events = POLLIN, .revents = 0},
                        {.fd = sandbox_->pidfd(), .events = POLLIN, .revents = 0}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR) return false;
        if (fds[1].revents != 0) return false;  // the agent sees the end of the channel
        if (fds[0].revents == 0) continue;
        StatusOr<std::optional<Packet>> packet = control_.TryReceive();
        if (!packet.ok()) return false;  // the agent is gone, or has no use for it
        if (!packet->has_value()) continue;
        if (!(*packet)->message.start_shim().has_run()) return false;
        order_ = *std::move(*packet);
        named_();
        return true;
    }
}

Status Shim::Build() {
    SK_ASSIGN_OR_RETURN(launch::NativeSpec spec, MakeSpec(order_));
    if (sandbox_ != nullptr) {
        SK_RETURN_IF_ERROR(sandbox_->Complete(std::move(spec)));
    } else {
        SK_ASSIGN_OR_RETURN(spec.cgroup, MakeCgroup(start()));
        unlimited_ = spec.cgroup.unlimited;
        SK_ASSIGN_OR_RETURN(sandbox_, launch::NativeSandbox::Create(std::move(spec)));
    }
    order_.fds.clear();  // the sandbox has its own copies
    Message message;
    api::ShimCreated& created = *message.mutable_shim_created();
    created.set_id(start().id());
    created.set_pid(sandbox_->pid());
    created.set_cgroup(start().id());
    if (sandbox_->in_kind() == launch::InKind::kCopied) {
        created.add_notes("/in is a copy: its file system cannot be idmapped");
    }
    if (!unlimited_.empty())
        created.add_notes(
            absl::StrCat("no cgroup limits for ", unlimited_, ": the controllers are not there"));
    std::vector<api::FdArg> fds = {{api::FD_PIDFD, sandbox_->pidfd()}};
    if (start().dns()) {
        SK_ASSIGN_OR_RETURN(dns_, launch::ListenForDns(sandbox_->host_address(), sandbox_->host_link()));
        created.set_dns_address(sandbox_->host_address());
        AddDns(&fds);
    }
    return control_.Send(message, fds);
}

// The command's execve is through, or nobody is left who could make it.
void Shim::OnExec() {
    releasing_ = false;
    const StatusOr<launch::ExecResult> exec = sandbox_->FinishRelease();
    if (!exec.ok()) return End("failed", std::string(exec.status().message()));
    Message message;
    api::ShimReleased& released = *message.mutable_shim_released();
    released.set_boot_ns(BootNow());
    released.set_started(exec->started);
    released.set_exit_status(exec->exit_status);
    released.set_stage(exec->stage);
    released.set_exec_errno(exec->error);
    Tell(message);
    if (!exec->started && end_.empty()) {
        reason_ = exec->error == 0
                      ? absl::StrCat(start().run().argv(0), ": was killed before its first instruction")
                      : absl::StrCat(start().run().argv(0), ": ", exec->stage, ": ",
                                     ErrnoStatus(exec->error, "cannot be run").message());
    }
    Message session;
    session.mutable_session_started()->set_id(start().id());
    std::vector<api::FdArg> fds;
    if (sandbox_->master() >= 0) fds.emplace_back(api::FD_PTY, sandbox_->master());
    (void)session_.Send(session, fds);  // a client that is gone is seen in the loop
}

// Kills the sandbox; its end is then seen at the pidfd.
void Shim::End(const std::string& end, const std::string& reason) {
    if (end_.empty()) {
        end_ = end;
        reason_ = reason;
    } else if (!agent_kills_) {
        return sandbox_->Kill();
    }
    agent_kills_ = false;
    SetDeadline(kEndWaitNs);
    sandbox_->Kill();
}

// The agent kills it, and does so itself so that it can look at it before. One that does not, or dies, does not save it.
void Shim::AwaitKill(const std::string& end, const std::string& reason) {
    if (!end_.empty()) return;
    end_ = end;
    reason_ = reason;
    agent_kills_ = true;
    SetDeadline(kAgentKillNs);
}

void Shim::LoseAgent() {
    control_.Close();
    if (agent_deadline_ns_ == 0) agent_deadline_ns_ = BootNow() + start().agent_wait_ns();
    if (agent_kills_ && phase_ == Phase::kRunning) End(end_, reason_);
}

// Looks for the next agent, and ends the sandbox when there was none for too long.
void Shim::FindAgent() {
    StatusOr<api::Channel> channel = api::Channel::Connect(start().socket_path());
    if (channel.ok() && phase_ != Phase::kWaitGo) {
        Message message;
        api::ShimHello& hello = *message.mutable_shim_hello();
        hello.set_id(start().id());
        hello.set_pid(getpid());
        hello.set_ended(phase_ == Phase::kEnded);
        if (phase_ == Phase::kEnded) *hello.mutable_last() = ended_;
        std::vector<api::FdArg> fds = {{api::FD_PIDFD, sandbox_->pidfd()}};
        if (dns_.udp.ok()) hello.set_dns_address(sandbox_->host_address());
        AddDns(&fds);
        if (channel->Send(message, fds).ok()) {
            control_ = *std::move(channel);
            agent_deadline_ns_ = 0;
            return;
        }
    }
    if (BootNow() < agent_deadline_ns_ && phase_ != Phase::kWaitGo) return;
    if (phase_ == Phase::kRunning) {
        End("agent", "no agent came back: the sandbox was ended");
    } else {
        if (phase_ == Phase::kWaitGo) Fail(absl::UnavailableError("the agent died during the start"));
        phase_ = Phase::kDone;
    }
}

void Shim::HandleControl(const Message& message) {
    if (message.has_shim_go() && phase_ == Phase::kWaitGo) {
        SetDeadline(start().run().timeout_ns());
        phase_ = Phase::kRunning;
        const Status status = sandbox_->StartRelease();
        releasing_ = status.ok();
        if (!status.ok()) return End("failed", std::string(status.message()));
        for (int number = 1; number < static_cast<int>(early_signals_.size()); ++number) {
            if (early_signals_[static_cast<size_t>(number)]) (void)sandbox_->Signal(number);
        }
    } else if (message.has_shim_abort()) {
        Fail(absl::FailedPreconditionError(message.shim_abort().reason()));
        phase_ = Phase::kDone;
    } else if (message.has_shim_kill() && phase_ == Phase::kRunning) {
        const auto end = message.shim_kill().by_agent() ? &Shim::AwaitKill : &Shim::End;
        (this->*end)(message.shim_kill().end(), message.shim_kill().reason());
    } else if (message.has_shim_collected() && phase_ == Phase::kEnded) {
        withhold_ = message.shim_collected().withhold();
        if (message.shim_collected().policy_kill()) {
            last_.set_exit_code(137);
            last_.set_end("policy");
            last_.set_reason(message.shim_collected().reason());
        }
        phase_ = Phase::kDone;
    }
}

void Shim::OnControl() {
    while (control_.ok() && phase_ != Phase::kDone) {
        StatusOr<std::optional<Packet>> packet = control_.TryReceive();
        if (!packet.ok()) return LoseAgent();
        if (!packet->has_value()) return;
        HandleControl((*packet)->message);
    }
}

// One that comes when the command has just ended has nobody to go to.
void Shim::OnSignal(int number) {
    if (phase_ == Phase::kRunning) (void)sandbox_->Signal(number);
    if (phase_ == Phase::kWaitGo && number > 0 && number < static_cast<int>(early_signals_.size()))
        early_signals_.set(static_cast<size_t>(number));
}

void Shim::OnSession() {
    while (true) {
        StatusOr<std::optional<Packet>> packet = session_.TryReceive();
        if (!packet.ok()) {
            session_.Close();
            if (phase_ == Phase::kRunning) End("client", "the client is gone");
            if (phase_ == Phase::kWaitGo) {
                Fail(absl::CancelledError("the client is gone"));
                phase_ = Phase::kDone;
            }
            return;
        }
        if (!packet->has_value()) return;
        const Message& message = (*packet)->message;
        if (message.has_signal()) OnSignal(message.signal().number());
        if (message.has_winch() && sandbox_->master() >= 0) {
            const winsize size{.ws_row = static_cast<unsigned short>(message.winch().rows()),
                               .ws_col = static_cast<unsigned short>(message.winch().columns()),
                               .ws_xpixel = 0,
                               .ws_ypixel = 0};
            (void)ioctl(sandbox_->master(), TIOCSWINSZ, &size);
        }
    }
}

// `over`: nothing of it runs. Else it was killed, and its tasks are not gone yet.
void Shim::OnEnded(bool over) {
    over_ = over;
    const StatusOr<int> status = over ? sandbox_->Wait() : 137;
    int exit_code = status.ok() ? *status : 125;
    const bool signalled = !over || sandbox_->signalled();
    if (!end_.empty()) exit_code = end_ == "failed" ? 125 : 137;
    ended_.set_exit_code(exit_code);
    ended_.set_end(!end_.empty() ? end_ : signalled ? "signalled" : "exited");
    ended_.set_boot_ns(BootNow());
    ended_.set_reason(reason_);
    last_.set_id(start().id());
    last_.set_exit_code(exit_code);
    last_.set_end(ended_.end());
    last_.set_reason(reason_);
    phase_ = Phase::kEnded;
    SetDeadline(kCollectWaitNs);
    Message message;
    *message.mutable_shim_ended() = ended_;
    Tell(message);
}

void Shim::OnDeadline() {
    deadline_ns_ = 0;
    if (phase_ == Phase::kRunning && agent_kills_) {
        End(end_, reason_);
    } else if (phase_ == Phase::kRunning && !end_.empty()) {
        OnEnded(false);
    } else if (phase_ == Phase::kRunning) {
        End("timeout", "the time given by --timeout is over");
    } else {
        if (phase_ == Phase::kWaitGo) Fail(absl::DeadlineExceededError("the agent does not answer"));
        phase_ = Phase::kDone;
    }
}

int Shim::PollTimeout() const {
    uint64_t wait_ms = agent_deadline_ns_ != 0 ? kReconnectMs : UINT64_MAX;
    if (deadline_ns_ != 0) {
        const uint64_t now = BootNow();
        wait_ms = std::min(wait_ms, now >= deadline_ns_ ? 0 : (deadline_ns_ - now) / 1'000'000 + 1);
    }
    return wait_ms == UINT64_MAX ? -1 : static_cast<int>(std::min<uint64_t>(wait_ms, 3'600'000));
}

void Shim::Loop() {
    SetDeadline(kGoWaitNs);
    while (phase_ != Phase::kDone) {
        // poll leaves negative descriptors alone.
        const bool alive = phase_ == Phase::kRunning || phase_ == Phase::kWaitGo;
        pollfd fds[] = {{.fd = control_.ok() ? control_.fd() : -1, .events = POLLIN, .revents = 0},
                        {.fd = session_.ok() ? session_.fd() : -1, .events = POLLIN, .revents = 0},
                        {.fd = alive ? sandbox_->pidfd() : -1, .events = POLLIN, .revents = 0},
                        {.fd = releasing_ ? sandbox_->exec_fd() : -1, .events = POLLIN, .revents = 0}};
        if (poll(fds, 4, PollTimeout()) < 0 && errno != EINTR) break;
        // Before the end, which may have come in the same round and is told after it.
        if (releasing_ && (fds[3].revents | fds[2].revents) != 0) OnExec();
        if (fds[1].revents != 0) OnSession();
        if (phase_ != Phase::kDone && fds[0].revents != 0) OnControl();
        if (fds[2].revents != 0 && phase_ == Phase::kRunning) OnEnded(true);
        if (fds[2].revents != 0 && phase_ == Phase::kWaitGo) {
            Fail(absl::AbortedError("the sandbox died before its start"));
            phase_ = Phase::kDone;
        }
        if (phase_ != Phase::kDone && agent_deadline_ns_ != 0) FindAgent();
        if (phase_ != Phase::kDone && deadline_ns_ != 0 && BootNow() >= deadline_ns_) OnDeadline();
    }
}

// Brings the files of /out to the caller's directory. Not after a kill by policy, nor where nobody
// can say that there was none: what a condemned tool wrote is not handed on as if it were a result.
void Shim::CopyOut() {
    if (!out_.ok() || sandbox_ == nullptr || sandbox_->out_fd() < 0 || last_.end() == "failed") return;
    if (!withhold_.empty()) {
        last_.add_notes(absl::StrCat("nothing was copied from /out: ", withhold_));
        return;
    }
    const StatusOr<launch::OutReport> report = CopyOutOf(*sandbox_, out_.get(), start().run());
    if (!report.ok()) {
        last_.add_notes(absl::StrCat("copy from /out: ", report.status().message()));
        return;
    }
    TellOutputs(*report, start().run().has_contract(), &last_);
}

// Without the client's word on the result nothing leaves /out.
void Shim::AskVerdict() {
    const api::Contract& contract = start().run().contract();
    if (contract.result_file().empty() || sandbox_ == nullptr || sandbox_->out_fd() < 0) return;
    if (last_.end() == "failed" || !withhold_.empty()) return;
    withhold_ = AskForVerdict(*sandbox_, contract, session_);
}

Status Shim::Destroy() {
    return over_ ? sandbox_->Destroy().status() : sandbox_->Destroy(kLastWaitMs).status();
}

// Removes the sandbox and tells both sides what was left.
void Shim::Finish() {
    api::Removal removal;
    removal.set_clean(true);
    if (sandbox_ != nullptr) {
        const Status destroyed = Destroy();
        removal.set_clean(destroyed.ok());
        if (!destroyed.ok()) removal.add_left_over(std::string(destroyed.message()));
        // They may be in the middle of a write.
        if (absl::IsDeadlineExceeded(destroyed)) withhold_ = "tasks of it could not be ended yet";
    }
    AskVerdict();
    CopyOut();
    Message message;
    api::ShimDestroyed& destroyed = *message.mutable_shim_destroyed();
    *destroyed.mutable_removal() = removal;
    if (last_.has_outputs()) *destroyed.mutable_outputs() = last_.outputs();
    destroyed.set_boot_ns(BootNow());
    *destroyed.mutable_notes() = last_.notes();
    Tell(message);
    *last_.mutable_removal() = removal;
    Message session;
    *session.mutable_session_ended() = last_;
    if (session_.ok()) (void)session_.Send(session);
}

int Shim::Run() {
    if (!start().has_run() && !AwaitCommand()) {
        Finish();
        return 0;
    }
    session_ = api::Channel(order_.Take(api::FD_SESSION));
    out_ = order_.Take(api::FD_OUT);
    if (const Status status = Build(); !status.ok()) {
        Fail(status);
    } else {
        Loop();
    }
    Finish();
    return 0;
}

}  // namespace

int RunShim(Packet order, std::function<void()> named) {
    // A write to a client that is gone must not end the sandbox's keeper.
    (void)signal(SIGPIPE, SIG_IGN);
    if (!order.message.has_start_shim()) return 1;
    return Shim(std::move(order), std::move(named)).Run();
}

}  // namespace stockade::cmd
