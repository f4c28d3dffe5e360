// From a client's Run to the first instruction: policy, shim, slot, label, coverage, go.
#include <fcntl.h>
#include <sys/epoll.h>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/base/sha256.h"
#include "userspace/cmd/agent.h"
#include "userspace/cmd/hidden_scripts.h"
#include "userspace/cmd/landlock_rules.h"
#include "userspace/cmd/refusal_advice.h"
#include "userspace/cmd/shown_command.h"
#include "userspace/launch/bind_check.h"
#include "userspace/model/lifecycle.h"
#include "userspace/policy/canonical.h"
#include "userspace/policy/dns_names.h"
#include "userspace/policy/evaluate.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxSeccomp = 64;

model::Labels FromApi(const api::Labels& labels) {
    model::Labels out{
        .session = labels.session(), .tool = labels.tool(), .trace = labels.trace(), .free = {}};
    for (const auto& [key, value] : labels.free()) out.free[key] = value;
    return out;
}

Status CheckRequest(const api::Run& run, kernel::Backend backend) {
    if (run.argv().empty()) return absl::InvalidArgumentError("no command is given");
    if (run.binds_size() > static_cast<int>(launch::kMaxBinds)) {
        return absl::InvalidArgumentError(absl::StrCat("more than ", launch::kMaxBinds, " binds"));
    }
    if (!run.runtime().empty() && run.runtime() != "native") {
        return absl::UnimplementedError(
            absl::StrCat("runtime ", run.runtime(), " is not there yet: use --runtime native"));
    }
    if (!run.require().empty() && run.require() != "lsm" && run.require() != "signal") {
        return absl::InvalidArgumentError("--require takes lsm or signal");
    }
    if (run.require() == "lsm" && backend != kernel::Backend::kLsm) {
        return absl::FailedPreconditionError(
            "--require lsm: this agent runs the signal backend, which cannot prevent every effect; "
            "see stockade doctor");
    }
    return absl::OkStatus();
}

// Anything beyond the sandbox's own loopback needs a way out.
bool NeedsEgress(const policy::ResolvedPolicy& policy) {
    const auto leaves = [](const std::vector<policy::NetworkRule>& rules) {
        for (const policy::NetworkRule& rule : rules) {
            if (rule.kind != policy::NetworkKind::kUnix) return true;
        }
        return false;
    };
    if (leaves(policy.network) || policy::NeedsDns(policy)) return true;
    for (const auto& [uid, rules] : policy.uids) {
        if (leaves(rules)) return true;
    }
    return false;
}

// What was looked at, and approved where that was asked for, is what runs.
Status CheckContract(const api::Contract& contract, const policy::ResolvedPolicy& policy) {
    if (contract.policy_sha256() == Sha256Hex(policy::CanonicalText(policy))) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("the policy ", policy.name, " is not here what the client has read (its policy_dirs, or the files, differ): nothing was started"));
}

// 0 = no limit.
uint64_t Tighter(uint64_t ours, uint64_t asked) { return asked == 0 ? ours : ours == 0 ? asked : std::min(ours, asked); }

std::string Bytes(const std::vector<sock_filter>& filters) {
    return std::string(reinterpret_cast<const char*>(filters.data()), filters.size() * sizeof(sock_filter));
}

}  // namespace

void Agent::StartRun(int fd, api::Packet packet) {
    std::string id;
    Connection& connection = *connections_[fd];
    if (!connection.run_id.empty()) {
        return SendError(fd, absl::FailedPreconditionError("one run for each connection"));
    }
    Status status = AdmitRun(fd, &packet);
    if (status.ok()) status = PrepareRun(connection, packet, &id);
    if (status.ok()) return;
    if (Run* run = FindRun(id)) Remove(*run);
    if (absl::IsPermissionDenied(status)) ++counts_.refused_requests;
    SendError(fd, status);
}

