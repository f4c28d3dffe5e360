// What an earlier agent had started: taken over from the pins, the state files and the shims.
#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/cmd/agent.h"
#include "userspace/model/lifecycle.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxFdinfoBytes = 4096;

// Of the process that a pidfd is of; 0 where it is none, or has ended.
int PidOf(const Fd& pidfd) {
    const StatusOr<std::string> info =
        ReadFile(absl::StrCat("/proc/self/fdinfo/", pidfd.get()), kMaxFdinfoBytes);
    int pid = 0;
    if (!pidfd.ok() || !info.ok()) return 0;
    for (absl::string_view line : absl::StrSplit(*info, '\n')) {
        if (absl::ConsumePrefix(&line, "Pid:") && absl::SimpleAtoi(line, &pid)) return std::max(pid, 0);
    }
    return 0;
}

}  // namespace

Status Agent::AdoptAll() {
    SK_ASSIGN_OR_RETURN(const std::vector<kernel::Sensor::LiveSlot> slots, sensor_.LiveSlots());
    SK_ASSIGN_OR_RETURN(const sandbox::StateFiles::Loaded loaded, files_->Load());
    for (const std::string& broken : loaded.broken) LogWarning("state file of no sandbox: ", broken);
    for (const kernel::Sensor::LiveSlot& live : slots) {
        const sandbox::StoredSandbox* stored = nullptr;
        for (const sandbox::StoredSandbox& candidate : loaded.sandboxes) {
            if (candidate.slot() == live.ref.slot && candidate.generation() == live.ref.generation)
                stored = &candidate;
        }
        if (stored == nullptr) {
            // Its start had not come to an end, so nothing of it runs but its shim's own code.
            LogWarning("slot ", live.ref.slot, " belongs to no known sandbox: freed");
            (void)sensor_.Condemn(live.ref, SK_CODE_CONDEMNED);
            const Status freed = sensor_.FreeSlot(live.ref);
            if (!freed.ok()) LogError("free slot ", live.ref.slot, ": ", freed.message());
            DropPolicy(live.slot.policy_index);
            continue;
        }
        // One that cannot be taken over must not keep the agent from the others; its verdicts stand.
        const Status adopted = AdoptOne(live, *stored);
        if (!adopted.ok()) LogError(stored->id(), ": cannot be taken over: ", adopted.message());
    }
    for (const sandbox::StoredSandbox& stored : loaded.sandboxes) {
        if (FindRun(stored.id()) == nullptr) (void)files_->Remove(stored.id());
    }
    (void)CollectGarbage(false);  // what failed is told by it, and is tried again on the timer
    UpdateBusy();
    return absl::OkStatus();
}

// Registers it as running; its shim is waited for until EndOrphans.
Status Agent::AdoptOne(const kernel::Sensor::LiveSlot& live, const sandbox::StoredSandbox& stored) {
    auto info = std::make_shared<model::SandboxInfo>();
    SK_ASSIGN_OR_RETURN(info->id, model::SandboxId::Parse(stored.id()));
    info->labels = {.session = stored.session(), .tool = stored.tool(), .trace = stored.trace(), .free = {}};
    info->labels.free.insert(stored.labels().begin(), stored.labels().end());
    info->runtime = stored.runtime();
    info->policies = {{.id = stored.policy_id(), .name = stored.policy_name(), .hash = stored.policy_hash()}};
    for (int i = stored.later_policies_size(); i-- > 0;) {
        const sandbox::v1::StoredPolicyRef& later = stored.later_policies(i);
        info->policies.insert(info->policies.begin(),
                              {.id = later.id(), .name = later.name(), .hash = later.hash()});
    }
    info->coverage =
        stored.has_pod() ? PodCoverage(sensor_.backend(), sensor_.missing())
                         : AttestedCoverage(sensor_.backend(), sensor_.missing(),
                                            {.files = stored.landlock(), .directories = stored.landlock_directories()});
    SK_ASSIGN_OR_RETURN(sandbox::Sandbox * sandbox, registry_.Adopt(info, stored.uid()));
    sandbox->argv.assign(stored.argv().begin(), stored.argv().end());
    sandbox->mode = stored.mode();
    sandbox->owner_uid = stored.owner_uid();
    sandbox->policy_index = live.slot.policy_index;
    sandbox->cgroup = stored.cgroup();
    sandbox->times.created_ns = stored.created_boot_ns();
    sandbox->times.attested_ns = stored.attested_boot_ns();
    sandbox->conditions.push_back("Adopted");
    registry_.Bind(*sandbox, live.ref.slot, live.ref.generation);
    hub_->path().Track(live.ref.slot, live.ref.generation, 0);
    if (store_ != nullptr) {
        const auto earlier = store_->earlier().find(stored.id());
        if (earlier != store_->earlier().end()) {
            const pipeline::ChainBooks& books = earlier->second;
            hub_->path().Resume(live.ref.slot, live.ref.generation,
                                {.seen = books.seen,
                                 .repeats = books.repeats,
                                 .told = books.told,
                                 .left_out_boot_ns = books.left_out_boot_ns});
        }
    }
    (void)registry_.Move(*sandbox, model::SandboxState::kStarting);
    (void)registry_.Move(*sandbox, model::SandboxState::kRunning);
    AdoptRun(*sandbox, stored);
    ShowRestraint(*runs_[stored.id()], *sandbox);
    if (stored.has_pod()) SK_RETURN_IF_ERROR(AdoptPod(*runs_[stored.id()], *sandbox, stored, live.slot.cgroup_id));
    if (live.state.condemned_ns != 0) {
        sandbox->times.condemned_ns = live.state.condemned_ns;
        (void)registry_.Move(*sandbox, model::SandboxState::kCondemned);
        StartKill(*runs_[stored.id()], true);
    }
    return absl::OkStatus();
}

