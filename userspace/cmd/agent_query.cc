// What clients ask beside running something.
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bpf/wire/record.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/cmd/agent.h"
#include "userspace/cmd/design_record.h"
#include "userspace/cmd/shown_command.h"
#include "userspace/decode/redact.h"
#include "userspace/model/lifecycle.h"

namespace stockade::cmd {
namespace {

// What a list shows of a command line, and what `inspect` does: an argv may have a MiB.
constexpr size_t kMaxPsCommandBytes = 256;
constexpr size_t kMaxInspectCommandBytes = 64 << 10;
// Rows in one answer. A row with all labels at their bounds has 12 KiB.
constexpr size_t kMaxPsReplyBytes = 64 << 10;
// So long the rings keep what a client with a full socket has not taken; a reader that is merely busy is back
// sooner, and one that has stopped must not cost the others room.
constexpr uint64_t kMaxBlockedNs = 200'000'000;

bool Wants(const api::Events& filter, const StreamedEvent& event) {
    if (!filter.session().empty() && filter.session() != event.session) return false;
    if (!filter.sandbox().empty() && event.sandbox.rfind(filter.sandbox(), 0) != 0) return false;
    return filter.kinds().empty() ||
           std::find(filter.kinds().begin(), filter.kinds().end(), event.kind) != filter.kinds().end();
}

api::Condition ToApi(const Condition& condition) {
    api::Condition out;
    out.set_type(condition.type);
    out.set_status(condition.holds ? "True" : "False");
    out.set_reason(condition.reason);
    out.set_message(condition.message);
    return out;
}

}  // namespace

const char* Agent::BackendName() const {
    return sensor_.backend() == kernel::Backend::kLsm ? "lsm" : "signal";
}

bool Agent::MaySee(const Connection& connection, const std::string& sandbox_id) {
    if (connection.uid == 0) return true;
    const sandbox::Sandbox* sandbox = registry_.Find(sandbox_id);
    return sandbox != nullptr && sandbox->owner_uid == connection.uid;
}

StatusOr<sandbox::Sandbox*> Agent::FindFor(int fd, const std::string& text) {
    const Connection& connection = *connections_[fd];
    if (connection.uid == 0) return registry_.FindByPrefix(text);
    // What is not theirs does not exist for them, nor does it make a beginning ambiguous.
    std::vector<sandbox::Sandbox*> found;
    for (sandbox::Sandbox* sandbox : registry_.All()) {
        const bool fits = !text.empty() &&
                          (sandbox->id().rfind(text, 0) == 0 || sandbox->id().rfind("sbx_" + text, 0) == 0);
        if (fits && sandbox->owner_uid == connection.uid) found.push_back(sandbox);
    }
    if (found.empty()) return absl::NotFoundError(absl::StrCat("no sandbox ", text, " of yours"));
    if (found.size() > 1)
        return absl::InvalidArgumentError(absl::StrCat(text, " is the beginning of several sandboxes"));
    return found.front();
}

api::SandboxRow Agent::Row(sandbox::Sandbox& sandbox, size_t max_command_bytes) {
    api::SandboxRow row;
    row.set_id(sandbox.id());
    row.set_state(sandbox.kill_pending ? "kill-pending" : std::string(model::ToString(sandbox.state)));
    const model::Labels& labels = sandbox.info->labels;
    row.mutable_labels()->set_session(labels.session);
    row.mutable_labels()->set_tool(labels.tool);
    row.mutable_labels()->set_trace(labels.trace);
    row.mutable_labels()->mutable_free()->insert(labels.free.begin(), labels.free.end());
    if (!sandbox.info->policies.empty()) {
        row.set_policy(sandbox.info->policies.front().name);
        row.set_policy_hash(sandbox.info->policies.front().hash);
    }
    row.set_mode(sandbox.mode);
    row.set_backend(BackendName());
    row.set_runtime(sandbox.info->runtime);
    row.set_pid(sandbox.init_pid);
    row.set_age_ns(BootNow() - sandbox.times.created_ns);
    row.set_owner_uid(sandbox.owner_uid);
    const std::vector<Condition> conditions = SandboxConditions(sandbox, BackendName());
    for (const Condition& condition : conditions) *row.add_conditions() = ToApi(condition);
    row.set_headline(Headline(conditions));
    std::string command;
    for (const std::string& arg : sandbox.argv) {
        if (command.size() > max_command_bytes) break;
        absl::StrAppend(&command, command.empty() ? "" : " ", arg);
    }
    row.set_command_cut(command.size() > max_command_bytes);
    row.set_command(command.substr(0, max_command_bytes));
    const StatusOr<sk_state> state =
        sandbox.slot == 0 ? absl::NotFoundError("not bound")
                          : sensor_.ReadState({.slot = sandbox.slot, .generation = sandbox.generation});
    if (state.ok()) {
        row.set_tasks(state->tasks);
        uint64_t violations = 0;
        for (const uint64_t count : state->violations) violations += count;
        row.set_violations(violations);
    }
    return row;
}

void Agent::AnswerPs(int fd, const std::string& after) {
    api::Message message;
    api::PsReply& reply = *message.mutable_ps_reply();
    size_t bytes = 0;
    for (sandbox::Sandbox* sandbox : registry_.All()) {
        if (sandbox->id() <= after || !MaySee(*connections_[fd], sandbox->id()))
            continue;  // ids sort by their age, as the list does
        if (bytes >= kMaxPsReplyBytes) {
            reply.set_more(true);
            break;
        }
        api::SandboxRow& row = *reply.add_rows();
        row = Row(*sandbox, kMaxPsCommandBytes);
        bytes += row.ByteSizeLong();
    }
    Send(fd, message);
}

void Agent::AnswerInspect(int fd, const std::string& id) {
    const StatusOr<sandbox::Sandbox*> found = FindFor(fd, id);
    if (!found.ok()) return SendError(fd, found.status());
    sandbox::Sandbox& sandbox = **found;
    Run* run = FindRun(sandbox.id());
    api::Message message;
    api::InspectReply& reply = *message.mutable_inspect_reply();
    *reply.mutable_row() = Row(sandbox, kMaxInspectCommandBytes);
    reply.set_cgroup(sandbox.cgroup);
    if (run != nullptr && !run->adopted) {
        RecordFacts facts{.policy = &run->policy, .policy_hash = run->attestation.policy_hash(), .contract = nullptr, .contract_sha256 = "", .config = &options_.config,
                          .command = reply.row().command(), .uid = sandbox.uid, .session = run->labels.session(), .tool = run->labels.tool(), .backend = BackendName()};
        for (const auto& [name, value] : MakeDesignRecord(facts)) {
            api::RecordRow& row = *reply.add_record();
            row.set_name(name);
            row.set_value(value);
        }
        if (!run->contract_name.empty()) reply.mutable_record(1)->set_value(absl::StrCat("contract ", run->contract_name, " sha256:", run->contract_sha256));
    }
    reply.set_slot(sandbox.slot);
    reply.set_generation(sandbox.generation);
    reply.set_shim_pid(sandbox.shim_pid);
    reply.mutable_times()->set_created(sandbox.times.created_ns);
    reply.mutable_times()->set_attested(sandbox.times.attested_ns);
    reply.mutable_times()->set_started(sandbox.times.started_ns);
    reply.mutable_times()->set_condemned(sandbox.times.condemned_ns);
    if (run != nullptr) {
        *reply.mutable_attestation() = run->attestation;
        if (run->cgroup.ok()) {
            // As bounded as evidence of a kill: nobody waits longer for a list of processes.
            const sandbox::Evidence evidence =
                sandbox::TakeEvidence(run->cgroup.get(), BootNow() + 20'000'000);
            for (const sandbox::ProcessEvidence& process : evidence.processes) {
                api::ProcessRow& row = *reply.add_processes();
                row.set_pid(process.pid);
                row.set_ppid(process.ppid);
                row.set_comm(process.comm);
                row.set_command(ShownCommand(process));
                row.set_state(std::string(1, process.state));
                row.set_start_boot_ns(process.start_boot_ns);
            }
        }
    }
    Send(fd, message);
}

void Agent::AnswerVersion(int fd) {
    api::Message message;
    api::VersionReply& reply = *message.mutable_version_reply();
    reply.set_version(kVersion);
    reply.set_protocol(api::kProtocolVersion);
    reply.set_abi(SK_RECORD_ABI);
    reply.set_backend(BackendName());
    for (const Condition& condition : AgentConditions()) *reply.add_conditions() = ToApi(condition);
    reply.set_pid(getpid());
    reply.set_sandboxes(static_cast<uint32_t>(registry_.size()));
    reply.set_transient(options_.idle_exit_ns != 0);
    Send(fd, message);
}

void Agent::KillOnRequest(int fd, const api::Kill& kill) {
    const StatusOr<sandbox::Sandbox*> found = FindFor(fd, kill.id());
    if (!found.ok()) return SendError(fd, found.status());
    sandbox::Sandbox& sandbox = **found;
    Run* run = FindRun(sandbox.id());
    if (run == nullptr || !run->cgroup.ok() || sandbox.slot == 0) {
        return SendError(fd, absl::FailedPreconditionError("the sandbox is only being made: try again"));
    }
    if (run->killing || run->ended) {
        return SendError(fd, absl::FailedPreconditionError("the sandbox is ending already"));
    }
    std::string reason = kill.reason();
    (void)decode::Redactor::Default().RedactText(&reason);  // whether it had a secret nobody asks
    // The shim learns why before the kernel is told, so that it does not take it for a crash.
    api::Message told;
    told.mutable_shim_kill()->set_end("killed");
    told.mutable_shim_kill()->set_by_agent(true);
    told.mutable_shim_kill()->set_reason(reason.empty() ? "killed by stockade kill" : reason);
    const Status condemned =
        sensor_.Condemn({.slot = sandbox.slot, .generation = sandbox.generation}, SK_CODE_CONDEMNED);
    // Told once the sandbox is empty, with how long that took.
    v1::Action action = ActionOf("kill-sandbox", *connections_[fd], reason);
    if (!condemned.ok()) {
        action.set_result("failed");
        action.set_detail(absl::StrCat(reason, reason.empty() ? "" : ": ", condemned.message()));
        PublishAction(sandbox, std::move(action));
        return SendError(fd, condemned);
    }
    run->kill_action = std::move(action);
    run->kill_event_ns = BootNow();
    if (sandbox.times.condemned_ns == 0) sandbox.times.condemned_ns = BootNow();
    (void)registry_.Move(sandbox, model::SandboxState::kCondemned);
    run->kill_client_fd = fd;
    ++counts_.kills_request;
    LogInfo(run->id, ": killed on request of uid ", connections_[fd]->uid);
    if (run->control.ok()) (void)run->control.Send(told);
    if (run->pod) {
        run->end.set_end("killed");
        run->end.set_reason(told.shim_kill().reason());
        run->end.set_exit_code(137);
    }
    StartKill(*run, true);
}

void Agent::AttachClient(int fd, const api::Attach& attach) {
    Run* run = FindRun(attach.id());
    if (run == nullptr || run->lingering || !MaySee(*connections_[fd], attach.id())) {
        return SendError(fd, absl::NotFoundError(absl::StrCat("no sandbox ", attach.id(), " is left")));
    }
    if (run->client_fd >= 0) return SendError(fd, absl::FailedPreconditionError("it has a client"));
    if (!connections_[fd]->run_id.empty()) {
        return SendError(fd, absl::FailedPreconditionError("one run for each connection"));
    }
    run->client_fd = fd;
    connections_[fd]->run_id = run->id;
    connections_[fd]->run_events = attach.events();
    UpdateBusy();
    api::Message message;
    message.mutable_ok();
    Send(fd, message);
}

void Agent::Distribute(const std::vector<StreamedEvent>& events) {
    const uint64_t dropped = hub_->TakeDropped();
    counts_.client_events_lost += dropped;
    if (!events.empty() || dropped != 0) {
        for (auto& [fd, connection] : connections_) {
            if (!connection->run_events && !connection->follow) continue;
            connection->lost += dropped;  // whose they were is not known any more
            DistributeTo(fd, *connection, events);
        }
    }
    TellDelivered();
}

// Delivered is what lies in the client's socket: it outlives us.
void Agent::TellDelivered() {
    bool awaited = false;
    for (auto& [fd, connection] : connections_) {
        if (connection->channel.queued_bytes() == 0) {
            connection->blocked_ns = 0;
            continue;
        }
        const uint64_t now = BootNow();
        if (connection->blocked_ns == 0) connection->blocked_ns = now;
        awaited = awaited || now - connection->blocked_ns < kMaxBlockedNs;
    }
    if (!awaited) hub_->Delivered();
}

void Agent::DistributeTo(int fd, Connection& connection, const std::vector<StreamedEvent>& events) {
    TellLost(connection);
    for (const StreamedEvent& event : events) {
        const bool own = connection.run_events && event.sandbox == connection.run_id;
        if (!own &&
            !(connection.follow && Wants(connection.filter, event) && MaySee(connection, event.sandbox)))
            continue;
        // Half of the queue stays free for the answers that must not be lost.
        if (connection.channel.queued_bytes() > api::kMaxQueuedBytes / 2) {
            ++connection.lost;
            continue;
        }
        TellLost(connection);
        api::Message message;
        message.mutable_event_record()->set_event(event.bytes);
        if (!connection.channel.Queue(message).ok()) {
            ++connection.lost;
            continue;
        }
        // Written as it goes, so that a client that reads loses nothing to the bound.
        if (connection.channel.queued_bytes() > api::kMaxFrameBytes) {
            (void)connection.channel.Flush();  // an error is seen by the loop
        }
    }
    if (connection.channel.queued_bytes() == 0) return;
    const StatusOr<bool> done = connection.channel.Flush();
    if (done.ok() && !*done) (void)loop_->Change(fd, EPOLLIN | EPOLLOUT);
}

// A hole in a client's stream is an event in it.
void Agent::TellLost(Connection& connection) {
    if (connection.lost == 0 || connection.channel.queued_bytes() > api::kMaxQueuedBytes / 2) return;
    v1::Event event;
    event.set_boot_ns(BootNow());
    if (connection.run_events) event.mutable_sandbox()->set_id(connection.run_id);
    event.mutable_lost()->set_count(connection.lost);
    event.mutable_lost()->set_stage("client");
    event.mutable_lost()->set_cause("the client reads more slowly than events come");
    hub_->path().Complete(&event);
    api::Message message;
    message.mutable_event_record()->set_event(event.SerializeAsString());
    if (connection.channel.Queue(message).ok()) connection.lost = 0;
}

}  // namespace stockade::cmd
