#include "userspace/cmd/agent.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/log.h"
#include "userspace/base/wall_time.h"
#include "userspace/cmd/landlock_rules.h"
#include "userspace/model/lifecycle.h"

namespace stockade::cmd {
namespace {

constexpr int kTickMs = 100;
constexpr uint64_t kAcceptPauseNs = 1'000'000'000;
// After an adoption: so long after the last connection all clients are taken to be back (they look for
// their agent ten times a second, and a loaded host runs them late); and not longer than this in all, for the ring holds
// half a minute of many attackers, and what no agent read is in it already.
constexpr uint64_t kQuietNs = 1'000'000'000;
constexpr uint64_t kMaxHoldNs = 5'000'000'000;
// After the last sandbox; who starts one a second does not wait for the attaching each time.
constexpr uint64_t kRestNs = 3'000'000'000;
// Between two looks at what the kernel left out.
constexpr uint64_t kLeftOutNs = 1'000'000'000;
// What exporters have under way at the end; what they have not comes again at the next start.
constexpr int kDrainMs = 3000;
constexpr char kCallsUnjudged[] = "Degraded/CallsUnjudged";
// Connections at once: a client for each sandbox, and some that ask.
constexpr size_t kMaxConnections = 2 * SK_MAX_SLOTS;

}  // namespace

Agent::Agent(Options options)
    : options_(std::move(options)),
      access_(options_.config.api),
      sensor_(*options_.sensor),
      registry_({.first_uid = options_.config.uid_first, .uid_count = options_.config.uid_count}),
      gate_({.kills = options_.config.kills_per_minute}),
      breaker_({.kills = options_.config.kills_per_minute}),
      policies_(options_.config.policy_dirs, options_.config.default_policy),
      compiler_(sensor_.keys()) {}

// The stub's thread publishes through the hub, the hub's calls back into the registry, the killer's use evidence of
// runs: they end in this order, and first.
Agent::~Agent() {
    nri_.reset();
    EndSpare();
    if (dns_ != nullptr) dns_->StopAnswers();
    if (rules_ != nullptr) rules_->Stop();
    hub_.reset();
    keeper_.reset();
    killer_.reset();
    store_watch_.reset();
    if (store_ != nullptr) store_->Stop(kDrainMs);
    if (dns_ != nullptr) dns_->KeepAll();
    dns_.reset();
}

StatusOr<std::unique_ptr<Agent>> Agent::Create(Options options) {
    auto agent = std::unique_ptr<Agent>(new Agent(std::move(options)));
    SK_RETURN_IF_ERROR(agent->Init());
    return agent;
}

sigset_t Agent::TakeSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signo : {SIGTERM, SIGINT}) sigaddset(&signals, signo);
    (void)pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // fails for a set that is none
    return signals;
}