void Agent::AdoptRun(const sandbox::Sandbox& sandbox, const sandbox::StoredSandbox& stored) {
    auto run = std::make_unique<Run>();
    run->id = stored.id();
    run->owner_uid = stored.owner_uid();
    run->released = true;
    run->adopted = true;
    run->labels.set_session(stored.session());
    run->labels.set_tool(stored.tool());
    run->labels.set_trace(stored.trace());
    *run->labels.mutable_free() = stored.labels();
    run->attestation.set_policy(stored.policy_name());
    run->attestation.set_policy_hash(stored.policy_hash());
    run->attestation.set_mode(stored.mode());
    run->attestation.set_backend(sensor_.backend() == kernel::Backend::kLsm ? "lsm" : "signal");
    run->attestation.set_attested_boot_ns(stored.attested_boot_ns());
    run->landlock = {.files = stored.landlock(), .directories = stored.landlock_directories()};
    run->dns = stored.dns();
    run->stored = stored;
    TakeRestraint(stored.restraint(), &run->restraint);
    for (const CoverageRow& row : CoverageRows(sandbox.info->coverage)) {
        run->attestation.add_coverage(absl::StrCat(row.operation, ": ", row.cell));
    }
    if (!stored.has_pod()) {
        StatusOr<Fd> cgroup = Fd::OpenAt(options_.home.dir, run->id, O_RDONLY | O_DIRECTORY);
        if (cgroup.ok()) run->cgroup = *std::move(cgroup);
        run->adopt_deadline_ns = BootNow() + uint64_t{options_.config.agent_wait_seconds} * 1'000'000'000;
    }
    runs_[run->id] = std::move(run);
    PublishStep(sandbox, model::LIFECYCLE_ADOPTED);
}

// The connection of a shim that had lost its agent becomes the control channel of its run.
void Agent::AdoptHello(int fd, api::Packet packet) {
    const api::ShimHello& hello = packet.message.shim_hello();
    auto node = connections_.extract(fd);
    loop_->Forget(fd);
    Run* run = FindRun(hello.id());
    sandbox::Sandbox* sandbox = registry_.Find(hello.id());
    if (run == nullptr || run->control.ok()) {
        api::Message message;
        message.mutable_shim_kill()->set_end("agent");
        message.mutable_shim_kill()->set_reason("the next agent does not know this sandbox");
        (void)node.mapped()->channel.Send(message);
        return;
    }
    run->control = std::move(node.mapped()->channel);
    run->adopt_deadline_ns = 0;
    sandbox->shim_pid = hello.pid();
    sandbox->init_pid = PidOf(packet.Take(api::FD_PIDFD));
    WatchControl(*run);
    if (!run->dns.upstreams().empty()) {
        const Status status = dns_->Adopt(DnsOf(*run, hello.dns_address(), packet));
        if (!status.ok()) LogError(run->id, ": its names are not answered any more: ", status.message());
        const Status denied = ApplyDeniedNames(*run, *sandbox);
        if (!denied.ok()) LogError(run->id, ": ", denied.message());
    }
    LogInfo(run->id, ": taken over");
    if (hello.ended()) return OnEnded(*run, hello.last());
    OnControl(run->id);  // what came with the hello
}

// Adopted sandboxes whose shim did not come.
void Agent::EndOrphans() {
    const uint64_t now = BootNow();
    std::vector<std::string> late;
    for (const auto& [id, run] : runs_) {
        if (run->adopt_deadline_ns != 0 && now >= run->adopt_deadline_ns) late.push_back(id);
    }
    for (const std::string& id : late) {
        Run& run = *FindRun(id);
        run.adopt_deadline_ns = 0;
        LogWarning(id, ": its shim did not come back: ending it");
        sandbox::Sandbox* sandbox = registry_.Find(id);
        (void)sensor_.Condemn({.slot = sandbox->slot, .generation = sandbox->generation}, SK_CODE_CONDEMNED);
        run.ended = true;
        run.end.set_exit_code(137);
        run.end.set_end("shim");
        run.end.set_reason("the keeper of the sandbox was killed");
        if (run.cgroup.ok()) {
            StartKill(run, false);
        } else {
            AskDrain(run);
        }
    }
}

}  // namespace stockade::cmd
