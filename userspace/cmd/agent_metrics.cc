// What Prometheus and `stockade status` are told. Put together once a second by the agent's own thread from counters that each
// part keeps behind a lock of its own, held for copies alone.
#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "bpf/wire/dns_answer.h"
#include "userspace/base/clock.h"
#include "userspace/cmd/agent.h"
#include "userspace/cmd/part_metrics.h"
#include "userspace/model/names.h"

namespace stockade::cmd {
namespace {

// Prometheus scrapes each 15 seconds or so; a second old is new.
constexpr uint64_t kPublishEveryNs = 1'000'000'000;

const char* const kErrorSites[] = {
#define X(number, NAME) #NAME,
    SK_ERROR_SITES(X)
#undef X
};

const char* const kDnsAnswers[] = {
#define X(number, NAME, text) #NAME,
    SK_DNS_ANSWERS(X)
#undef X
};

// So long a condition tells of calls that were not judged: longer than alerts look back.
constexpr uint64_t kLeftOutShownNs = 600'000'000'000;

// Longer than a sync takes on a disk that is merely slow.
constexpr uint64_t kHangsNs = 10'000'000'000;
bool Hangs(const StoreWatch::Seen& seen) { return BootNow() - seen.boot_ns > kHangsNs; }

std::string Lower(absl::string_view text) { return absl::AsciiStrToLower(text); }

}  // namespace

void Agent::PublishMetrics() {
    const uint64_t now = BootNow();
    if (options_.metrics == nullptr || now - published_ns_ < kPublishEveryNs) return;
    published_ns_ = now;
    auto families = std::make_shared<metrics::Families>();
    families->Gauge("stockade_build_info", "The agent's version and what judges in the kernel; always 1.", 1,
                    {{"version", kVersion}, {"backend", BackendName()}});
    for (const Condition& condition : AgentConditions()) {
        if (condition.reason == "NotConfigured") continue;
        families->Gauge("stockade_condition",
                        "Conditions of the agent, as `stockade status` says them: 1 = True.", condition.holds,
                        {{"type", condition.type}});
    }
    CountSandboxes(families.get());
    CountKernel(families.get());
    CountAgent(families.get());
    CountEvidence(families.get());
    CountPath(hub_->path().counters(), families.get());
    if (rules_ != nullptr) CountDetect(rules_->counters(), counts_, rules_broken_, families.get());
    CountDns(dns_->counters(), families.get());
    if (nri_ != nullptr) CountPods(pod_counts_, nri_->state().up, nri_->counters(), families.get());
    if (store_watch_ != nullptr) {
        const auto seen = store_watch_->latest();
        CountStore(seen->counters, seen->health.ok() && !Hangs(*seen), options_.config.events.spool_max_bytes,
                   families.get());
    }
    CountProcess(families.get());
    options_.metrics->Publish(std::move(families));
}

void Agent::CountSandboxes(metrics::Families* out) {
    std::array<uint64_t, static_cast<size_t>(model::SandboxState::kDestroyed) + 1> states{};
    std::map<std::string, uint64_t> degraded;
    for (const sandbox::Sandbox* sandbox : registry_.All()) {
        ++states[static_cast<size_t>(sandbox->state)];
        for (absl::string_view condition : sandbox->conditions) ++degraded[std::string(condition)];
    }
    for (size_t i = 0; i < states.size(); ++i) {
        const auto state = static_cast<model::SandboxState>(i);
        if (state == model::SandboxState::kDestroyed) continue;  // is in no list
        out->Gauge("stockade_sandboxes", "Sandboxes that are there now, by state.",
                   static_cast<double>(states[i]), {{"state", std::string(model::ToString(state))}});
    }
    for (const char* condition : {"Adopted", "Degraded/BreakerOpen", "Degraded/CallsUnjudged",
                                  "Degraded/NoLandlock", "Degraded/NotAdoptable", "Degraded/RulesBehind",
                                  "Degraded/RulesBroken", "Denied", "Frozen", "Isolated", "Degraded/AmbiguousPolicy", "Degraded/PolicyBroken",
                                  "Degraded/PolicyNotAllowed", "Degraded/PolicyNotFound", "Degraded/UnprotectedStart"}) {
        out->Gauge("stockade_sandbox_conditions", "Sandboxes of which this holds now.",
                   static_cast<double>(degraded[condition]), {{"condition", condition}});
    }
    out->Counter("stockade_sandboxes_started_total", "Sandboxes whose command ran.",
                 static_cast<double>(counts_.started));
    for (const char* end :
         {"exited", "signalled", "policy", "timeout", "client", "killed", "failed", "shim", "agent"}) {
        const auto found = counts_.ends.find(end);
        out->Counter("stockade_sandboxes_ended_total",
                     "Sandboxes that ended, by how; policy = killed for a violation.",
                     found == counts_.ends.end() ? 0 : static_cast<double>(found->second), {{"end", end}});
    }
    const auto held = absl::c_count_if(runs_, [](const auto& run) { return run.second->held_back_ns != 0; });
    out->Gauge("stockade_kills_held_back", "Condemned sandboxes whose kill the breaker holds back now.",
               static_cast<double>(held));
    out->Counter("stockade_kills_held_back_total", "Kills that the breaker held back.",
                 static_cast<double>(counts_.kills_held_back));
    out->Counter("stockade_kills_total", "Sandboxes that were killed, by whose order.",
                 static_cast<double>(counts_.kills_policy), {{"by", "policy"}});
    out->Counter("stockade_kills_total", "", static_cast<double>(counts_.kills_request), {{"by", "request"}});
    out->Counter("stockade_kills_pending_total",
                 "Kills whose tasks the kernel could not end in time (state D).",
                 static_cast<double>(counts_.kills_pending));
    out->Add("stockade_kill_duration_seconds",
             "From the violation, or the order, until nothing of the sandbox ran.", counts_.kill.Read());
}

void Agent::CountEvidence(metrics::Families* out) {
    out->Add("stockade_removal_seconds", "From the end of the command until its sandbox is removed and its evidence closed.", counts_.removal.Read());
    out->Counter("stockade_removals_over_budget_total", "Removals that took longer than 100 ms.", static_cast<double>(counts_.removals_over_budget));
    out->Gauge("stockade_leftovers", "What is left of ended sandboxes, as last looked at: cgroups, links, state files.", static_cast<double>(left_over_));
    out->Counter("stockade_leftovers_found_total", "What was found left of ended sandboxes, each told once as a finding.", static_cast<double>(counts_.leftovers_found));
    if (keeper_ == nullptr) return;
    const EvidenceKeeper::Counters counters = keeper_->counters();
    out->Counter("stockade_evidence_folders_total", "Folders of evidence that were closed, by whether all of it is there.", static_cast<double>(counters.kept), {{"result", "kept"}});
    out->Counter("stockade_evidence_folders_total", "", static_cast<double>(counters.failed), {{"result", "failed"}});
    out->Counter("stockade_evidence_folders_removed_total", "Folders that were removed by age or size.", static_cast<double>(counters.removed));
    out->Counter("stockade_evidence_events_dropped_total", "Events that are in no folder, as the disk was too slow.", static_cast<double>(counters.events_dropped));
    out->Counter("stockade_evidence_hooks_failed_total", "Calls of the hook that failed, or took too long.", static_cast<double>(counters.hooks_failed));
    out->Gauge("stockade_evidence_folders", "Closed folders on the disk, as last looked at.", static_cast<double>(counters.folders));
    out->Gauge("stockade_evidence_bytes", "Bytes in them.", static_cast<double>(counters.bytes));
}

void Agent::CountKernel(metrics::Families* out) {
    KernelCounts counts = counts_.ended;
    for (const sandbox::Sandbox* sandbox : registry_.All()) {
        if (sandbox->slot == 0) continue;
        const StatusOr<sk_state> state =
            sensor_.ReadState({.slot = sandbox->slot, .generation = sandbox->generation});
        if (state.ok()) counts.Add(*state);
    }
    const auto section = [](size_t i) {
        return std::string(model::NameOf(model::Sections(), static_cast<uint32_t>(i)));
    };
    for (size_t i = 0; i < SK_SECTION_COUNT; ++i) {
        out->Counter("stockade_violations_total",
                     "Operations that a policy refuses, also where they were only observed, as the kernel "
                     "counts them.",
                     static_cast<double>(counts.violations[i]), {{"section", section(i)}});
    }
    for (size_t i = 0; i < SK_SECTION_COUNT; ++i) {
        out->Counter("stockade_operations_allowed_total", "Operations that were judged and allowed.",
                     static_cast<double>(counts.allowed[i]), {{"section", section(i)}});
    }
    for (const auto& [key, count] : refusals_.Read()) {
        out->Counter("stockade_refusals_total",
                     "Refused operations by section and by the lock that refused first, as records tell.",
                     static_cast<double>(count), {{"section", key.first}, {"lock", key.second}});
    }
    out->Counter("stockade_kernel_records_total", "Records that the kernel numbered.",
                 static_cast<double>(counts.records));
    out->Counter("stockade_kernel_records_lost_total", "Records that found a full ring.",
                 static_cast<double>(counts.lost));
    out->Counter("stockade_kernel_records_suppressed_total",
                 "Records beyond a sandbox's rate, counted into others.",
                 static_cast<double>(counts.suppressed));
    if (const StatusOr<std::vector<uint64_t>> errors = sensor_.ReadErrors(); errors.ok()) {
        for (size_t i = 0; i < std::size(kErrorSites) && i < errors->size(); ++i) {
            out->Counter("stockade_kernel_errors_total", "Failures inside the kernel programs, by where.",
                         static_cast<double>((*errors)[i]), {{"site", Lower(kErrorSites[i])}});
        }
    }
    if (const StatusOr<std::vector<uint64_t>> answers = sensor_.ReadDnsAnswers(); answers.ok()) {
        for (size_t i = 0; i < std::size(kDnsAnswers) && i < answers->size(); ++i) {
            out->Counter(
                "stockade_kernel_dns_answers_total",
                "DNS answers that the kernel read for sandboxes without a stub, by what became of them.",
                static_cast<double>((*answers)[i]), {{"result", Lower(kDnsAnswers[i])}});
        }
    }
    out->Counter("stockade_kernel_calls_left_out_total",
                 "Calls that the kernel ran no program for: as many may not have been judged.",
                 static_cast<double>(left_out_));
}

void Agent::CountAgent(metrics::Families* out) {
    const auto followers =
        absl::c_count_if(connections_, [](const auto& entry) { return entry.second->follow; });
    out->Gauge("stockade_client_connections", "Connections to the agent's socket.",
               static_cast<double>(connections_.size()));
    out->Gauge("stockade_event_followers", "Of them, those that follow events.",
               static_cast<double>(followers));
    out->Counter("stockade_clients_refused_total",
                 "Connections of peers that may not talk to the agent, or too many of them.",
                 static_cast<double>(counts_.refused_clients));
    out->Counter("stockade_requests_refused_total",
                 "Requests of group members that are root's alone, or name a policy that is not theirs.",
                 static_cast<double>(counts_.refused_requests));
    out->Counter("stockade_client_events_lost_total",
                 "Events that clients missed, as too many waited for the agent's own thread.",
                 static_cast<double>(counts_.client_events_lost));
    out->Counter("stockade_ring_early_releases_total",
                 "Passes over the rings that were released before clients had them.",
                 static_cast<double>(hub_->early_releases()));
    out->Add("stockade_event_handed_on_seconds",
             "From an operation in the kernel until spool and clients have its event.",
             refusals_.handed_on().Read());
}

std::vector<Condition> Agent::AgentConditions() const {
    std::vector<Condition> out;
    out.push_back(adopted_ns_ != 0 ? Condition{"Ready", false, "Adopting",
                                               "sandboxes of an earlier agent are being taken over"}
                                   : Condition{"Ready", true, "Attested", ""});
    const bool judged = left_out_grew_ns_ == 0 || BootNow() - left_out_grew_ns_ > kLeftOutShownNs;
    out.push_back(judged ? Condition{"Enforced", true,
                                     sensor_.backend() == kernel::Backend::kLsm ? "Lsm" : "Signal", ""}
                         : Condition{"Enforced", false, "CallsUnjudged",
                                     "less than ten minutes ago the kernel left out runs of programs: "
                                     "stockade_kernel_calls_left_out_total"});
    const bool held = absl::c_any_of(runs_, [](const auto& run) { return run.second->held_back_ns != 0; });
    out.push_back(
        helper_gone_
            ? Condition{"Degraded", true, "HelperGone", "no sandbox can be started: restart the agent"}
        : held                   ? Condition{"Degraded", true, "BreakerOpen",
                           "kills are held back: more than kills_per_minute under one policy"}
        : accept_paused_ns_ != 0 ? Condition{"Degraded", true, "OutOfDescriptors", "clients have to wait"}
                                 : Condition{"Degraded", false, "AsIntended", ""});
    if (nri_ != nullptr) {
        const nri::Link::State state = nri_->state();
        out.push_back({"PodsGuarded", state.up, state.up ? "Connected" : "NoRuntime", state.up ? state.runtime : state.trouble});
    }
    if (store_watch_ == nullptr) {
        out.push_back({"EventsStored", false, "NotConfigured", "there is no `events:` in the configuration"});
        return out;
    }
    const auto seen = store_watch_->latest();
    if (Hangs(*seen)) {
        out.push_back({"EventsStored", false, "DiskHangs", "the spool's disk has not answered for seconds"});
    } else {
        out.push_back({"EventsStored", seen->health.ok(), seen->health.ok() ? "Spooled" : "DiskRefuses",
                       std::string(seen->health.message())});
    }
    std::string down;
    for (const auto& [name, pump] : seen->counters.readers) {
        if (!pump.up) absl::StrAppend(&down, down.empty() ? "" : ", ", name);
    }
    out.push_back({"EventsDelivered", down.empty(), down.empty() ? "Delivered" : "ExporterDown", down});
    return out;
}

}  // namespace stockade::cmd