Status Agent::Init() {
    const sigset_t signals = TakeSignals();
    SK_ASSIGN_OR_RETURN(loop_, EventLoop::Create());
    SK_ASSIGN_OR_RETURN(killer_, respond::Killer::Create());
    SK_ASSIGN_OR_RETURN(sandbox::StateFiles files,
                        sandbox::StateFiles::Create(options_.config.runtime_dir + "/sandboxes"));
    files_ = std::make_unique<sandbox::StateFiles>(std::move(files));
    bpf_before_landlock_ = BpfBeforeLandlock();
    OpenStore();
    pipeline::EventPath::Options path;
    path.node = HostName();
    path.wall_offset_ns = WallAt(0);
    path.lookup = [this](uint32_t slot, uint32_t generation) { return registry_.Lookup(slot, generation); };
    path.suppressed = [this](uint32_t slot, uint32_t generation) -> uint64_t {
        const StatusOr<sk_state> state = sensor_.ReadState({.slot = slot, .generation = generation});
        return state.ok() ? state->suppressed : 0;  // a slot that is free again explains nothing
    };
    dns_ = std::make_unique<SandboxDns>(
        SandboxDns::Options{.sensor = options_.sensor,
                            .publish = [this](v1::Event event) { path_->Publish(std::move(event)); },
                            .answered = [this](const std::string& id, const dns::StubAnswered& answered) {
                                for (const auto& pinned : answered.addresses)
                                    path_->LearnName(id, pinned.address.ToString(), answered.name);
                            },
                            .runtime_dir = options_.config.runtime_dir,
                            .state_dir = options_.config.state_dir});
    SK_ASSIGN_OR_RETURN(
        hub_, EventHub::Create(
                  sensor_, std::move(path),
                  [this](std::span<const uint8_t> record) { dns_->OnRecord(record); }, store_.get()));
    path_ = &hub_->path();
    path_->AddObserver([this](const v1::Event& event) { refusals_.Count(event); });
    if (options_.config.evidence.on()) {
        path_->AddObserver([this](const v1::Event& event) {
            if (EvidenceKeeper* keeper = evidence_sink_) keeper->OnEvent(event);
        });
    }
    SK_RETURN_IF_ERROR(StartRules());

    signals_ = Fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_.ok()) return ErrnoStatus(errno, "make a signalfd");

    SK_RETURN_IF_ERROR(AdoptAll());
    // Not before pods carry our programs: theirs stand on cgroups of their own.
    if (keep_earlier_) {
        LogError("programs of an earlier agent stay beside ours: a pod could not be given its own");
    } else {
        SK_RETURN_IF_ERROR(sensor_.RemoveEarlierSets());
    }
    SK_RETURN_IF_ERROR(StartEvidence());
    StartStore();
    if (store_ != nullptr) store_watch_ = std::make_unique<StoreWatch>(*store_);
    if (!runs_.empty()) {
        adopted_ns_ = came_ns_ = BootNow();
        hub_->SetHold(true);
    }
    hub_->Start();
    SK_RETURN_IF_ERROR(loop_->Watch(options_.listen.get(), EPOLLIN, [this](uint32_t) { OnAccept(); }));
    SK_RETURN_IF_ERROR(loop_->Watch(hub_->event_fd(), EPOLLIN, [this](uint32_t) { OnHub(); }));
    SK_RETURN_IF_ERROR(loop_->Watch(killer_->event_fd(), EPOLLIN, [this](uint32_t) { OnKiller(); }));
    SK_RETURN_IF_ERROR(loop_->Watch(signals_.get(), EPOLLIN, [this](uint32_t) { loop_->Stop(); }));
    SK_RETURN_IF_ERROR(
        loop_->Watch(options_.helper->channel().fd(), EPOLLIN, [this](uint32_t) { OnHelper(); }));
    SK_RETURN_IF_ERROR(StartPods());
    loop_->Every(kTickMs, [this] { OnTick(); });
    idle_since_ns_ = BootNow();
    if (!access_.warning().empty()) LogWarning(access_.warning());
    return absl::OkStatus();
}

Status Agent::Serve() {
    PublishMetrics();
    // Everything is attached, a call of our own was denied, and whoever connects is answered.
    options_.service.Ready(absl::StrCat("backend ", BackendName(), ", ", registry_.size(), " sandboxes"));
    const Status status = loop_->Run();
    options_.service.Stopping();
    return status;
}

void Agent::OnAccept() {
    while (true) {
        StatusOr<std::optional<api::Channel>> channel = api::Accept(options_.listen.get());
        if (!channel.ok()) {
            // Out of descriptors, and those who wait stay readable: looked at again when one is free.
            if (!accept_failed_) LogError(channel.status().message(), ": clients have to wait");
            accept_failed_ = true;
            accept_paused_ns_ = BootNow();
            (void)loop_->Change(options_.listen.get(), 0);
            return;
        }
        accept_failed_ = false;
        if (!channel->has_value()) return;
        const StatusOr<api::Peer> peer = (*channel)->PeerCredentials();
        auto connection = std::make_unique<Connection>();
        connection->channel = *std::move(*channel);
        const int fd = connection->channel.fd();
        if (peer.ok()) connection->uid = peer->uid;
        connections_[fd] = std::move(connection);
        came_ns_ = BootNow();
        if (const Status admitted = peer.ok() ? Admit(fd, *peer) : peer.status(); !admitted.ok()) {
            ++counts_.refused_clients;
            SendError(fd, admitted);
            Close(fd);
            continue;
        }
        const Status status =
            loop_->Watch(fd, EPOLLIN, [this, fd](uint32_t events) { OnConnection(fd, events); });
        if (!status.ok()) Close(fd);
    }
}

Status Agent::Admit(int fd, const api::Peer& peer) {
    SK_RETURN_IF_ERROR(access_.CheckPeer(peer, fd));
    const size_t same =
        peer.uid == 0 ? 0 : static_cast<size_t>(absl::c_count_if(connections_, [&](const auto& entry) {
            return entry.second->uid == peer.uid;
        }));
    if (connections_.size() > kMaxConnections || same > kMaxMemberConnections) {
        return absl::ResourceExhaustedError("too many clients are connected");
    }
    return absl::OkStatus();
}

void Agent::ResumeAccept() {
    if (accept_paused_ns_ == 0) return;
    accept_paused_ns_ = 0;
    (void)loop_->Change(options_.listen.get(), EPOLLIN);
}

