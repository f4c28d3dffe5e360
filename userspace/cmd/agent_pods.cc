// Containers of pods: what the runtime asks of its plugin, and what becomes of them.
//
// The runtime makes a container's cgroup and its first task between CreateContainer and StartContainer, and that task waits to be told
// to execute the command. So labels and policy are chosen at the first and frozen, and the cgroup is bound at the second.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/log.h"
#include "userspace/cmd/agent.h"
#include "userspace/model/lifecycle.h"
#include "userspace/policy/dns_names.h"

namespace stockade::cmd {
namespace {

constexpr char kUnprotected[] = "Degraded/UnprotectedStart";
// Of those that run already, between two looks at what else there is: a start that waits for its answer waits for no more than these.
constexpr int kBindAtOnce = 8;

SandboxDns::Sandbox PodDns(const sandbox::Sandbox& sandbox, const sandbox::v1::StoredDns& plan) {
    SandboxDns::Sandbox out;
    out.ref = {.slot = sandbox.slot, .generation = sandbox.generation};
    out.id = sandbox.id();
    out.session = sandbox.info->labels.session;
    out.plan = plan;
    out.without_stub = true;
    return out;
}

}  // namespace

Status Agent::StartPods() {
    const KubernetesConfig& config = options_.config.kubernetes;
    // An agent that leaves when nothing is left would leave the node's pods to nobody.
    if (!config.on() || options_.idle_exit_ns != 0) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(nri_, nri::Link::Start({.socket = config.nri, .session = {.name = "stockade", .index = config.index}}));
    LogInfo("pods: plugin ", config.index, "-stockade of the runtime at ", config.nri);
    return loop_->Watch(nri_->event_fd(), EPOLLIN, [this](uint32_t) { OnNri(); });
}

void Agent::OnNri() {
    for (const nri::Call& call : nri_->TakeCalls()) OnNriCall(call);
    BindUnprotected();
}

void Agent::OnNriCall(const nri::Call& call) {
    const uint64_t begun = BootNow();
    const auto answer = [&](const Status& status) {
        const nri::Link::Told told = nri_->Answer(call.id, status);
        pod_counts_.answer.ObserveSince(begun, BootNow());
        if (!status.ok()) LogError("pod ", call.pod.namespace_(), "/", call.pod.name(), ": refused: ", status.message());
        return told;
    };
    switch (call.kind) {
        case nri::CallKind::kSynchronized:
            return OnSynchronized(call);
        case nri::CallKind::kCreate: {
            const Status status = CreatePod(call.pod, call.container);
            if (!status.ok()) ++pod_counts_.refused_creates;
            (void)answer(status);  // one that was refused for being late is created anew, and asked about again
            return;
        }
        case nri::CallKind::kStart: {
            const Status status = StartPod(call.pod, call.container);
            if (!status.ok()) ++pod_counts_.refused_starts;
            const nri::Link::Told told = answer(status);
            if (!status.ok() || told == nri::Link::Told::kYes) return;
            ++pod_counts_.late_starts;
            // Bound and refused is safe: it ends, and is unbound then. One that the runtime started without us is not.
            if (told == nri::Link::Told::kGone) OnUnheard(call.container.id());
            return;
        }
        case nri::CallKind::kUnheard:
            return OnUnheard(call.container.id());
        case nri::CallKind::kStop:
            return OnPodStopped(call.container);
        case nri::CallKind::kRemove:
            pods_.erase(call.container.id());
            return;
    }
}

// It may have run before it was bound, and nobody knows for how long.
void Agent::OnUnheard(const std::string& container_id) {
    const auto entry = pods_.find(container_id);
    Run* run = entry == pods_.end() ? nullptr : FindRun(entry->second.sandbox_id);
    if (run == nullptr || run->ended) return;
    sandbox::Sandbox* sandbox = registry_.Find(run->id);
    if (absl::c_linear_search(sandbox->conditions, kUnprotected)) return;
    ++pod_counts_.unprotected;
    sandbox->conditions.push_back(kUnprotected);
    TellUnprotected(*run, *sandbox);
}

StatusOr<PodEntry> Agent::PlanPod(const nri::PodSandbox& pod, const nri::Container& container) {
    const KubernetesConfig& config = options_.config.kubernetes;
    PodEntry entry;
    SK_ASSIGN_OR_RETURN(entry.container, orchestrator::ContainerOf(pod, container));
    SK_ASSIGN_OR_RETURN(orchestrator::PodLabels labels,
                        orchestrator::LabelsOf(entry.container, {.session = config.labels.session,
                                                                 .tool = config.labels.tool,
                                                                 .trace = config.labels.trace}));
    pod_counts_.labels_left_out += labels.left_out;
    entry.labels = std::move(labels.labels);
    entry.chosen = ChoosePodPolicy(entry.container, entry.labels, config, policies_);
    if (entry.chosen.policy.name.empty()) return absl::InternalError("there is no policy at all");
    if (!entry.chosen.condition.empty()) ++pod_counts_.deny_all;
    // Without the container's root, which does not exist yet: errors show now.
    SK_RETURN_IF_ERROR(compiler_.Compile(entry.chosen.policy).status());
    return entry;
}

Status Agent::CreatePod(const nri::PodSandbox& pod, const nri::Container& container) {
    if (!IsSandboxPod(pod, options_.config.kubernetes)) {
        ++pod_counts_.others;
        return absl::OkStatus();
    }
    ++pod_counts_.created;
    if (pods_.size() >= kMaxPods) return absl::ResourceExhaustedError("more containers than this node can guard");
    SK_ASSIGN_OR_RETURN(pods_[container.id()], PlanPod(pod, container));
    return absl::OkStatus();
}

Status Agent::StartPod(const nri::PodSandbox& pod, const nri::Container& container) {
    if (!IsSandboxPod(pod, options_.config.kubernetes) && !pods_.contains(container.id())) return absl::OkStatus();
    auto found = pods_.find(container.id());
    if (found == pods_.end()) {
        // It was created while no plugin was connected.
        SK_ASSIGN_OR_RETURN(PodEntry entry, PlanPod(pod, container));
        if (pods_.size() >= kMaxPods) return absl::ResourceExhaustedError("more containers than this node can guard");
        found = pods_.emplace(container.id(), std::move(entry)).first;
    }
    PodEntry& entry = found->second;
    if (!entry.sandbox_id.empty()) return absl::AlreadyExistsError("the container was started before");
    entry.container.pid = static_cast<int>(container.pid());
    SK_RETURN_IF_ERROR(BindPod(entry, false));
    ++pod_counts_.bound;
    return absl::OkStatus();
}

void Agent::OnSynchronized(const nri::Call& call) {
    std::map<std::string, const nri::PodSandbox*> pods;
    for (const nri::PodSandbox& pod : call.pods) pods[pod.id()] = &pod;
    std::set<std::string> listed;
    for (const nri::Container& container : call.containers) {
        listed.insert(container.id());
        const auto pod = pods.find(container.pod_sandbox_id());
        if (pod != pods.end()) {
            SynchronizeOne(*pod->second, container);
        } else {
            ++pod_counts_.unbindable;
            LogError("container ", container.id(), ": the runtime lists it without its pod: it is not guarded");
        }
    }
    // Of what was removed while nobody told us. Those that were bound end by their cgroup.
    std::erase_if(pods_, [&](const auto& entry) { return !listed.contains(entry.first) && FindRun(entry.second.sandbox_id) == nullptr; });
}

void Agent::SynchronizeOne(const nri::PodSandbox& pod, const nri::Container& container) {
    if (container.state() == nri::CONTAINER_STOPPED || !IsSandboxPod(pod, options_.config.kubernetes)) return;
    const auto known = pods_.find(container.id());
    if (known != pods_.end() && !known->second.sandbox_id.empty()) return;
    if (container.state() == nri::CONTAINER_CREATED || container.pid() == 0) {
        // Its start will be asked for. What was frozen at its creation stays.
        if (known != pods_.end()) return;
        if (const Status status = CreatePod(pod, container); !status.ok())
            LogWarning("pod ", pod.namespace_(), "/", pod.name(), ": ", status.message());
        return;
    }
    StatusOr<PodEntry> entry = known != pods_.end() ? StatusOr<PodEntry>(known->second) : PlanPod(pod, container);
    ++pod_counts_.unprotected;
    if (!entry.ok() || unprotected_.size() >= kMaxPods) {
        ++pod_counts_.unbindable;
        LogError("pod ", pod.namespace_(), "/", pod.name(), " runs unguarded: ",
                 entry.ok() ? "too many wait to be bound" : entry.status().message());
        return;
    }
    entry->container.pid = static_cast<int>(container.pid());
    unprotected_.push_back(*std::move(entry));
}

void Agent::BindUnprotected() {
    for (int i = 0; i < kBindAtOnce && !unprotected_.empty(); ++i) {
        PodEntry entry = std::move(unprotected_.front());
        unprotected_.pop_front();
        const std::string id = entry.container.ref.container_id;
        PodEntry& kept = pods_[id] = std::move(entry);
        const Status status = BindPod(kept, true);
        if (status.ok()) continue;
        // Where it has ended meanwhile there is nothing to guard.
        const bool runs = syscall(SYS_kill, kept.container.pid, 0) == 0;
        pod_counts_.unbindable += runs;
        LogError("pod ", kept.container.ref.name_space, "/", kept.container.ref.name, runs ? " runs unguarded: " : " has ended: ", status.message());
    }
    if (!unprotected_.empty()) nri_->Wake();
}

Status Agent::BindPod(PodEntry& entry, bool unprotected) {
    auto info = std::make_shared<model::SandboxInfo>();
    info->id = model::SandboxId::New();
    info->labels = entry.labels;
    info->runtime = "pod";
    const std::string id = info->id.str();
    // Its users are its own business: none of our range.
    SK_ASSIGN_OR_RETURN(sandbox::Sandbox * sandbox, registry_.Adopt(info, 0));
    auto owned = std::make_unique<Run>();
    Run& run = *owned;
    run.id = id;
    run.pod = true;
    run.container_id = entry.container.ref.container_id;
    run.policy = entry.chosen.policy;
    run.own_root = true;
    run.labels.set_session(entry.labels.session);
    run.labels.set_tool(entry.labels.tool);
    run.labels.set_trace(entry.labels.trace);
    run.labels.mutable_free()->insert(entry.labels.free.begin(), entry.labels.free.end());
    if (!entry.chosen.note.empty()) run.notes.push_back(entry.chosen.note);
    runs_[id] = std::move(owned);
    sandbox->argv = entry.container.args;
    sandbox->init_pid = entry.container.pid;
    sandbox->mode = run.policy.mode == SK_MODE_OBSERVE ? "observe" : "enforce";
    if (!entry.chosen.condition.empty()) sandbox->conditions.push_back(entry.chosen.condition);
    if (unprotected) sandbox->conditions.push_back(kUnprotected);
    if (rules_broken_) sandbox->conditions.push_back(kRulesBroken);
    PublishStep(*sandbox, model::LIFECYCLE_REGISTERED);
    Status status = BindPodRun(run, *sandbox, entry);
    if (!status.ok()) {
        // What is in the cgroup by now ends as well: nothing of it was to run.
        // But for what ran before: that a node cannot guard a pod does not end the pod, unless that is what was asked for.
        if (unprotected && !options_.config.kubernetes.kill_unprotected) run.cgroup.Reset();
        FailRun(run, std::string(status.message()));
        return status;
    }
    entry.sandbox_id = id;
    if (!entry.chosen.condition.empty()) PublishStep(*sandbox, model::LIFECYCLE_DEGRADED, entry.chosen.note);
    if (unprotected) TellUnprotected(run, *sandbox);
    UpdateBusy();
    return absl::OkStatus();
}

Status Agent::BindPodRun(Run& run, sandbox::Sandbox& sandbox, const PodEntry& entry) {
    const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, entry.container.pid, 0)));
    if (!pidfd.ok()) return ErrnoStatus(errno, absl::StrCat("open the container's first task ", entry.container.pid));
    // The number was the runtime's; from here on the descriptor holds that process, and what is read of it is checked against the id.
    SK_ASSIGN_OR_RETURN(const std::string path, ContainerCgroup(entry.container.pid, entry.container.ref.container_id));
    const std::string mount = options_.home.path.substr(0, options_.home.path.rfind('/'));
    sandbox.cgroup = absl::StrCat(mount, path);
    SK_ASSIGN_OR_RETURN(run.cgroup, Fd::Open(sandbox.cgroup, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    SK_RETURN_IF_ERROR(sensor_.AttachNetwork(run.cgroup.get()));
    struct stat cgroup{};
    if (fstat(run.cgroup.get(), &cgroup) != 0) return ErrnoStatus(errno, "look at the container's cgroup");
    run.cgroup_id = cgroup.st_ino;
    SK_RETURN_IF_ERROR(BindCgroup(run, sandbox, pidfd.get(), false));
    SK_ASSIGN_OR_RETURN(const int labelled, sensor_.LabelPresent({.slot = sandbox.slot, .generation = sandbox.generation}));
    if (labelled == 0) return absl::FailedPreconditionError("the container's cgroup has no task that could be labelled");
    SK_RETURN_IF_ERROR(BindPodDns(run, sandbox));
    SK_RETURN_IF_ERROR(EndBinding(sandbox));
    SK_RETURN_IF_ERROR(WatchPod(run));
    Attest(run, sandbox);
    run.released = true;
    ++counts_.started;
    sandbox.times.started_ns = BootNow();
    SK_RETURN_IF_ERROR(registry_.Move(sandbox, model::SandboxState::kRunning));
    PublishStep(sandbox, model::LIFECYCLE_STARTED);
    return absl::OkStatus();
}

// There is no stub in a pod's network: its resolvers are pinned, and the kernel reads what they answer (ADR 8).
Status Agent::BindPodDns(Run& run, const sandbox::Sandbox& sandbox) {
    if (!policy::NeedsDns(run.policy)) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(run.dns, dns_->Plan(run.policy));
    const std::vector<std::string>& resolvers = options_.config.kubernetes.resolvers;
    if (!resolvers.empty() && (!run.policy.dns || run.policy.dns->resolvers.empty())) {
        run.dns.clear_upstreams();
        for (const std::string& resolver : resolvers) run.dns.add_upstreams(resolver);
    }
    return dns_->Start(PodDns(sandbox, run.dns), run.policy);
}

void Agent::TellUnprotected(Run& run, sandbox::Sandbox& sandbox) {
    v1::Event event = Envelope(sandbox);
    event.set_kind("finding");
    event.mutable_finding()->set_rule("unprotected-start");
    event.mutable_finding()->set_title("A container started while the agent was not there to bind it");
    event.mutable_finding()->set_severity("high");
    event.mutable_finding()->set_detail("what it did before it was bound was neither judged nor recorded");
    hub_->path().Publish(std::move(event));
    PublishStep(sandbox, model::LIFECYCLE_DEGRADED, "it ran before it was bound");
    const std::map<std::string, std::string>& labels = sandbox.info->labels.free;
    LogWarning(run.id, ": pod ", labels.at(orchestrator::kNamespaceLabel), "/", labels.at(orchestrator::kPodLabel),
               " had started unprotected, and is bound now");
    if (!options_.config.kubernetes.kill_unprotected) return;
    run.end.set_end("killed");
    run.end.set_reason("it had started unprotected (kubernetes.unprotected: kill)");
    run.end.set_exit_code(137);
    const Status condemned = sensor_.Condemn({.slot = sandbox.slot, .generation = sandbox.generation}, SK_CODE_CONDEMNED);
    if (!condemned.ok()) LogError(run.id, ": condemn it: ", condemned.message());  // it is killed all the same
    sandbox.times.condemned_ns = BootNow();
    (void)registry_.Move(sandbox, model::SandboxState::kCondemned);
    StartKill(run, true);
}

Status Agent::AdoptPod(Run& run, sandbox::Sandbox& sandbox, const sandbox::StoredSandbox& stored, uint64_t cgroup_id) {
    run.pod = run.own_root = true;
    sandbox.init_pid = stored.pod().init_pid();
    for (const std::string& condition : stored.pod().conditions()) sandbox.conditions.push_back(condition);
    PodEntry& entry = pods_[stored.pod().container_id()];
    run.container_id = entry.container.ref.container_id = stored.pod().container_id();
    entry.labels = sandbox.info->labels;
    entry.sandbox_id = run.id;
    StatusOr<Fd> cgroup = Fd::Open(stored.cgroup(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    struct stat info{};
    // Gone, or another's by now: its end is seen at the next tick.
    if (!cgroup.ok() || fstat(cgroup->get(), &info) != 0 || info.st_ino != cgroup_id) return absl::OkStatus();
    run.cgroup = *std::move(cgroup);
    SK_RETURN_IF_ERROR(WatchPod(run));
    if (const Status attached = sensor_.AttachNetwork(run.cgroup.get()); !attached.ok()) {
        keep_earlier_ = true;
        return attached;
    }
    run.cgroup_id = cgroup_id;
    if (run.dns.upstreams().empty()) return absl::OkStatus();
    return dns_->Adopt(PodDns(sandbox, run.dns));
}

Status Agent::WatchPod(Run& run) {
    SK_ASSIGN_OR_RETURN(run.cgroup_events, Fd::OpenAt(run.cgroup, "cgroup.events", O_RDONLY));
    return loop_->Watch(run.cgroup_events.get(), EPOLLPRI, [this, id = run.id](uint32_t) { OnPodCgroup(id); });
}

void Agent::OnPodCgroup(const std::string& id) {
    Run* run = FindRun(id);
    if (run == nullptr) return;
    char text[256];
    // Reading is what makes it wait for the next change. Of a cgroup that is gone it fails.
    const ssize_t n = pread(run->cgroup_events.get(), text, sizeof(text), 0);
    if (n > 0 && absl::string_view(text, static_cast<size_t>(n)).find("populated 1") != absl::string_view::npos) return;
    OnPodEmpty(*run);
}

void Agent::OnPodEmpty(Run& run) {
    if (run.cgroup_events.ok()) loop_->Forget(run.cgroup_events.get());
    run.cgroup_events.Reset();
    if (run.ended || run.lingering) return;
    run.ended = true;
    sandbox::Sandbox* sandbox = registry_.Find(run.id);
    sandbox->times.ended_ns = BootNow();
    if (run.end.end().empty()) run.end.set_end("exited");
    run.end.set_boot_ns(sandbox->times.ended_ns);
    if (!run.killing) AskDrain(run);  // else OnKilled goes on
}

// The runtime knows how the command ended, where its NRI says so. It may tell before or after the cgroup is empty.
void Agent::OnPodStopped(const nri::Container& container) {
    const auto entry = pods_.find(container.id());
    Run* run = entry == pods_.end() ? nullptr : FindRun(entry->second.sandbox_id);
    if (run == nullptr || run->collected || container.exit_code() == 0) return;  // 0 is also what is not said
    if (!run->end.end().empty() && run->end.end() != "exited") return;
    run->end.set_exit_code(container.exit_code());
    if (container.exit_code() > 128) run->end.set_end("signalled");
}

// Those whose cgroup was gone when they were taken over; and the log says once when nobody guards new pods.
void Agent::WatchPods() {
    std::vector<std::string> gone;
    for (const auto& [id, run] : runs_) {
        if (run->pod && run->released && !run->cgroup.ok() && !run->ended) gone.push_back(id);
    }
    for (const std::string& id : gone) OnPodEmpty(*FindRun(id));
    if (nri_ == nullptr) return;
    const nri::Link::State state = nri_->state();
    if (state.up == nri_up_) return;
    nri_up_ = state.up;
    if (state.up) {
        LogInfo("pods: connected to ", state.runtime);
    } else {
        LogError("pods: the connection to the runtime is gone, and what starts now is not guarded: ", state.trouble);
    }
}

void Agent::ForgetPod(Run& run) {
    if (run.cgroup_events.ok()) loop_->Forget(run.cgroup_events.get());
    if (run.cgroup_id != 0) {
        const Status status = sensor_.DetachNetwork(run.cgroup_id);
        if (!status.ok()) LogWarning(run.id, ": ", status.message());
    }
}

}  // namespace stockade::cmd
