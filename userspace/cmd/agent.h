// The agent: serves clients and shims, binds sandboxes in the kernel, and ends them.
//
//   SK_ASSIGN_OR_RETURN(auto agent, Agent::Create({...}));
//   SK_RETURN_IF_ERROR(agent->Serve());     // until SIGTERM, Shutdown, or idle for too long
//
// One thread, beside those of EventHub, EventStore and its pumps, RuleEngine, the stub and Killer. The sensor is called here, but for its
// rings, ReadState, PinAddress and RefundDns.
#pragma once

#include <signal.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "userspace/api/channel.h"
#include "userspace/cmd/access.h"
#include "userspace/cmd/agent_counts.h"
#include "userspace/cmd/agent_version.h"
#include "userspace/cmd/attestation.h"
#include "userspace/cmd/conditions.h"
#include "userspace/cmd/config.h"
#include "userspace/cmd/event_hub.h"
#include "userspace/cmd/evidence_keeper.h"
#include "userspace/cmd/event_loop.h"
#include "userspace/cmd/helper.h"
#include "userspace/cmd/pods.h"
#include "userspace/cmd/rule_engine.h"
#include "userspace/cmd/run_policy.h"
#include "userspace/cmd/sandbox_dns.h"
#include "userspace/cmd/service_manager.h"
#include "userspace/cmd/store_watch.h"
#include "userspace/kernel/sensor.h"
#include "userspace/launch/cgroup.h"
#include "userspace/launch/native.h"
#include "userspace/launch/seccomp.h"
#include "userspace/metrics/publisher.h"
#include "userspace/nri/link.h"
#include "userspace/policy/compile.h"
#include "userspace/respond/breaker.h"
#include "userspace/respond/gate.h"
#include "userspace/respond/killer.h"
#include "userspace/sandbox/evidence.h"
#include "userspace/sandbox/registry.h"
#include "userspace/sandbox/state_file.h"

namespace stockade::cmd {

// The node's name in events.
std::string HostName();

// Condition of sandboxes that run while the rules are not those that their files say.
inline constexpr char kRulesBroken[] = "Degraded/RulesBroken";

class Agent {
  public:
    struct Options {
        Config config;
        uint64_t idle_exit_ns = 0;         // 0 = stays; else leaves when so long without a sandbox
        Helper* helper = nullptr;          // not owned
        kernel::Sensor* sensor = nullptr;  // not owned
        Fd listen;
        launch::CgroupHome home;
        std::vector<pipeline::EventStore::Reader> exporters;  // none: nothing is spooled
        ServiceManager service;
        metrics::Publisher* metrics = nullptr;  // not owned; null = nobody looks
    };
    // SIGTERM and SIGINT, which stop it, become its own. To be called before the first thread is made: one that does not block them
    // could get them, and the process would end as it stands.
    static sigset_t TakeSignals();
    static StatusOr<std::unique_ptr<Agent>> Create(Options options);
    ~Agent();
    Status Serve();