// What only concerns members of the group.
Status Agent::AdmitRun(int fd, api::Packet* packet) const {
    const uid_t uid = connections_.at(fd)->uid;
    if (uid == 0) return absl::OkStatus();
    SK_RETURN_IF_ERROR(Access::CheckRun(*packet, uid));
    const api::PolicySource& policy = packet->message.run().policy();
    if (!policy.text().empty()) {
        return absl::PermissionDeniedError(
            "a policy of one's own is for root alone: name one with --policy NAME");
    }
    size_t same = 0;
    for (const auto& [id, run] : runs_) same += run->owner_uid == uid;
    if (same >= kMaxMemberSandboxes) {
        return absl::ResourceExhaustedError(absl::StrCat("you have ", same, " sandboxes already"));
    }
    SK_ASSIGN_OR_RETURN(const api::Peer peer, connections_.at(fd)->channel.PeerCredentials());
    packet->message.mutable_run()->set_caller_uid(peer.uid);
    packet->message.mutable_run()->set_caller_gid(peer.gid);
    api::Labels& labels = *packet->message.mutable_run()->mutable_labels();
    labels.set_session(access_.SessionOf(uid, labels.session()));
    return absl::OkStatus();
}

Status Agent::PrepareRun(Connection& connection, api::Packet& packet, std::string* id) {
    const api::Run& request = packet.message.run();
    SK_RETURN_IF_ERROR(CheckRequest(request, sensor_.backend()));
    auto info = std::make_shared<model::SandboxInfo>();
    info->labels = FromApi(request.labels());
    SK_RETURN_IF_ERROR(model::CheckLabels(info->labels));
    SK_ASSIGN_OR_RETURN(ChosenPolicy chosen, policies_.Choose(request.policy(), info->labels));
    if (connection.uid != 0) SK_RETURN_IF_ERROR(access_.CheckPolicy(chosen.policy.name));
    if (request.has_contract()) SK_RETURN_IF_ERROR(CheckContract(request.contract(), chosen.policy));
    std::unique_ptr<Spare> spare = TakeSpare(request, packet, NeedsEgress(chosen.policy));
    info->id = spare != nullptr ? spare->id : model::SandboxId::New();
    info->runtime = "native";
    *id = info->id.str();

    SK_ASSIGN_OR_RETURN(sandbox::Sandbox * sandbox, registry_.Add(info));
    auto owned = std::make_unique<Run>();
    Run& run = *owned;
    run.id = *id;
    run.owner_uid = sandbox->owner_uid = connection.uid;
    runs_[*id] = std::move(owned);
    run.policy = std::move(chosen.policy);
    run.labels = request.labels();
    run.contract_name = request.contract().name();
    run.contract_sha256 = request.contract().sha256();
    if (!chosen.note.empty()) run.notes.push_back(chosen.note);
    if (connection.uid != 0 && !run.labels.session().empty())
        run.notes.push_back(absl::StrCat("events of this run have the session ", run.labels.session()));
    if (std::string note = AbsentSectionsNote(run.policy); !note.empty())
        run.notes.push_back(std::move(note));
    for (const int role : packet.message.fds()) run.own_root |= role == api::FD_ROOTFS;
    run.client_fd = connection.channel.fd();
    if (keeper_ != nullptr) run.raw_argv.assign(request.argv().begin(), request.argv().end());
    // For lists and state files: the shim has its own.
    sandbox->argv = WithoutSecrets({request.argv().begin(), request.argv().end()});
    sandbox->mode = run.policy.mode == SK_MODE_OBSERVE ? "observe" : "enforce";
    sandbox->cgroup = absl::StrCat(options_.home.path, "/", *id);
    if (rules_broken_) sandbox->conditions.push_back(kRulesBroken);

    // Without the sandbox's root, which does not exist yet: good for binds and Landlock, and errors show now.
    SK_ASSIGN_OR_RETURN(const auto draft, compiler_.Compile(run.policy));
    SK_RETURN_IF_ERROR(CheckSources(*draft, packet));
    SK_ASSIGN_OR_RETURN(api::StartShim order, MakeOrder(run, *sandbox, *draft, request));
    std::vector<api::FdArg> fds;
    for (int i = 0; i < packet.message.fds_size(); ++i)
        fds.emplace_back(packet.message.fds(i), packet.fds[i].get());
    std::vector<Fd> covers;
    if (!run.own_root) {
        const sk_hash_keys keys = sensor_.keys();
        SK_RETURN_IF_ERROR(HideScripts(run.policy, {.cells = draft->cells, .keys = &keys},
                                       options_.config.runtime_dir, &order, &fds, &covers));
    }
    SK_RETURN_IF_ERROR(OrderShim(run, std::move(spare), order, std::move(fds)));
    WatchControl(run);
    connection.run_id = *id;
    connection.run_events = request.events();
    run.client_events = request.events();
    UpdateBusy();
    return absl::OkStatus();
}

