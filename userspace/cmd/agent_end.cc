// The end of a sandbox: a violation's kill, the command's own end, and what is left to do.
#include <sys/epoll.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bpf/wire/kinds.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/cmd/agent.h"
#include "userspace/cmd/refusal_advice.h"
#include "userspace/cmd/shown_command.h"
#include "userspace/model/lifecycle.h"
#include "userspace/model/reason.h"

namespace stockade::cmd {
namespace {

// The record of a condemnation comes within milliseconds; later than this it was lost.
constexpr uint64_t kRecordWaitNs = 1'000'000'000;

// SIGSYS is how the kernel ends what made a system call that the filter kills for. No program of ours
// sees that call: the end is all that there is to tell.
v1::Refusal SeccompKill(uint64_t boot_ns) {
    v1::Refusal refusal;
    refusal.set_code(std::string(model::CodeName(SK_CODE_OTHER_LOCK)));
    refusal.set_reason("a system call that seccomp refuses");
    refusal.set_section("escape");
    refusal.set_verdict("kill-process");
    refusal.set_outcome("prevented");
    refusal.set_lock("seccomp");
    refusal.set_count(1);
    refusal.set_first_boot_ns(boot_ns);
    refusal.set_killed(true);
    return refusal;
}

// The first refusal that killed; one of `code` before all others. Null when none did.
const v1::Refusal* FirstKill(const v1::Summary& summary, absl::string_view code) {
    const v1::Refusal* first = nullptr;
    for (const v1::Refusal& refusal : summary.refusals()) {
        if (!refusal.killed()) continue;
        const bool better = first == nullptr || (refusal.code() == code && first->code() != code);
        const bool earlier = first != nullptr && refusal.first_boot_ns() < first->first_boot_ns() &&
                             (refusal.code() == code) == (first->code() == code);
        if (better || earlier) first = &refusal;
    }
    return first;
}

}  // namespace

// A record of the kernel that condemns.
void Agent::OnUrgent(const v1::Event& event) {
    Run* run = FindRun(event.sandbox().id());
    sandbox::Sandbox* sandbox = registry_.Find(event.sandbox().id());
    if (run == nullptr || sandbox == nullptr) return;
    if (sandbox->times.condemned_ns != 0) return;
    sandbox->times.condemned_ns = event.boot_ns() != 0 ? event.boot_ns() : BootNow();
    // kFailedPrecondition when it has ended meanwhile: then there is nothing left to kill.
    if (!registry_.Move(*sandbox, model::SandboxState::kCondemned).ok()) return;
    if (!BreakerAllows(*sandbox)) {
        run->held_back_ns = BootNow();
        ++counts_.kills_held_back;
        sandbox->conditions.push_back("Degraded/BreakerOpen");
        PublishStep(*sandbox, model::LIFECYCLE_DEGRADED,
                    absl::StrCat("breaker: more than ", options_.config.kills_per_minute,
                                 " kills a minute under this policy; condemned and refused, not killed yet"));
        LogError(run->id, ": condemned, but not killed yet: the breaker of its policy is open");
        return;
    }
    StartKill(*run, true);
}

// The record that condemns can be lost to a full ring; what the kernel keeps of the sandbox cannot. And a kill that
// found no descriptor is ordered again.
void Agent::WatchCondemned() {
    std::vector<v1::Event> missed;
    for (auto& [id, run] : runs_) {
        if (run->kill_owed) StartKill(*run, !run->ended);
        const sandbox::Sandbox* sandbox = registry_.Find(id);
        if (!run->released || run->ended || sandbox == nullptr || sandbox->times.condemned_ns != 0) continue;
        const StatusOr<sk_state> state =
            sensor_.ReadState({.slot = sandbox->slot, .generation = sandbox->generation});
        if (!state.ok() || state->condemned_ns == 0 || BootNow() - state->condemned_ns < kRecordWaitNs)
            continue;
        v1::Event event;
        event.set_boot_ns(state->condemned_ns);
        event.mutable_sandbox()->set_id(id);
        missed.push_back(std::move(event));
    }
    for (const v1::Event& event : missed) OnUrgent(event);
}

bool Agent::BreakerAllows(const sandbox::Sandbox& sandbox) {
    return breaker_.Allow(sandbox.info->policies.empty() ? "" : sandbox.info->policies.front().name,
                          BootNow());
}

// A condemned sandbox that makes no call is ended by nobody but us: its kill waits for its turn.
void Agent::KillHeldBack() {
    for (auto& [id, run] : runs_) {
        if (run->held_back_ns == 0) continue;
        const sandbox::Sandbox* sandbox = registry_.Find(id);
        if (!run->ended && !run->killing && (sandbox == nullptr || !BreakerAllows(*sandbox))) continue;
        run->held_for_ns = BootNow() - run->held_back_ns;
        run->held_back_ns = 0;
        if (!run->ended) StartKill(*run, true);
    }
}

void Agent::StartKill(Run& run, bool with_evidence) {
    if (run.killing || !run.cgroup.ok()) return;
    StatusOr<Fd> cgroup = Fd::Dup(run.cgroup.get());
    if (!cgroup.ok()) {
        if (!run.kill_owed) LogError(run.id, ": its kill has to wait: ", cgroup.status().message());
        run.kill_owed = true;
        return;
    }
    run.kill_owed = false;
    run.killing = true;
    respond::KillOrder order{.id = run.id,
                             .cgroup = *std::move(cgroup),
                             .options = {.freeze = sensor_.backend() == kernel::Backend::kLsm},
                             .evidence = nullptr,
                             .wait_pending = true};
    if (with_evidence) {
        run.evidence = std::make_shared<sandbox::Evidence>();
        // The thread reads the cgroup through a number that stays open as long as the order.
        order.evidence = [evidence = run.evidence, fd = order.cgroup.get(), sockets = keeper_ != nullptr](uint64_t deadline) {
            *evidence = sandbox::TakeEvidence(fd, deadline);
            if (sockets) evidence->sockets = sandbox::TakeSockets(*evidence, deadline);
        };
    }
    killer_->Start(std::move(order));
}

void Agent::OnKiller() {
    for (const respond::Killed& killed : killer_->Finished()) {
        if (Run* run = FindRun(killed.id)) OnKilled(*run, killed);
    }
}

void Agent::OnKilled(Run& run, const respond::Killed& killed) {
    sandbox::Sandbox* sandbox = registry_.Find(run.id);
    run.kill = killed.report.times;
    sandbox->kill_pending = killed.report.pending;
    if (!killed.report.status.ok()) LogError(run.id, ": kill: ", killed.report.status.message());
    if (killed.report.pending) {
        ++counts_.kills_pending;
    } else if (sandbox->times.condemned_ns != 0) {
        counts_.kill.ObserveSince(sandbox->times.condemned_ns, run.kill.empty_ns);
        if (run.kill_client_fd < 0 && run.evidence != nullptr) ++counts_.kills_policy;
    }
    PublishKilled(run, *sandbox, killed.report.pending);
    TellKillAction(run, *sandbox);
    if (run.kill_client_fd >= 0) {
        api::Message message;
        api::KillReply& reply = *message.mutable_kill_reply();
        reply.set_id(run.id);
        reply.set_pending(killed.report.pending);
        for (const int pid : killed.report.left) reply.add_left(pid);
        reply.mutable_times()->set_kill_asked(run.kill.kill_asked_ns);
        reply.mutable_times()->set_empty(run.kill.empty_ns);
        Send(run.kill_client_fd, message);
        if (!killed.report.pending) run.kill_client_fd = -1;
    }
    if (!killed.report.pending) run.killing = false;
    if (run.lingering) {
        if (!killed.report.pending) Remove(run);
        return;
    }
    // Without a shim there is nobody else to say that it has ended.
    if (!run.control.ok() && run.adopt_deadline_ns == 0) run.ended = true;
    if (killed.report.pending) OnPending(run, killed.report);
    if (run.ended) AskDrain(run);
}

// Nobody waits for tasks in state D: the end is told as it is, and they keep slot and cgroup.
void Agent::OnPending(Run& run, const respond::KillReport& report) {
    run.pending = absl::StrJoin(report.left, " ");
    if (run.ended || !run.control.ok()) return;
    api::Message message;
    message.mutable_shim_kill()->set_end("killed");
    message.mutable_shim_kill()->set_reason("it was killed, and its tasks do not end");
    (void)run.control.Send(message);  // a shim that is gone is seen by the loop
}

void Agent::OnEnded(Run& run, const api::ShimEnded& ended) {
    sandbox::Sandbox* sandbox = registry_.Find(run.id);
    run.ended = true;
    run.end = ended;
    sandbox->times.ended_ns = ended.boot_ns();
    if (run.killing && !sandbox->kill_pending) return;  // OnKilled goes on
    const StatusOr<bool> empty = respond::WaitEmpty(run.cgroup.get(), 0);
    if (sandbox->kill_pending || (empty.ok() && *empty)) {
        AskDrain(run);
    } else {
        StartKill(run, false);  // tasks that had entered from outside, or are on their way out
    }
}

void Agent::AskDrain(Run& run) {
    if (run.drain_asked) return;
    run.drain_asked = true;
    run.drain_target = hub_->RequestDrain();
}

// All records of the sandbox have gone through the path.
void Agent::Collect(Run& run) {
    std::string withhold;
    CloseBooks(run, &withhold);
    if (!run.control.ok()) return OnDestroyed(run, {}, {});
    api::Message message;
    message.mutable_shim_collected()->set_policy_kill(run.result.end() == "policy");
    message.mutable_shim_collected()->set_withhold(withhold);
    message.mutable_shim_collected()->set_reason(run.result.reason());
    if (!run.control.Send(message).ok()) OnShimGone(run);
}

void Agent::CloseBooks(Run& run, std::string* withhold) {
    run.collected = true;
    sandbox::Sandbox* sandbox = registry_.Find(run.id);
    (void)registry_.Move(*sandbox, model::SandboxState::kEmpty);
    const kernel::SlotRef ref{.slot = sandbox->slot, .generation = sandbox->generation};
    const StatusOr<sk_state> state = sensor_.ReadState(ref);
    v1::Summary summary = hub_->path().Finish(ref.slot, ref.generation, state.ok() ? &*state : nullptr);

    api::RunResult& result = run.result;
    result.set_exit_code(run.end.exit_code());
    result.set_end(run.end.end());
    result.set_reason(run.end.reason());
    if (run.end.end() == "signalled" && run.end.exit_code() == 128 + SIGSYS) {
        const v1::Refusal& refusal = *summary.add_refusals() = SeccompKill(run.end.boot_ns());
        result.set_reason(refusal.reason());
        result.set_code(refusal.code());
    }
    *withhold = JudgeEnd(run, summary, state.ok() ? &*state : nullptr);
    AdviseRefusals(run.policy, run.own_root, &summary);
    v1::Event event = Envelope(*sandbox);
    *event.mutable_summary() = summary;
    event.set_kind("summary");
    hub_->path().Publish(std::move(event));
    *result.mutable_summary() = std::move(summary);
}

std::string Agent::JudgeEnd(Run& run, const v1::Summary& summary, const sk_state* state) {
    if (run.end.end() == "rule") return "the sandbox was killed by a rule";
    // SK_CODE_CONDEMNED is the agent's own hand: `stockade kill`, a shim that was killed.
    const bool condemned =
        state != nullptr && state->condemned_ns != 0 && state->condemned_code != SK_CODE_CONDEMNED;
    const absl::string_view code = condemned ? model::CodeName(state->condemned_code) : "";
    const v1::Refusal* kill = FirstKill(summary, code);
    if (condemned && kill != nullptr && kill->code() != code) kill = nullptr;  // its record is missing
    // The command itself was killed for what it did: by kill-process, or because only a kill can deny here.
    const bool signalled = run.end.exit_code() == 137 && run.end.end() == "signalled";
    if (!condemned && !signalled) return "";
    if (!condemned && kill == nullptr) {
        const bool all_seen = state != nullptr && !run.adopted && summary.lost() + summary.suppressed() == 0;
        return all_seen ? "" : "it was killed, and the record that says by whom may be missing";
    }
    api::RunResult& result = run.result;
    result.set_exit_code(137);
    result.set_end("policy");
    // The violation names the object; the kernel's state only the code.
    result.set_reason(kill != nullptr ? kill->reason()
                                      : model::ReasonSentence(state->condemned_code, "a violation"));
    result.set_code(kill != nullptr ? kill->code() : std::string(code));
    if (condemned) registry_.Find(run.id)->times.condemned_ns = state->condemned_ns;
    return "the sandbox was killed by its policy";
}

void Agent::OnDestroyed(Run& run, const api::Removal& removal, const std::vector<std::string>& notes, const api::Outputs* outputs) {
    sandbox::Sandbox* sandbox = registry_.Find(run.id);
    sandbox->times.removed_ns = BootNow();
    api::RunResult& result = run.result;
    std::string withhold;
    // A shim that did not wait for our word has copied nothing.
    if (run.ended && !run.collected) CloseBooks(run, &withhold);
    if (result.end().empty()) {  // it failed before it ran
        result.set_exit_code(125);
        result.set_end("failed");
    }
    result.set_id(run.id);
    *result.mutable_removal() = removal;
    *result.mutable_attestation() = run.attestation;
    *result.mutable_labels() = run.labels;
    for (const std::string& note : notes) result.add_notes(note);
    if (outputs != nullptr) *result.mutable_outputs() = *outputs;
    if (run.held_back_ns != 0) run.held_for_ns = BootNow() - run.held_back_ns;
    if (run.held_for_ns != 0) {
        result.add_notes(absl::StrCat(
            "the breaker of its policy was open (kills_per_minute: ", options_.config.kills_per_minute,
            "): condemned and refused at once, its kill was held back for ", run.held_for_ns / 1'000'000,
            " ms"));
    }
    ++counts_.ends[result.end()];
    const bool lingers = Linger(run);
    if (lingers) {
        result.add_notes(absl::StrCat("kill pending: the kernel cannot end its tasks yet (state D): ",
                                      run.pending, "; they keep their slot and cgroup until then"));
    }
    api::Timeline& times = *result.mutable_times();
    times.set_created(sandbox->times.created_ns);
    times.set_attested(sandbox->times.attested_ns);
    times.set_started(sandbox->times.started_ns);
    times.set_condemned(sandbox->times.condemned_ns);
    times.set_freeze_asked(run.kill.freeze_asked_ns);
    times.set_frozen(run.kill.frozen_ns);
    times.set_evidence(run.kill.evidence_ns);
    times.set_kill_asked(run.kill.kill_asked_ns);
    times.set_empty(run.kill.empty_ns);
    times.set_ended(sandbox->times.ended_ns);
    times.set_removed(sandbox->times.removed_ns);
    if (run.evidence != nullptr && !run.killing) {
        for (const sandbox::ProcessEvidence& process : run.evidence->processes) {
            api::ProcessRow& row = *result.add_evidence();
            row.set_pid(process.pid);
            row.set_ppid(process.ppid);
            row.set_comm(process.comm);
            row.set_command(ShownCommand(process));
            row.set_state(std::string(1, process.state));
            row.set_start_boot_ns(process.start_boot_ns);
        }
    }
    PublishStep(*sandbox, model::LIFECYCLE_DESTROYED,
                removal.left_over().empty() ? "" : removal.left_over(0));
    if (run.evidence_open) FinishEvidence(run);
    if (!run.evidence_awaited || lingers) TellResult(run, lingers);
}

void Agent::TellResult(Run& run, bool lingers) {
    run.evidence_awaited = false;
    CheckBudget(run, *registry_.Find(run.id));
    Distribute(hub_->TakeEvents());  // the client's last event comes before its result
    if (const auto it = connections_.find(run.client_fd); it != connections_.end()) TellLost(*it->second);
    api::Message message;
    *message.mutable_run_result() = run.result;
    Send(run.client_fd, message);
    LetClientGo(run);
    if (!lingers) Remove(run);
}

// True while something of it is left: then slot, cgroup and uid stay its own until the killer says
// that it is empty.
bool Agent::Linger(Run& run) {
    if (!run.cgroup.ok()) return false;
    const StatusOr<bool> empty = respond::WaitEmpty(run.cgroup.get(), 0);
    if (!empty.ok() || *empty) return false;
    run.lingering = true;
    if (run.control.ok()) loop_->Forget(run.control.fd());
    run.control.Close();
    StartKill(run, false);  // where the killer is not at it already
    return true;
}

// A start that did not come to be. The shim cleans up after itself and says so.
void Agent::FailRun(Run& run, const std::string& reason) {
    run.result.set_exit_code(125);
    run.result.set_end("failed");
    run.result.set_reason(reason);
    if (!run.control.ok()) OnDestroyed(run, {}, {});
}

// The shim is gone: its sandbox dies with it, and what it would have removed is removed here.
void Agent::OnShimGone(Run& run) {
    loop_->Forget(run.control.fd());
    run.control.Close();
    if (run.collected || run.result.end() == "failed" || !run.cgroup.ok()) return OnDestroyed(run, {}, {});
    LogError(run.id, ": its shim was killed: ending the sandbox");
    run.ended = true;
    run.end.set_exit_code(137);
    run.end.set_end("shim");
    run.end.set_reason("the keeper of the sandbox was killed");
    if (sandbox::Sandbox* sandbox = registry_.Find(run.id); sandbox->slot != 0) {
        (void)sensor_.Condemn({.slot = sandbox->slot, .generation = sandbox->generation}, SK_CODE_CONDEMNED);
    }
    StartKill(run, false);
}

void Agent::Unbind(sandbox::Sandbox& sandbox) {
    if (sandbox.slot == 0) return;
    // Here, in one step with what ends it: until now it was counted among those that live, so the sum never falls.
    const StatusOr<sk_state> state =
        sensor_.ReadState({.slot = sandbox.slot, .generation = sandbox.generation});
    if (state.ok()) counts_.ended.Add(*state);
    dns_->End({.slot = sandbox.slot, .generation = sandbox.generation});
    const Status status = sensor_.FreeSlot({.slot = sandbox.slot, .generation = sandbox.generation});
    if (!status.ok()) LogError(sandbox.id(), ": free its slot: ", status.message());
    DropPolicy(sandbox.policy_index);
}

void Agent::LetClientGo(Run& run) {
    if (const auto it = connections_.find(run.client_fd); it != connections_.end()) {
        it->second->run_id.clear();
        it->second->run_events = false;
    }
    run.client_fd = -1;
}

void Agent::Remove(Run& run) {
    const std::string id = run.id;
    const bool abandoned = !run.control.ok() && run.cgroup.ok() && !run.pod;
    if (run.control.ok()) loop_->Forget(run.control.fd());
    if (sandbox::Sandbox* sandbox = registry_.Find(id)) {
        hub_->path().Forget(id, sandbox->slot, sandbox->generation);
        if (store_ != nullptr) {
            v1::Sandbox closed;
            model::ToProto(*sandbox->info, &closed);
            // What the next agent reads of it once more is known by these alone.
            closed.set_slot(sandbox->slot);
            closed.set_generation(sandbox->generation);
            store_->Destroyed(closed);
        }
        Unbind(*sandbox);
    }
    if (run.pod) ForgetPod(run);
    LetClientGo(run);
    if (const Status status = files_->Remove(id); !status.ok()) LogWarning(id, ": ", status.message());
    runs_.erase(id);
    registry_.Remove(id);
    if (abandoned) {
        const launch::Leftovers left = launch::CleanLeftovers(options_.home);
        for (const std::string& failed : left.failed) LogWarning("clean up: ", failed);
    }
    UpdateBusy();
}

}  // namespace stockade::cmd