  private:
    // A client, or a shim that has just connected.
    struct Connection {
        api::Channel channel;
        unsigned uid = 0;     // of the peer, as the kernel says
        bool follow = false;  // asked for events
        api::Events filter;
        std::string run_id;  // the run whose client it is
        bool run_events = false;
        uint64_t lost = 0;        // events that it was too slow for, and was not told of yet
        uint64_t blocked_ns = 0;  // boot; since then its socket has been full; 0 = it is not
    };
    // What was done to a sandbox beside its policy, for a rule or by hand.
    struct Restraint {
        bool frozen = false;
        bool isolated = false;
        std::string link;                                        // that was taken down
        std::set<std::pair<std::string, std::string>> denied{};  // operation, and the path, address or name
    };
    // What the agent keeps of a sandbox beside the registry.
    struct Run {
        std::string id;
        unsigned owner_uid = 0;
        api::Channel control;  // the shim; not ok() while an adopted one is waited for
        int client_fd = -1;    // key in connections_; -1 = none
        bool client_events = false;
        Fd cgroup;  // an open file of its own: the shim's one holds the lock
        policy::ResolvedPolicy policy;
        bool own_root = false;  // --rootfs: links of the host say nothing about it
        api::Attestation attestation;
        api::Labels labels;
        std::vector<std::string> notes;
        LandlockCover landlock;
        sandbox::v1::StoredDns dns;  // without upstreams: it asks nobody
        bool released = false;
        bool ended = false;
        api::ShimEnded end;
        bool killing = false;       // the killer is at it
        bool kill_owed = false;     // it could not be ordered: no descriptor was free
        uint64_t held_back_ns = 0;  // boot time since when the breaker holds its kill back; 0 = it does not
        uint64_t held_for_ns = 0;   // how long it did
        bool drain_asked = false;
        uint64_t drain_target = 0;
        bool collected = false;
        bool lingering = false;  // its end is told, and tasks in state D are left
        std::string pending;     // their pids
        respond::KillTimes kill;
        std::shared_ptr<sandbox::Evidence> evidence;
        std::string contract_name, contract_sha256;  // empty = it has none
        std::vector<std::string> raw_argv;           // with its secrets, until its evidence has it
        bool evidence_open = false;                  // its folder is written
        bool evidence_awaited = false;               // its folder is being closed, and its result waits for that
        int kill_client_fd = -1;  // waits for a KillReply
        bool adopted = false;     // what an earlier agent saw of it is not known
        uint64_t adopt_deadline_ns = 0;
        uint64_t rules_target = 0;    // of RuleEngine::pushed(): the books wait for the rules to come so far
        uint64_t rules_asked_ns = 0;  // since when; 0 = not yet
        Restraint restraint;
        sandbox::v1::StoredSandbox stored;      // as written for a next agent
        std::optional<v1::Action> kill_action;  // told with its latency once the sandbox is empty
        std::set<std::pair<std::string, std::string>> undeniable{};  // as Restraint::denied; their policy could not be made
        bool told_untold = false;               // an action without effect whose finding was told by number only
        uint64_t kill_event_ns = 0;             // boot time of the event that it is for
        api::RunResult result;
        // Of a pod's container: the runtime built it, and nothing of ours keeps it.
        bool pod = false;
        std::string container_id;  // the runtime's
        uint64_t cgroup_id = 0;  // that the network programs are attached to
        Fd cgroup_events;        // says when it is empty
    };

    // A sandbox without a command, made ahead for the next run that it fits. It is in no list and in no count.
    struct Spare {
        model::SandboxId id;
        api::Channel control;  // its end ends the spare
        int pid = -1;          // of the shim
        bool ready = false;
        std::string host;  // launch::HostView() before it was made
    };

    explicit Agent(Options options);
    Status Init();
    void OnAccept();
    void ResumeAccept();
    void OnConnection(int fd, uint32_t events);
    // False when the connection was closed or became a shim's.
    bool Handle(int fd, api::Packet packet);
    Status Admit(int fd, const api::Peer& peer);
    Status AdmitRun(int fd, api::Packet* packet) const;
    bool MaySee(const Connection& connection, const std::string& sandbox_id);
    // By the beginning of its id, among those that the peer may see.
    StatusOr<sandbox::Sandbox*> FindFor(int fd, const std::string& text);
    void Send(int fd, const api::Message& message);
    void SendError(int fd, const Status& status);
    void Close(int fd);
    void OnHelper();
    void OnHub();
    void OnTick();
    void EndHold();
    void UpdateBusy();

