// What is done to a running sandbox beside its policy: for a rule, or as a person asked.
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/cmd/agent.h"
#include "userspace/launch/netlink.h"
#include "userspace/launch/network.h"
#include "userspace/model/lifecycle.h"
#include "userspace/policy/parse.h"
#include "userspace/respond/kill.h"

namespace stockade::cmd {
namespace {

// The freezer answers within a millisecond where all tasks are in user space; the agent's thread waits no longer.
constexpr uint64_t kFreezeWaitNs = 20'000'000;
// Paths, addresses and names: each is an entry of the policy, which is compiled anew.
constexpr size_t kMaxDenied = 256;
// Policies that a sandbox's records on their way may still name.
constexpr size_t kMaxPolicyRefs = 8;

uint32_t OpOf(const std::string& operation) {
    if (operation == "exec") return SK_OP_EXEC;
    if (operation == "read") return SK_OP_READ;
    if (operation == "write") return SK_OP_WRITE;
    return 0;
}

// A name may hold what is a wildcard in a pattern; `?` stands for any one character, so for this one too.
std::string PatternOf(std::string path) {
    for (char& c : path) {
        if (c == '*' || c == '[' || c == ']' || c == '{' || c == '}' || c == '\\') c = '?';
    }
    return path;
}

void CloseNetwork(policy::ResolvedPolicy* policy) {
    policy->network.clear();
    policy->loopback.clear();
    policy->host.clear();
    policy->bind.clear();
    policy->uids.clear();
    policy->has_uids = false;
    policy->dns.reset();
    std::erase_if(policy->paths, [](const policy::PathRule& rule) { return (rule.allow & SK_OP_UNIX) != 0; });
    policy->present[SK_SECTION_NETWORK] = true;
    // The work may go on without a network: nobody is killed for what was allowed a moment ago.
    policy->violation[SK_SECTION_NETWORK] = SK_VERDICT_DENY;
}

// A single address, as an event says it.
StatusOr<policy::NetworkRule> AddressRule(const std::string& address) {
    const StatusOr<policy::NetworkRule> rule = policy::ParseCidr(address);
    if (!rule.ok() || rule->bits != (rule->family == 4 ? 32 : 128))
        return absl::FailedPreconditionError("deny: the event has no address for connect");
    return rule;
}

void DenyPath(uint32_t op, const std::string& path, policy::ResolvedPolicy* policy) {
    const sk_section section = op == SK_OP_EXEC ? SK_SECTION_EXEC : SK_SECTION_FILES;
    const auto add = [&](const std::string& pattern, uint32_t allow, uint32_t deny) {
        policy->paths.push_back({pattern, allow, deny, 0, "response.deny", policy->name, {}});
    };
    // A section that nobody wrote allows all: written, it has to go on doing so.
    if (!policy->present[section]) {
        add("/**", section == SK_SECTION_EXEC ? SK_OP_EXEC | SK_OP_MAP : SK_OP_READ | SK_OP_WRITE, 0);
        policy->present[section] = true;
    }
    add(PatternOf(path), 0, op);
}

}  // namespace

void Agent::ControlOnRequest(int fd, const api::Control& control) {
    const StatusOr<sandbox::Sandbox*> found = registry_.FindByPrefix(control.id());
    if (!found.ok()) return SendError(fd, found.status());
    sandbox::Sandbox& sandbox = **found;
    Run* run = FindRun(sandbox.id());
    if (run == nullptr || !run->cgroup.ok() || sandbox.slot == 0 || !run->released)
        return SendError(fd, absl::FailedPreconditionError("the sandbox is only being made: try again"));
    if (run->killing || run->ended)
        return SendError(fd, absl::FailedPreconditionError("the sandbox is ending already"));
    const uint64_t asked = BootNow();
    const Status status = Control(control.action(), *run, sandbox);
    v1::Action action = ActionOf(control.action() == "isolate" ? "isolate-network" : control.action(),
                                 *connections_[fd], control.reason());
    action.set_result(status.ok() ? "done" : "failed");
    if (!status.ok())
        action.set_detail(
            absl::StrCat(action.detail(), action.detail().empty() ? "" : ": ", status.message()));
    action.set_latency_ns(BootNow() - asked);
    PublishAction(sandbox, std::move(action));
    if (!status.ok()) return SendError(fd, status);
    api::Message ok;
    ok.mutable_ok();
    Send(fd, ok);
}

Status Agent::Control(const std::string& action, Run& run, sandbox::Sandbox& sandbox) {
    if (action == "freeze") return Freeze(run, sandbox, true);
    if (action == "thaw") return Freeze(run, sandbox, false);
    if (action == "isolate") return Isolate(run, sandbox);
    if (action == "release") return Release(run, sandbox);
    return absl::InvalidArgumentError(
        absl::StrCat("no action '", action, "': freeze, thaw, isolate or release"));
}

// So that `stockade ps` and `inspect` show it.
void Agent::ShowRestraint(const Run& run, sandbox::Sandbox& sandbox) {
    std::erase_if(sandbox.conditions,
                  [](const std::string& c) { return c == "Frozen" || c == "Isolated" || c == "Denied"; });
    if (run.restraint.frozen) sandbox.conditions.push_back("Frozen");
    if (run.restraint.isolated) sandbox.conditions.push_back("Isolated");
    if (!run.restraint.denied.empty()) sandbox.conditions.push_back("Denied");
}

// So that a next agent shows it too, and can undo it.
void Agent::KeepRestraint(Run& run, sandbox::Sandbox& sandbox) {
    ShowRestraint(run, sandbox);
    sandbox::v1::StoredRestraint& stored = *run.stored.mutable_restraint();
    stored.Clear();
    stored.set_frozen(run.restraint.frozen);
    stored.set_isolated(run.restraint.isolated);
    stored.set_link(run.restraint.link);
    for (const auto& [operation, object] : run.restraint.denied) {
        sandbox::v1::StoredDenied& denied = *stored.add_denied();
        denied.set_operation(operation);
        denied.set_object(object);
    }
    run.stored.clear_later_policies();
    // The last one is that of its start, which is kept beside them.
    for (size_t i = 0; i + 1 < sandbox.info->policies.size(); ++i) {
        const model::PolicyRef& policy = sandbox.info->policies[i];
        sandbox::v1::StoredPolicyRef& later = *run.stored.add_later_policies();
        later.set_id(policy.id);
        later.set_name(policy.name);
        later.set_hash(policy.hash);
    }
    const Status status = files_->Write(run.stored);
    if (!status.ok())
        LogWarning(run.id, ": a next agent will not know what was done to it: ", status.message());
}

void Agent::TakeRestraint(const sandbox::v1::StoredRestraint& stored, Restraint* restraint) {
    restraint->frozen = stored.frozen();
    restraint->isolated = stored.isolated();
    restraint->link = stored.link();
    for (const sandbox::v1::StoredDenied& denied : stored.denied())
        restraint->denied.insert({denied.operation(), denied.object()});
}

Status Agent::Freeze(Run& run, sandbox::Sandbox& sandbox, bool freeze) {
    const Status status = respond::SetFrozen(run.cgroup.get(), freeze, kFreezeWaitNs);
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
    run.restraint.frozen = freeze;
    KeepRestraint(run, sandbox);
    return absl::OkStatus();  // a task in the kernel freezes when it comes out
}

// The policy first: whatever else fails, nothing new begins.
Status Agent::Isolate(Run& run, sandbox::Sandbox& sandbox) {
    if (sandbox.mode == "observe")
        return absl::FailedPreconditionError("its policy is in mode: observe, where nothing is refused");
    Restraint wanted = run.restraint;
    wanted.isolated = true;
    SK_RETURN_IF_ERROR(ApplyRestraint(run, sandbox, wanted));
    SK_RETURN_IF_ERROR(
        Annotate(dns_->Silence({.slot = sandbox.slot, .generation = sandbox.generation}, true), "its names"));
    SK_ASSIGN_OR_RETURN(const std::string link, launch::LinkOf(sandbox.init_pid));
    if (link.empty()) return absl::OkStatus();
    // Connections that stand were judged when they were made.
    SK_ASSIGN_OR_RETURN(launch::Netlink netlink, launch::Netlink::Create());
    run.restraint.link = link;
    KeepRestraint(run, sandbox);
    return netlink.LinkDown(link);
}

// Whatever was denied or isolated is as the policy says again.
Status Agent::Release(Run& run, sandbox::Sandbox& sandbox) {
    Restraint wanted = run.restraint;
    wanted.isolated = false;
    wanted.denied.clear();
    SK_RETURN_IF_ERROR(ApplyRestraint(run, sandbox, wanted));
    if (!run.restraint.link.empty()) {
        SK_ASSIGN_OR_RETURN(launch::Netlink netlink, launch::Netlink::Create());
        SK_RETURN_IF_ERROR(netlink.LinkUp(run.restraint.link));
        run.restraint.link.clear();
        KeepRestraint(run, sandbox);
    }
    return Annotate(dns_->Silence({.slot = sandbox.slot, .generation = sandbox.generation}, false),
                    "its names");
}

Status Agent::Deny(Run& run, sandbox::Sandbox& sandbox, const std::map<std::string, std::string>& what) {
    if (run.undeniable.size() >= kMaxDenied)
        return absl::ResourceExhaustedError(absl::StrCat(kMaxDenied, " things could not be denied to it: nothing more is tried"));
    Restraint wanted = run.restraint;
    for (const auto& [operation, object] : what) {
        if (operation == "connect") {
            SK_RETURN_IF_ERROR(AddressRule(object).status());
        } else if (operation == "dns") {
            if (object.empty()) return absl::FailedPreconditionError("deny: the event has no name for dns");
        } else if (object.empty() || object.front() != '/') {
            return absl::FailedPreconditionError(
                absl::StrCat("deny: the event has no whole path for ", operation));
        }
        wanted.denied.insert({operation, object});
    }
    if (wanted.denied.size() > kMaxDenied)
        return absl::ResourceExhaustedError(
            absl::StrCat("more than ", kMaxDenied, " things are denied to it already"));
    const Status applied = ApplyRestraint(run, sandbox, wanted);
    // It would be refused again, at the cost of a policy's compilation each time.
    if (!applied.ok() && run.undeniable.size() < kMaxDenied) run.undeniable.insert(what.begin(), what.end());
    return applied;
}

// The stub's part; the kernel knows nothing of single names.
Status Agent::ApplyDeniedNames(const Run& run, const sandbox::Sandbox& sandbox) {
    std::set<std::string> names;
    for (const auto& [operation, object] : run.restraint.denied) {
        if (operation == "dns") names.insert(object);
    }
    return Annotate(
        dns_->DenyNames({.slot = sandbox.slot, .generation = sandbox.generation}, std::move(names)),
        "deny its names");
}

// Of an adopted one only name and hash are known: the policy of that name is its own where the hash is the same.
Status Agent::KnowPolicy(Run& run, const sandbox::Sandbox& sandbox) {
    if (!run.adopted || !run.policy.name.empty()) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(
        policy::ResolvedPolicy policy,
        PolicyOfName(run.attestation.policy(), sandbox.info->labels, options_.config.kubernetes, policies_));
    SK_ASSIGN_OR_RETURN(const auto compiled, compiler_.Compile(policy));
    if (compiled->hash_hex != run.attestation.policy_hash())
        return absl::FailedPreconditionError(absl::StrCat("an earlier agent bound its policy, and ",
                                                          run.attestation.policy(),
                                                          " says something else by now"));
    run.policy = std::move(policy);
    return absl::OkStatus();
}

Status Agent::ApplyRestraint(Run& run, sandbox::Sandbox& sandbox, const Restraint& wanted) {
    SK_RETURN_IF_ERROR(KnowPolicy(run, sandbox));
    policy::ResolvedPolicy policy = run.policy;
    if (wanted.isolated) CloseNetwork(&policy);
    for (const auto& [operation, object] : wanted.denied) {
        if (operation == "connect") {
            SK_ASSIGN_OR_RETURN(policy.denied.emplace_back(), AddressRule(object));
        }
        if (OpOf(operation) != 0) DenyPath(OpOf(operation), object, &policy);
    }
    SK_ASSIGN_OR_RETURN(const Fd root,
                        Fd::Open(absl::StrCat("/proc/", sandbox.init_pid, "/root"), O_PATH | O_DIRECTORY));
    SK_ASSIGN_OR_RETURN(const auto compiled, compiler_.Compile(policy, {.root_fd = root.get()}));
    SK_ASSIGN_OR_RETURN(const uint32_t index, sensor_.PublishPolicy(compiled->cells));
    auto info = std::make_shared<model::SandboxInfo>(*sandbox.info);
    info->policies.insert(info->policies.begin(),
                          {.id = compiled->id, .name = compiled->name, .hash = compiled->hash_hex});
    if (info->policies.size() > kMaxPolicyRefs) info->policies.pop_back();
    registry_.ReplaceInfo(sandbox, info);  // before the first record that names it
    const Status swapped =
        sensor_.SwapPolicy({.slot = sandbox.slot, .generation = sandbox.generation}, index);
    if (!swapped.ok()) {
        DropPolicy(index);
        return swapped;
    }
    DropPolicy(sandbox.policy_index);
    sandbox.policy_index = index;
    run.restraint.isolated = wanted.isolated;
    run.restraint.denied = wanted.denied;
    KeepRestraint(run, sandbox);
    PublishStep(sandbox, model::LIFECYCLE_POLICY_SWAPPED, compiled->hash_hex);
    return ApplyDeniedNames(run, sandbox);
}

Status Agent::EndForRule(Run& run, sandbox::Sandbox& sandbox, const RuleFinding& finding) {
    const v1::Finding& found = finding.event.finding();
    // The shim learns why before the kernel is told, so that it does not take the end for the command's own.
    api::Message told;
    told.mutable_shim_kill()->set_end("rule");
    told.mutable_shim_kill()->set_by_agent(true);
    told.mutable_shim_kill()->set_reason(absl::StrCat(
        found.title(), " (", found.rule(), found.detail().empty() ? "" : ": ", found.detail(), ")"));
    if (run.control.ok()) (void)run.control.Send(told);  // a shim that is gone is seen by the loop
    if (run.pod) {
        run.end.set_end("rule");
        run.end.set_reason(told.shim_kill().reason());
        run.end.set_exit_code(137);
    }
    const Status condemned =
        sensor_.Condemn({.slot = sandbox.slot, .generation = sandbox.generation}, SK_CODE_CONDEMNED);
    if (!condemned.ok())
        LogError(run.id, ": condemn it: ", condemned.message());  // it is killed all the same
    if (sandbox.times.condemned_ns == 0) sandbox.times.condemned_ns = BootNow();
    (void)registry_.Move(sandbox,
                         model::SandboxState::kCondemned);  // from whatever state: the kernel has been told
    StartKill(run, true);
    return absl::OkStatus();
}

}  // namespace stockade::cmd