Status Agent::OrderShim(Run& run, std::unique_ptr<Spare> spare, const api::StartShim& order,
                        std::vector<api::FdArg> fds) {
    if (spare != nullptr) {
        api::Message message;
        *message.mutable_start_shim() = order;
        SK_RETURN_IF_ERROR(Annotate(spare->control.Send(message, fds), "order a sandbox made ahead"));
        run.control = std::move(spare->control);
        registry_.Find(run.id)->shim_pid = spare->pid;
        return absl::OkStatus();
    }
    SK_ASSIGN_OR_RETURN(auto pair, api::Channel::Pair());
    fds.emplace_back(api::FD_CONTROL, pair.second.fd());
    SK_RETURN_IF_ERROR(options_.helper->Start(order, fds));
    run.control = std::move(pair.first);
    return absl::OkStatus();
}

// Neither binds nor a root file system may show what the policy denies, nor what no sandbox may see.
Status Agent::CheckSources(const policy::CompiledPolicy& compiled, const api::Packet& packet) {
    const sk_hash_keys keys = sensor_.keys();
    const policy::PolicyView view{.cells = compiled.cells, .keys = &keys};
    const auto denied = [&](const std::string& path) {
        return ((policy::EvaluatePath(view, path).bits >> SK_DENY_SHIFT) & (SK_OP_READ | SK_OP_WRITE)) != 0;
    };
    for (int i = 0; i < packet.message.fds_size(); ++i) {
        const api::FdRole role = packet.message.fds(i);
        if (role != api::FD_IN && role != api::FD_OUT && role != api::FD_BIND && role != api::FD_ROOTFS) {
            continue;
        }
        const Status status = launch::CheckBindSource(packet.fds[i].get(), denied,
                                                      {options_.config.runtime_dir, options_.config.pin_dir});
        if (!status.ok()) return status;
    }
    return absl::OkStatus();
}

StatusOr<const launch::SeccompProgram*> Agent::Seccomp(uint64_t grants, const api::Run& request) {
    const bool writable = absl::c_any_of(request.binds(), [](const api::Bind& b) { return b.writable(); });
    const auto key = std::make_tuple(grants, request.seccomp_json(), writable);
    auto it = seccomp_.find(key);
    if (it == seccomp_.end()) {
        SK_ASSIGN_OR_RETURN(launch::SeccompProgram program,
                            launch::CompileSeccomp(grants, request.seccomp_json(), writable));
        if (seccomp_.size() >= kMaxSeccomp) seccomp_.clear();
        it = seccomp_.emplace(key, std::move(program)).first;
    }
    return &it->second;
}

// Its name, and its cgroup: what a sandbox has before anybody asks for it.
void Agent::SetPlace(const std::string& id, api::StartShim* order) const {
    order->set_id(id);
    order->set_cgroup_name(options_.config.cgroup_name);
    order->mutable_limits()->set_memory_bytes(options_.config.memory_max_mib << 20);
    order->mutable_limits()->set_swap_bytes(options_.config.swap_max_mib << 20);
    order->mutable_limits()->set_pids(options_.config.pids_max);
    order->mutable_limits()->set_cpu_percent(options_.config.cpu_max_percent);
}