    // agent_start.cc
    void StartRun(int fd, api::Packet packet);
    Status PrepareRun(Connection& connection, api::Packet& packet, std::string* id);
    StatusOr<api::StartShim> MakeOrder(Run& run, sandbox::Sandbox& sandbox,
                                       const policy::CompiledPolicy& draft, const api::Run& request);
    Status CheckSources(const policy::CompiledPolicy& compiled, const api::Packet& packet);
    StatusOr<const launch::SeccompProgram*> Seccomp(uint64_t grants, const api::Run& request);
    void OnControl(const std::string& id);
    void HandleShim(Run& run, api::Packet packet);
    void OnCreated(Run& run, api::Packet packet);
    Status BindRun(Run& run, sandbox::Sandbox& sandbox, int pidfd);
    Status BindCgroup(Run& run, sandbox::Sandbox& sandbox, int pidfd, bool closed);
    Status EndBinding(sandbox::Sandbox& sandbox);
    SandboxDns::Sandbox DnsOf(const Run& run, const std::string& address, api::Packet& packet);
    void OnReleased(Run& run, const api::ShimReleased& released);
    void WatchControl(Run& run);
    void SetPlace(const std::string& id, api::StartShim* order) const;
    Status OrderShim(Run& run, std::unique_ptr<Spare> spare, const api::StartShim& order,
                     std::vector<api::FdArg> fds);
    void Attest(Run& run, sandbox::Sandbox& sandbox);

    // agent_spare.cc
    void MakeSpare();
    void OnSpare();
    std::unique_ptr<Spare> TakeSpare(const api::Run& request, const api::Packet& packet, bool egress);
    bool HostChanged();
    void DropSpare();
    void EndSpare();

    // agent_end.cc
    void OnUrgent(const v1::Event& event);
    void StartKill(Run& run, bool with_evidence);
    bool BreakerAllows(const sandbox::Sandbox& sandbox);
    void KillHeldBack();
    void WatchCondemned();
    void WatchLeftOut();
    void OnKiller();
    void OnKilled(Run& run, const respond::Killed& killed);
    void OnEnded(Run& run, const api::ShimEnded& ended);
    void AskDrain(Run& run);
    void OnPending(Run& run, const respond::KillReport& report);
    void Collect(Run& run);
    void CloseBooks(Run& run, std::string* withhold);
    // Says in the result that a policy ended it, if so. Returns why /out must not be copied.
    std::string JudgeEnd(Run& run, const v1::Summary& summary, const sk_state* state);
    void OnDestroyed(Run& run, const api::Removal& removal, const std::vector<std::string>& notes,
                     const api::Outputs* outputs = nullptr);
    void TellResult(Run& run, bool lingers);
    void OnShimGone(Run& run);
    void FailRun(Run& run, const std::string& reason);
    bool Linger(Run& run);
    void LetClientGo(Run& run);
    void Remove(Run& run);
    void Unbind(sandbox::Sandbox& sandbox);

    // agent_rules.cc
    Status StartRules();
    void OnRules();
    void TellRules(const RuleEngine::Notice& notice);
    void TellMissed(const std::string& id);
    bool RulesDone(Run& run);
    void Respond(const RuleFinding& finding);
    void RespondTo(const std::string& id, const RuleFinding& finding);
    Status Act(Run& run, sandbox::Sandbox& sandbox, const RuleFinding& finding);
    static bool IsDone(const Run& run, const RuleFinding& finding);
    static v1::Action ActionOf(absl::string_view action, const RuleFinding& finding);
    v1::Action ActionOf(absl::string_view action, const Connection& actor, const std::string& reason) const;
    void PublishAction(const sandbox::Sandbox& sandbox, v1::Action action);
    void TellKillAction(Run& run, const sandbox::Sandbox& sandbox);