void Agent::OnConnection(int fd, uint32_t events) {
    auto it = connections_.find(fd);
    if (it == connections_.end()) return;
    if (events & EPOLLOUT) {
        const StatusOr<bool> done = it->second->channel.Flush();
        if (!done.ok()) return Close(fd);
        if (*done) {
            (void)loop_->Change(fd, EPOLLIN);
            DistributeTo(fd, *it->second, {});
            TellDelivered();
        }
    }
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    while ((it = connections_.find(fd)) != connections_.end()) {
        StatusOr<std::optional<api::Packet>> packet = it->second->channel.TryReceive();
        if (!packet.ok()) {
            // Bytes of another protocol or version get an answer; a closed stream does not.
            if (!absl::IsUnavailable(packet.status())) SendError(fd, packet.status());
            return Close(fd);
        }
        if (!packet->has_value() || !Handle(fd, *std::move(*packet))) return;
    }
}

bool Agent::Handle(int fd, api::Packet packet) {
    const api::Message& message = packet.message;
    if (connections_[fd]->uid != 0) {
        if (const Status allowed = Access::CheckMessage(message); !allowed.ok()) {
            ++counts_.refused_requests;
            SendError(fd, allowed);
            return true;
        }
    }
    switch (message.body_case()) {
        case api::Message::kRun:
            StartRun(fd, std::move(packet));
            return true;
        case api::Message::kAttach:
            AttachClient(fd, message.attach());
            return true;
        case api::Message::kPs:
            AnswerPs(fd, message.ps().after());
            return true;
        case api::Message::kInspect:
            AnswerInspect(fd, message.inspect().id());
            return true;
        case api::Message::kKill:
            KillOnRequest(fd, message.kill());
            return true;
        case api::Message::kControl:
            ControlOnRequest(fd, message.control());
            return true;
        case api::Message::kPing:
            AnswerVersion(fd);
            return true;
        case api::Message::kGc:
            AnswerGc(fd, message.gc().dry_run());
            return true;
        case api::Message::kEvents:
            connections_[fd]->follow = true;
            connections_[fd]->filter = message.events();
            connections_[fd]->filter.set_session(access_.SessionOf(connections_[fd]->uid, message.events().session()));
            UpdateBusy();
            return true;
        case api::Message::kShutdown:
            if (!runs_.empty() && !message.shutdown().force()) {
                SendError(fd, absl::FailedPreconditionError(
                                  absl::StrCat(runs_.size(), " sandboxes are running: end them first")));
                return true;
            }
            {
                api::Message ok;
                ok.mutable_ok();
                Send(fd, ok);
            }
            loop_->Stop();
            return true;
        case api::Message::kShimHello:
            AdoptHello(fd, std::move(packet));
            return false;
        default:
            SendError(fd, absl::InvalidArgumentError("the agent does not take this message"));
            Close(fd);
            return false;
    }
}

void Agent::Send(int fd, const api::Message& message) {
    const auto it = connections_.find(fd);
    if (it == connections_.end()) return;
    api::Channel& channel = it->second->channel;
    Status status = channel.Queue(message);
    if (status.ok()) {
        const StatusOr<bool> done = channel.Flush();
        status = done.status();
        if (done.ok() && !*done) (void)loop_->Change(fd, EPOLLIN | EPOLLOUT);
    }
    if (status.ok()) return;
    if (!absl::IsUnavailable(status)) LogWarning("client: ", status.message());
    // An answer that cannot be sent is one that cannot be: whoever asked must not wait for it.
    api::Message error;
    error.mutable_error()->set_message(absl::StrCat("the answer cannot be sent: ", status.message()));
    error.mutable_error()->set_code(static_cast<int>(status.code()));
    if (!message.has_error() && channel.Queue(error).ok() && channel.Flush().ok()) return;
    // A client that takes nothing at all loses its connection. The loop sees its end: Close here
    // would take the connection from under whoever called.
    (void)shutdown(fd, SHUT_RDWR);
}

void Agent::SendError(int fd, const Status& status) {
    api::Message message;
    message.mutable_error()->set_message(std::string(status.message()));
    message.mutable_error()->set_code(static_cast<int>(status.code()));
    Send(fd, message);
}

void Agent::Close(int fd) {
    const auto it = connections_.find(fd);
    if (it == connections_.end()) return;
    loop_->Forget(fd);
    if (Run* run = FindRun(it->second->run_id); run != nullptr && run->client_fd == fd) run->client_fd = -1;
    for (auto& [id, run] : runs_) {
        if (run->kill_client_fd == fd) run->kill_client_fd = -1;
    }
    connections_.erase(it);
    ResumeAccept();
    UpdateBusy();
}

