// What the rules find, and what is done for it.
#include <sys/epoll.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/cmd/agent.h"
#include "userspace/decode/redact.h"
#include "userspace/model/lifecycle.h"

namespace stockade::cmd {
namespace {

using detect::ResponseAction;

// The books of a sandbox wait no longer than this for the rules: its client waits for them.
constexpr uint64_t kRulesWaitNs = 2'000'000'000;
// Of acting on findings, until the loop serves others.
constexpr uint64_t kRulesTurnNs = 20'000'000;
// Between two words about what the rules have missed.
constexpr uint64_t kTellMissedNs = 1'000'000'000;
constexpr char kRulesBehind[] = "Degraded/RulesBehind";

void SetCondition(sandbox::Sandbox& sandbox, const char* condition, bool on) {
    std::vector<std::string>& all = sandbox.conditions;
    const auto at = std::find(all.begin(), all.end(), condition);
    if (on && at == all.end()) all.push_back(condition);
    if (!on && at != all.end()) all.erase(at);
}

// A sandbox that did it and is stopped for it, for the breaker to count.
bool Stops(ResponseAction action) {
    return action == ResponseAction::kKillSandbox || action == ResponseAction::kKillProcess ||
           action == ResponseAction::kFreeze || action == ResponseAction::kIsolateNetwork;
}

// Of the events that a finding names: their ids are SANDBOX.NUMBER.
std::set<std::string> GroupOf(const v1::Event& finding) {
    std::set<std::string> ids = {finding.sandbox().id()};
    for (const std::string& id : finding.finding().evidence()) ids.insert(id.substr(0, id.find('.')));
    return ids;
}

}  // namespace

Status Agent::StartRules() {
    if (!options_.config.rules.enabled) return absl::OkStatus();
    rules_ = std::make_unique<RuleEngine>(RuleEngine::Options{.config = options_.config.rules});
    hub_->path().AddRawObserver(
        [this](const std::shared_ptr<const v1::Event>& event) { rules_->Push(event); });
    SK_RETURN_IF_ERROR(rules_->Start());
    return loop_->Watch(rules_->event_fd(), EPOLLIN, [this](uint32_t) { OnRules(); });
}

void Agent::OnRules() {
    if (rules_ == nullptr) return;
    RuleEngine::Taken taken = rules_->Take();
    for (const RuleEngine::Notice& notice : taken.notices) TellRules(notice);
    // What ends a sandbox comes first, and all else a little at a time: each may compile a policy, and others wait for this thread.
    for (RuleFinding& finding : taken.findings) {
        if (Stops(finding.action))
            Respond(finding);
        else
            rule_findings_.push_back(std::move(finding));
    }
    const uint64_t begin = BootNow();
    while (!rule_findings_.empty() && BootNow() - begin < kRulesTurnNs) {
        Respond(rule_findings_.front());
        rule_findings_.pop_front();
    }
    if (!rule_findings_.empty()) rules_->Wake();
    for (const auto& [id, missed] : taken.missed) {
        if (FindRun(id) == nullptr) continue;
        RuleEngine::Missed& sum = rules_missed_[id];
        sum.events += missed.events;
        sum.refused += missed.refused;
        sum.findings += missed.findings;
    }
    const uint64_t now = BootNow();
    if (!rules_missed_.empty() && now - rules_missed_ns_ >= kTellMissedNs) {
        rules_missed_ns_ = now;
        while (!rules_missed_.empty()) TellMissed(std::string(rules_missed_.begin()->first));
    }
    const bool further = rule_findings_.empty() && rules_handled_ != taken.handled;
    if (further) rules_handled_ = taken.handled;
    if (further && std::any_of(runs_.begin(), runs_.end(),
                               [](const auto& run) { return run.second->rules_asked_ns != 0; }))
        OnHub();
}

// Whether all that the sandbox did has been looked at, so that its books can be closed.
bool Agent::RulesDone(Run& run) {
    if (rules_ == nullptr) return true;
    if (run.rules_asked_ns == 0) {
        run.rules_asked_ns = BootNow();
        run.rules_target = rules_->pushed();
        if (rules_handled_ < run.rules_target) rules_->Await(run.rules_target);
    }
    const bool late = BootNow() - run.rules_asked_ns > kRulesWaitNs;
    if (rules_handled_ < run.rules_target && !late) return false;
    if (late) rules_missed_[run.id].events += rules_->Waiting(run.id);
    TellMissed(run.id);
    return true;
}

void Agent::TellRules(const RuleEngine::Notice& notice) {
    rules_broken_ = notice.broken;
    if (notice.broken) {
        LogError("rules: ", notice.text);
    } else {
        LogInfo("rules: ", notice.text);
    }
    for (sandbox::Sandbox* sandbox : registry_.All()) SetCondition(*sandbox, kRulesBroken, notice.broken);
    TellOwn(notice.broken ? "rules-broken" : "rules-loaded", notice.text);
}

void Agent::TellMissed(const std::string& id) {
    const auto node = rules_missed_.extract(id);
    sandbox::Sandbox* sandbox = registry_.Find(id);
    if (node.empty() || sandbox == nullptr) return;
    const RuleEngine::Missed& missed = node.mapped();
    if (missed.findings > 0) {
        // No step of its life, and nothing that is wrong with it: it repeats itself.
        v1::Event event = Envelope(*sandbox);
        event.set_kind("finding");
        event.mutable_finding()->set_rule("rules");
        event.mutable_finding()->set_title("Findings told by number only");
        event.mutable_finding()->set_severity("info");
        event.mutable_finding()->set_detail(
            absl::StrCat(missed.findings, " more of rules that have found the same again and again"));
        hub_->path().Publish(std::move(event));
    }
    if (missed.events + missed.refused == 0) return;
    SetCondition(*sandbox, kRulesBehind, true);
    std::string text = "rules: ";
    if (missed.events > 0)
        absl::StrAppend(&text, missed.events, " events came faster than they could be looked at; ");
    if (missed.refused > 0)
        absl::StrAppend(&text, missed.refused, " refused operations were not looked at; ");
    PublishStep(*sandbox, model::LIFECYCLE_DEGRADED, text.substr(0, text.size() - 2));
}

void Agent::Respond(const RuleFinding& finding) {
    const bool alert = finding.action == ResponseAction::kAlert;
    if (alert) {
        const respond::Gate::Question question = {.rule = finding.event.finding().rule(),
                                                  .sandbox = finding.event.sandbox().id(),
                                                  .session = finding.event.sandbox().session(),
                                                  .once_per = finding.once_per,
                                                  .throttle_ns = finding.throttle_ns,
                                                  .kills = false};
        if (gate_.Ask(question, BootNow()) != respond::Gate::Answer::kGo) return;
    }
    if (finding.told) hub_->path().Publish(finding.event);
    if (alert) return;
    const std::set<std::string> group =
        finding.scope_group ? GroupOf(finding.event) : std::set<std::string>{finding.event.sandbox().id()};
    for (const std::string& id : group) RespondTo(id, finding);
}

v1::Action Agent::ActionOf(absl::string_view action, const RuleFinding& finding) {
    v1::Action out;
    out.set_action(std::string(action));
    out.set_rule(finding.event.finding().rule());
    out.set_title(finding.event.finding().title());
    out.set_hash(finding.event.finding().hash());
    *out.mutable_evidence() = finding.event.finding().evidence();
    return out;
}

// Asked for by a person. Who has just written can be asked who it is.
v1::Action Agent::ActionOf(absl::string_view action, const Connection& actor,
                           const std::string& reason) const {
    v1::Action out;
    out.set_action(std::string(action));
    out.set_result("done");
    if (const StatusOr<api::Peer> peer = actor.channel.PeerCredentials(); peer.ok()) {
        out.set_actor_uid(peer->uid);
        out.set_actor_pid(static_cast<uint32_t>(peer->pid));
    }
    out.set_detail(reason);
    (void)decode::Redactor::Default().RedactText(out.mutable_detail());  // it stands in the log as well
    return out;
}

void Agent::PublishAction(const sandbox::Sandbox& sandbox, v1::Action action) {
    LogInfo(sandbox.id(), ": ", action.action(), ": ", action.result(),
            action.rule().empty() ? "" : ", for the rule ", action.rule(),
            action.detail().empty() ? "" : ": ", action.detail());
    ++counts_.actions[{action.action(), action.result()}];
    if (!action.rule().empty() && action.result() == "done") counts_.response.Observe(action.latency_ns());
    v1::Event event = Envelope(sandbox);
    event.set_kind("action");
    *event.mutable_action() = std::move(action);
    hub_->path().Publish(std::move(event));
}

void Agent::RespondTo(const std::string& id, const RuleFinding& finding) {
    Run* run = FindRun(id);
    sandbox::Sandbox* sandbox = registry_.Find(id);
    if (run == nullptr || sandbox == nullptr || run->killing || IsDone(*run, finding)) return;
    const bool dry = options_.config.rules.dry_run || sandbox->mode == "observe";
    const respond::Gate::Answer answer = gate_.Ask({.rule = finding.event.finding().rule(),
                                                    .sandbox = id,
                                                    .session = sandbox->info->labels.session,
                                                    .once_per = finding.once_per,
                                                    .throttle_ns = finding.throttle_ns,
                                                    .kills = Stops(finding.action) && !dry && !run->ended},
                                                   BootNow());
    if (answer == respond::Gate::Answer::kNotDue) return;
    v1::Action action = ActionOf(detect::ActionName(finding.action), finding);
    Status status;
    if (answer == respond::Gate::Answer::kHeldBack) {
        action.set_result("held-back");
        action.set_detail(absl::StrCat("the rule has acted ", options_.config.kills_per_minute,
                                       " times within a minute (kills_per_minute): its breaker is open"));
    } else if (dry) {
        action.set_result("dry-run");
    } else {
        status = run->ended ? absl::FailedPreconditionError("it had ended by itself")
                            : Act(*run, *sandbox, finding);
        action.set_result(status.ok() ? "done" : "failed");
        action.set_detail(std::string(status.message()));
    }
    if (status.ok() && action.result() == "done" && finding.action == ResponseAction::kKillSandbox) {
        run->kill_action = std::move(action);
        run->kill_event_ns = finding.event_boot_ns;
        return;
    }
    // What changes nothing and comes again and again is told as often as its finding, and once beside that.
    if (action.result() != "done" && !finding.told && std::exchange(run->told_untold, true)) return;
    action.set_latency_ns(BootNow() - finding.event_boot_ns);
    PublishAction(*sandbox, std::move(action));
}

void Agent::TellKillAction(Run& run, const sandbox::Sandbox& sandbox) {
    if (!run.kill_action) return;
    v1::Action action = *std::move(run.kill_action);
    run.kill_action.reset();
    const bool empty = run.kill.empty_ns != 0;
    if (!empty) action.set_detail("killed; the kernel cannot end all of its tasks yet");
    action.set_latency_ns((empty ? run.kill.empty_ns : BootNow()) - run.kill_event_ns);
    PublishAction(sandbox, std::move(action));
}

bool Agent::IsDone(const Run& run, const RuleFinding& finding) {
    switch (finding.action) {
        case ResponseAction::kFreeze:
            return run.restraint.frozen;
        case ResponseAction::kIsolateNetwork:
            return run.restraint.isolated;
        case ResponseAction::kDeny:
            return std::all_of(finding.deny.begin(), finding.deny.end(), [&](const auto& entry) {
                return run.restraint.denied.count(entry) != 0 || run.undeniable.count(entry) != 0;
            });
        case ResponseAction::kAlert:
        case ResponseAction::kKillProcess:
        case ResponseAction::kKillSandbox:
            break;
    }
    return false;
}

Status Agent::Act(Run& run, sandbox::Sandbox& sandbox, const RuleFinding& finding) {
    const v1::Process& process = finding.event.process();
    switch (finding.action) {
        case ResponseAction::kAlert:
            return absl::OkStatus();
        case ResponseAction::kFreeze:
            return Freeze(run, sandbox, true);
        case ResponseAction::kIsolateNetwork:
            return Isolate(run, sandbox);
        case ResponseAction::kDeny:
            return Deny(run, sandbox, finding.deny);
        case ResponseAction::kKillSandbox:
            return EndForRule(run, sandbox, finding);
        case ResponseAction::kKillProcess:
            if (process.pid() == 0) return absl::FailedPreconditionError("the event is of no process");
            return respond::KillOne(run.cgroup.get(), static_cast<int>(process.pid()),
                                    process.start_boot_ns());
    }
    return absl::OkStatus();
}

}  // namespace stockade::cmd