    // agent_restrain.cc
    void ControlOnRequest(int fd, const api::Control& control);
    Status Control(const std::string& action, Run& run, sandbox::Sandbox& sandbox);
    void ShowRestraint(const Run& run, sandbox::Sandbox& sandbox);
    Status ApplyDeniedNames(const Run& run, const sandbox::Sandbox& sandbox);
    void KeepRestraint(Run& run, sandbox::Sandbox& sandbox);
    static void TakeRestraint(const sandbox::v1::StoredRestraint& stored, Restraint* restraint);
    Status Freeze(Run& run, sandbox::Sandbox& sandbox, bool freeze);
    Status Isolate(Run& run, sandbox::Sandbox& sandbox);
    Status Release(Run& run, sandbox::Sandbox& sandbox);
    Status Deny(Run& run, sandbox::Sandbox& sandbox, const std::map<std::string, std::string>& what);
    Status EndForRule(Run& run, sandbox::Sandbox& sandbox, const RuleFinding& finding);
    Status KnowPolicy(Run& run, const sandbox::Sandbox& sandbox);
    Status ApplyRestraint(Run& run, sandbox::Sandbox& sandbox, const Restraint& wanted);

    // agent_events.cc
    void OpenStore();
    void StartStore();

    // agent_evidence.cc
    Status StartEvidence();
    void OpenEvidence(Run& run, const sandbox::Sandbox& sandbox);
    void FinishEvidence(Run& run);
    void OnEvidence();
    void CheckBudget(Run& run, const sandbox::Sandbox& sandbox);

    // agent_garbage.cc
    launch::Leftovers CollectGarbage(bool dry_run);
    void TellGarbage(const launch::Leftovers& left);
    void WatchGarbage();
    void AnswerGc(int fd, bool dry_run);

    // agent_metrics.cc
    void PublishMetrics();
    void CountSandboxes(metrics::Families* out);
    void CountKernel(metrics::Families* out);
    void CountAgent(metrics::Families* out);
    void CountEvidence(metrics::Families* out);
    std::vector<Condition> AgentConditions() const;

    // agent_adopt.cc
    Status AdoptAll();
    Status AdoptOne(const kernel::Sensor::LiveSlot& live, const sandbox::StoredSandbox& stored);
    void AdoptRun(const sandbox::Sandbox& sandbox, const sandbox::StoredSandbox& stored);
    void AdoptHello(int fd, api::Packet packet);
    void EndOrphans();

    // agent_pods.cc
    Status StartPods();
    void OnNri();
    void OnNriCall(const nri::Call& call);
    Status CreatePod(const nri::PodSandbox& pod, const nri::Container& container);
    Status StartPod(const nri::PodSandbox& pod, const nri::Container& container);
    void OnSynchronized(const nri::Call& call);
    void SynchronizeOne(const nri::PodSandbox& pod, const nri::Container& container);
    void BindUnprotected();
    StatusOr<PodEntry> PlanPod(const nri::PodSandbox& pod, const nri::Container& container);
    Status BindPod(PodEntry& entry, bool unprotected);
    Status BindPodRun(Run& run, sandbox::Sandbox& sandbox, const PodEntry& entry);
    Status BindPodDns(Run& run, const sandbox::Sandbox& sandbox);
    void OnUnheard(const std::string& container_id);
    void TellUnprotected(Run& run, sandbox::Sandbox& sandbox);
    Status AdoptPod(Run& run, sandbox::Sandbox& sandbox, const sandbox::StoredSandbox& stored, uint64_t cgroup_id);
    Status WatchPod(Run& run);
    void OnPodCgroup(const std::string& id);
    void OnPodEmpty(Run& run);
    void OnPodStopped(const nri::Container& container);
    void WatchPods();
    void ForgetPod(Run& run);

    // agent_query.cc
    api::SandboxRow Row(sandbox::Sandbox& sandbox, size_t max_command_bytes);
    void AnswerPs(int fd, const std::string& after);
    const char* BackendName() const;
    void AnswerInspect(int fd, const std::string& id);
    void AnswerVersion(int fd);
    void KillOnRequest(int fd, const api::Kill& kill);
    void AttachClient(int fd, const api::Attach& attach);
    void Distribute(const std::vector<StreamedEvent>& events);
    void DistributeTo(int fd, Connection& connection, const std::vector<StreamedEvent>& events);
    void TellDelivered();
    void TellLost(Connection& connection);