void Agent::OnHelper() {
    while (true) {
        StatusOr<std::optional<api::Packet>> packet = options_.helper->channel().TryReceive();
        if (!packet.ok()) {
            LogError("the root helper is gone: no sandbox can be started; restart the agent");
            loop_->Forget(options_.helper->channel().fd());
            helper_gone_ = true;
            return;
        }
        if (!packet->has_value()) return;
        const api::ShimStarted& started = (*packet)->message.shim_started();
        if (spare_ != nullptr && spare_->id.str() == started.id() && started.pid() < 0) DropSpare();
        Run* run = FindRun(started.id());
        if (run == nullptr) continue;
        if (started.pid() < 0) {
            FailRun(*run, started.error());
        } else if (sandbox::Sandbox* sandbox = registry_.Find(run->id)) {
            sandbox->shim_pid = started.pid();
        }
    }
}

void Agent::OnHub() {
    for (const v1::Event& event : hub_->TakeUrgent()) OnUrgent(event);
    Distribute(hub_->TakeEvents());
    const uint64_t drained = hub_->drained();
    std::vector<std::string> ready;
    for (auto& [id, run] : runs_) {
        if (run->drain_asked && !run->collected && run->drain_target <= drained && RulesDone(*run)) ready.push_back(id);
    }
    for (const std::string& id : ready) {
        if (Run* run = FindRun(id)) Collect(*run);
    }
}

// After an adoption the rings wait for the shims, and then for clients, which come by themselves.
void Agent::EndHold() {
    if (!dns_adopted_ &&
        absl::c_none_of(runs_, [](const auto& run) { return run.second->adopt_deadline_ns != 0; })) {
        dns_adopted_ = true;
        dns_->EndAdoption();
    }
    if (adopted_ns_ == 0) return;
    const uint64_t now = BootNow();
    bool awaited = now - came_ns_ < kQuietNs;
    for (const auto& [id, run] : runs_) awaited = awaited || run->adopt_deadline_ns != 0;
    if (awaited && now - adopted_ns_ < kMaxHoldNs) return;
    adopted_ns_ = 0;
    hub_->SetHold(false);
}

void Agent::OnTick() {
    options_.service.Alive(BootNow());
    PublishMetrics();
    OnHub();
    EndHold();
    EndOrphans();
    WatchPods();
    WatchCondemned();
    KillHeldBack();
    WatchLeftOut();
    WatchGarbage();
    OnRules();
    if (spare_ != nullptr && HostChanged()) DropSpare();
    if (std::exchange(spare_wanted_, false)) MakeSpare();
    const uint64_t now = BootNow();
    dns_->Keep();
    // Descriptors become free elsewhere too.
    if (accept_paused_ns_ != 0 && now - accept_paused_ns_ >= kAcceptPauseNs) ResumeAccept();
    if (!runs_.empty()) idle_since_ns_ = now;
    if (now - idle_since_ns_ >= kRestNs) {
        if (const Status status = sensor_.Rest(); !status.ok()) LogWarning("rest: ", status.message());
    }
    if (options_.idle_exit_ns != 0 && now - idle_since_ns_ >= options_.idle_exit_ns) {
        LogInfo("no sandbox is left: leaving");
        loop_->Stop();
    }
}

// Calls that no program was run for are told of whoever may have made them: all that are here.
void Agent::WatchLeftOut() {
    const uint64_t now = BootNow();
    if (now - left_out_ns_ < kLeftOutNs) return;
    left_out_ns_ = now;
    const StatusOr<uint64_t> count = sensor_.LeftOut();
    if (!count.ok() || *count <= left_out_) return;
    left_out_grew_ns_ = now;
    const uint64_t more = *count - std::exchange(left_out_, *count);
    const std::string text = absl::StrCat("the kernel left out ", more,
                                          " runs of programs: as many calls may not have been judged");
    LogError(text);
    for (const auto& [id, run] : runs_) {
        sandbox::Sandbox* sandbox = registry_.Find(id);
        if (sandbox == nullptr) continue;
        if (!absl::c_linear_search(sandbox->conditions, kCallsUnjudged))
            sandbox->conditions.push_back(kCallsUnjudged);
        PublishStep(*sandbox, model::LIFECYCLE_DEGRADED, text);
    }
}

void Agent::UpdateBusy() {
    bool listening = false;
    for (const auto& [fd, connection] : connections_) {
        listening = listening || connection->follow || connection->run_events;
    }
    hub_->SetListening(listening);
    hub_->SetBusy(!runs_.empty());
}

Agent::Run* Agent::FindRun(const std::string& id) {
    const auto it = runs_.find(id);
    return it == runs_.end() ? nullptr : it->second.get();
}

void Agent::DropPolicy(uint32_t index) {
    const Status status = sensor_.RetirePolicy(index);
    if (!status.ok()) LogWarning("retire a policy: ", status.message());
}

}  // namespace stockade::cmd