StatusOr<api::StartShim> Agent::MakeOrder(Run& run, sandbox::Sandbox& sandbox,
                                          const policy::CompiledPolicy& draft, const api::Run& request) {
    api::StartShim order;
    SetPlace(run.id, &order);
    const api::Limits& asked = request.contract().limits();
    api::Limits& limits = *order.mutable_limits();
    limits.set_memory_bytes(Tighter(limits.memory_bytes(), asked.memory_bytes()));
    limits.set_pids(Tighter(limits.pids(), asked.pids()));
    limits.set_cpu_percent(static_cast<uint32_t>(Tighter(limits.cpu_percent(), asked.cpu_percent())));
    *order.mutable_run() = request;
    order.mutable_run()->clear_policy();
    order.set_socket_path(options_.config.socket_path());
    order.set_agent_wait_ns(uint64_t{options_.config.agent_wait_seconds} * 1'000'000'000);
    order.set_uid(sandbox.uid);
    for (const policy::PortEntry& entry : run.policy.host) {
        for (uint32_t port = entry.ports.first; port <= entry.ports.last; ++port) {
            if (order.host_ports_size() >= static_cast<int>(launch::kMaxHostPorts)) {
                return absl::InvalidArgumentError(
                    absl::StrCat("network.host: more than ", launch::kMaxHostPorts, " ports"));
            }
            order.add_host_ports(port);
        }
    }
    order.set_egress(NeedsEgress(run.policy));
    if (policy::NeedsDns(run.policy)) {
        SK_ASSIGN_OR_RETURN(run.dns, dns_->Plan(run.policy));
        order.set_dns(true);
    }
    LandlockChoice landlock = LandlockFor(run.policy, draft, sensor_.backend(), bpf_before_landlock_);
    run.landlock = {.files = HasFileDomain(landlock.domain),
                    .directories = HidesDirectories(landlock.domain)};
    if (!landlock.left_out.empty()) {
        run.notes.push_back(landlock.left_out);
        sandbox.conditions.push_back("Degraded/NoLandlock");
    }
    *order.mutable_landlock() = std::move(landlock.domain);
    SK_ASSIGN_OR_RETURN(const launch::SeccompProgram* seccomp, Seccomp(run.policy.grants, request));
    order.set_seccomp_profile(Bytes(seccomp->profile));
    order.set_seccomp_floor(Bytes(seccomp->floor));
    return order;
}

void Agent::WatchControl(Run& run) {
    const Status status =
        loop_->Watch(run.control.fd(), EPOLLIN, [this, id = run.id](uint32_t) { OnControl(id); });
    if (!status.ok()) LogError(run.id, ": ", status.message());
}

void Agent::OnControl(const std::string& id) {
    while (Run* run = FindRun(id)) {
        if (!run->control.ok()) return;
        StatusOr<std::optional<api::Packet>> packet = run->control.TryReceive();
        if (!packet.ok()) return OnShimGone(*run);
        if (!packet->has_value()) return;
        HandleShim(*run, *std::move(*packet));
    }
}

void Agent::HandleShim(Run& run, api::Packet packet) {
    const api::Message& message = packet.message;
    switch (message.body_case()) {
        case api::Message::kShimCreated:
            return OnCreated(run, std::move(packet));
        case api::Message::kShimReleased:
            return OnReleased(run, message.shim_released());
        case api::Message::kShimEnded:
            return OnEnded(run, message.shim_ended());
        case api::Message::kShimFailed:
            return FailRun(run, message.shim_failed().error());
        case api::Message::kShimDestroyed:
            return OnDestroyed(
                run, message.shim_destroyed().removal(),
                {message.shim_destroyed().notes().begin(), message.shim_destroyed().notes().end()},
                message.shim_destroyed().has_outputs() ? &message.shim_destroyed().outputs() : nullptr);
        default:
            return;
    }
}

void Agent::OnCreated(Run& run, api::Packet packet) {
    sandbox::Sandbox* sandbox = registry_.Find(run.id);
    sandbox->init_pid = packet.message.shim_created().pid();
    for (const std::string& note : packet.message.shim_created().notes()) run.notes.push_back(note);
    const Fd pidfd = packet.Take(api::FD_PIDFD);
    PublishStep(*sandbox, model::LIFECYCLE_REGISTERED);
    Status status = BindRun(run, *sandbox, pidfd.get());
    if (status.ok() && !run.dns.upstreams().empty()) {
        status = dns_->Start(DnsOf(run, packet.message.shim_created().dns_address(), packet), run.policy);
    }
    api::Message answer;
    if (status.ok()) {
        Attest(run, *sandbox);
        answer.mutable_shim_go();
        status = run.control.Send(answer);
    }
    if (status.ok()) return;
    answer.mutable_shim_abort()->set_reason(std::string(status.message()));
    (void)run.control.Send(answer);  // a shim that is gone is seen by the loop
}

SandboxDns::Sandbox Agent::DnsOf(const Run& run, const std::string& address, api::Packet& packet) {
    const sandbox::Sandbox* sandbox = registry_.Find(run.id);
    return {.ref = {.slot = sandbox->slot, .generation = sandbox->generation},
            .id = run.id,
            .session = sandbox->info->labels.session,
            .plan = run.dns,
            .address = address,
            .udp = packet.Take(api::FD_DNS_UDP),
            .tcp = packet.Take(api::FD_DNS_TCP)};
}

// The order matters: the policy stands before the slot, the slot before the label, and all of it
// before the sandbox's first instruction.
Status Agent::BindRun(Run& run, sandbox::Sandbox& sandbox, int pidfd) {
    SK_ASSIGN_OR_RETURN(run.cgroup, Fd::OpenAt(options_.home.dir, run.id, O_RDONLY | O_DIRECTORY));
    SK_RETURN_IF_ERROR(BindCgroup(run, sandbox, pidfd, true));
    SK_RETURN_IF_ERROR(sensor_.Label({.slot = sandbox.slot, .generation = sandbox.generation}, pidfd));
    return EndBinding(sandbox);
}

// `closed`: whoever comes in later is none of its own (kernel::Sensor::Binding).
Status Agent::BindCgroup(Run& run, sandbox::Sandbox& sandbox, int pidfd, bool closed) {
    SK_ASSIGN_OR_RETURN(const Fd root,
                        Fd::Open(absl::StrCat("/proc/", sandbox.init_pid, "/root"), O_PATH | O_DIRECTORY));
    SK_ASSIGN_OR_RETURN(const auto compiled, compiler_.Compile(run.policy, {.root_fd = root.get()}));
    SK_ASSIGN_OR_RETURN(sandbox.policy_index, sensor_.PublishPolicy(compiled->cells));
    auto info = std::make_shared<model::SandboxInfo>(*sandbox.info);
    info->policies = {{.id = compiled->id, .name = compiled->name, .hash = compiled->hash_hex}};
    info->coverage = run.pod ? PodCoverage(sensor_.backend(), sensor_.missing())
                             : AttestedCoverage(sensor_.backend(), sensor_.missing(), run.landlock);
    registry_.ReplaceInfo(sandbox, info);
    const StatusOr<kernel::SlotRef> ref = sensor_.BindSlot({.cgroup_fd = run.cgroup.get(),
                                                            .root_pidfd = pidfd,
                                                            .policy_index = sandbox.policy_index,
                                                            .closed = closed});
    if (!ref.ok()) {
        DropPolicy(sandbox.policy_index);
        return ref.status();
    }
    registry_.Bind(sandbox, ref->slot, ref->generation);
    hub_->path().Track(ref->slot, ref->generation, 1);
    PublishStep(sandbox, model::LIFECYCLE_BOUND);
    return absl::OkStatus();
}

Status Agent::EndBinding(sandbox::Sandbox& sandbox) {
    SK_ASSIGN_OR_RETURN(const sk_state state, sensor_.ReadState({.slot = sandbox.slot, .generation = sandbox.generation}));
    if (state.condemned_ns != 0) return absl::AbortedError("the sandbox was condemned before its start");
    return registry_.Move(sandbox, model::SandboxState::kStarting);
}

void Agent::Attest(Run& run, sandbox::Sandbox& sandbox) {
    sandbox.times.attested_ns = BootNow();
    api::Attestation& attestation = run.attestation;
    const model::PolicyRef& policy = sandbox.info->policies.front();
    attestation.set_backend(sensor_.backend() == kernel::Backend::kLsm ? "lsm" : "signal");
    attestation.set_policy(policy.name);
    attestation.set_policy_hash(policy.hash);
    attestation.set_mode(sandbox.mode);
    attestation.set_attested_boot_ns(sandbox.times.attested_ns);
    for (const CoverageRow& row : CoverageRows(sandbox.info->coverage)) {
        attestation.add_coverage(absl::StrCat(row.operation, ": ", row.cell));
    }
    for (const std::string& note : run.notes) attestation.add_notes(note);
    sandbox::v1::StoredSandbox& stored = run.stored;
    const model::Labels& labels = sandbox.info->labels;
    stored.set_id(run.id);
    stored.set_session(labels.session);
    stored.set_tool(labels.tool);
    stored.set_trace(labels.trace);
    stored.mutable_labels()->insert(labels.free.begin(), labels.free.end());
    stored.set_runtime(sandbox.info->runtime);
    stored.set_policy_name(policy.name);
    stored.set_policy_hash(policy.hash);
    stored.set_policy_id(policy.id);
    stored.set_mode(sandbox.mode);
    stored.set_policy_index(sandbox.policy_index);
    stored.set_slot(sandbox.slot);
    stored.set_generation(sandbox.generation);
    stored.set_uid(sandbox.uid);
    stored.set_owner_uid(sandbox.owner_uid);
    stored.set_shim_pid(sandbox.shim_pid);
    stored.set_cgroup(sandbox.cgroup);
    stored.set_landlock(run.landlock.files);
    stored.set_landlock_directories(run.landlock.directories);
    if (!run.dns.upstreams().empty()) *stored.mutable_dns() = run.dns;
    if (run.pod) {
        stored.mutable_pod()->set_container_id(run.container_id);
        stored.mutable_pod()->set_init_pid(sandbox.init_pid);
        for (const std::string& condition : sandbox.conditions) stored.mutable_pod()->add_conditions(condition);
    }
    for (const std::string& arg : sandbox.argv) stored.add_argv(arg);
    stored.set_created_boot_ns(sandbox.times.created_ns);
    stored.set_attested_boot_ns(sandbox.times.attested_ns);
    const Status status = files_->Write(stored);
    if (!status.ok()) {
        sandbox.conditions.push_back("Degraded/NotAdoptable");
        LogWarning(run.id, ": a next agent cannot take it over: ", status.message());
    }
    TellPolicy(policy, run.pod ? std::nullopt : std::optional(sandbox.owner_uid));
    OpenEvidence(run, sandbox);
    PublishStep(sandbox, model::LIFECYCLE_ATTESTED);
}

void Agent::OnReleased(Run& run, const api::ShimReleased& released) {
    sandbox::Sandbox* sandbox = registry_.Find(run.id);
    if (!released.started()) return;  // its end follows, with the reason
    run.released = true;
    ++counts_.started;
    sandbox->times.started_ns = released.boot_ns();
    // Condemned already when its first instructions earned it.
    (void)registry_.Move(*sandbox, model::SandboxState::kRunning);
    PublishStep(*sandbox, model::LIFECYCLE_STARTED);
    api::Message message;
    api::RunStarted& started = *message.mutable_run_started();
    started.set_id(run.id);
    *started.mutable_attestation() = run.attestation;
    started.set_created_boot_ns(sandbox->times.created_ns);
    started.set_started_boot_ns(released.boot_ns());
    Send(run.client_fd, message);
    spare_wanted_ = true;
}

}  // namespace stockade::cmd