    // agent_events.cc
    void PublishStep(const sandbox::Sandbox& sandbox, int step, const std::string& detail = "");
    void TellPolicy(const model::PolicyRef& policy, std::optional<uint32_t> actor_uid);
    void TellOwn(const std::string& op, const std::string& detail);
    void PublishKilled(const Run& run, const sandbox::Sandbox& sandbox, bool pending);
    v1::Event Envelope(const sandbox::Sandbox& sandbox) const;

    Run* FindRun(const std::string& id);
    void DropPolicy(uint32_t index);

    Options options_;
    const Access access_;
    AgentCounts counts_;
    RefusalCounts refusals_;  // outlives hub_
    kernel::Sensor& sensor_;
    std::unique_ptr<EventLoop> loop_;
    sandbox::Registry registry_;
    std::unique_ptr<SandboxDns> dns_;
    std::unique_ptr<pipeline::EventStore> store_;  // null = nothing is spooled
    std::unique_ptr<RuleEngine> rules_;            // null = none are run
    std::deque<RuleFinding> rule_findings_;        // to be acted on at a next turn
    uint64_t rules_handled_ = 0;                   // events whose findings are out
    bool rules_broken_ = false;
    std::map<std::string, RuleEngine::Missed> rules_missed_;  // by sandbox, not told yet; of those in runs_
    uint64_t rules_missed_ns_ = 0;                            // when they were told
    respond::Gate gate_;
    std::unique_ptr<EvidenceKeeper> keeper_;            // null = none is kept
    std::atomic<EvidenceKeeper*> evidence_sink_{nullptr};  // keeper_, for the thread that hands events on
    std::unique_ptr<StoreWatch> store_watch_;  // null likewise; ends before store_
    std::unique_ptr<EventHub> hub_;
    pipeline::EventPath* path_ = nullptr;  // of hub_, also while that ends
    std::unique_ptr<respond::Killer> killer_;
    std::unique_ptr<sandbox::StateFiles> files_;
    respond::Breaker breaker_;
    PolicyStore policies_;
    policy::Compiler compiler_;
    bool bpf_before_landlock_ = false;
    std::map<int, std::unique_ptr<Connection>> connections_;
    std::map<std::string, std::unique_ptr<Run>> runs_;
    // Bound: cleared when it has kMaxSeccomp entries; profiles are few.
    std::map<std::tuple<uint64_t, std::string, bool>, launch::SeccompProgram> seccomp_;
    std::unique_ptr<nri::Link> nri_;         // null = the agent is no plugin
    std::map<std::string, PodEntry> pods_;  // by the runtime's id of the container; at most kMaxPods
    std::deque<PodEntry> unprotected_;      // started without us, and still to be bound
    PodCounts pod_counts_;
    bool nri_up_ = false;        // when it was last looked at
    bool keep_earlier_ = false;  // an earlier agent's programs are all that some pod has
    std::unique_ptr<Spare> spare_;
    bool spare_wanted_ =
        false;      // a run has started: at the next tick, and not in the way of its own first steps
    Fd mountinfo_;  // poll tells whether the host's mounts have changed since the last one
    uint64_t idle_since_ns_ = 0;
    bool dns_adopted_ = false;
    uint64_t adopted_ns_ = 0;        // the rings are held since then; 0 = they are read
    uint64_t came_ns_ = 0;           // last connection while they are held
    uint64_t accept_paused_ns_ = 0;  // no connection can be accepted since then; 0 = they can
    uint64_t left_out_ns_ = 0;       // when it was looked at
    uint64_t left_out_ = 0;
    uint64_t left_out_grew_ns_ = 0;  // 0 = never
    uint64_t published_ns_ = 0;      // metrics
    uint64_t garbage_ns_ = 0;        // when it was looked for what is left
    uint64_t left_over_ = 0;         // as then
    std::set<std::string> garbage_told_;
    bool helper_gone_ = false;
    bool accept_failed_ = false;  // the last try failed, and the log says so
    std::map<std::string, std::string> policies_told_;  // hash by name
    Fd signals_;
};

}  // namespace stockade::cmd
