// Evidence on disk of each sandbox, where the configuration asks for it: opened when it is attested, closed when it is gone.
#include <sys/epoll.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/base/log.h"
#include "userspace/cmd/agent.h"
#include "userspace/cmd/json.h"
#include "userspace/cmd/run_result.h"
#include "userspace/cmd/shown_command.h"
#include "userspace/decode/redact.h"
#include "userspace/model/lifecycle.h"
#include "userspace/policy/canonical.h"

namespace stockade::cmd {
namespace {

// Of a sandbox: some hundred mounts at most.
constexpr size_t kMaxMountBytes = 256 << 10;
// From the end of the command until it is removed, looked at, and its evidence closed.
constexpr uint64_t kRemovalBudgetNs = 100'000'000;

std::string Redacted(std::string text) {
    (void)decode::Redactor::Default().RedactText(&text);
    return text;
}

std::string Spaced(std::string command) {
    std::replace(command.begin(), command.end(), '\0', ' ');
    return command;
}

template <typename Texts>
std::string TextsJson(const Texts& texts, bool redact) {
    std::vector<std::string> rows;
    for (const std::string& text : texts) rows.push_back(JsonString(redact ? Redacted(text) : text));
    return JsonArray(rows);
}

std::string ProcessesJson(const sandbox::Evidence& evidence, bool redact) {
    std::vector<std::string> rows;
    for (const sandbox::ProcessEvidence& process : evidence.processes) {
        JsonObject row;
        row.Add("pid", process.pid).Add("ppid", process.ppid).Add("state", std::string(1, process.state)).Add("start_boot_ns", process.start_boot_ns);
        rows.push_back(row.Add("comm", process.comm).Add("command", redact ? ShownCommand(process) : Spaced(process.command)).Done());
    }
    return JsonObject().Add("taken_boot_ns", evidence.taken_boot_ns).Add("left_out", evidence.left_out).AddRaw("processes", JsonArray(rows)).Done() + "\n";
}

}  // namespace

Status Agent::StartEvidence() {
    if (!options_.config.evidence.on()) return absl::OkStatus();
    std::vector<std::string> alive;
    for (const auto& [id, run] : runs_) alive.push_back(id);
    // What was asked for and cannot be kept is no start: a sandbox without its evidence would be one that was not to be.
    SK_ASSIGN_OR_RETURN(keeper_, EvidenceKeeper::Create(options_.config.evidence, alive));
    for (const std::string& id : alive) {
        keeper_->Open(id, {});
        FindRun(id)->evidence_open = true;
    }
    evidence_sink_ = keeper_.get();
    return loop_->Watch(keeper_->event_fd(), EPOLLIN, [this](uint32_t) { OnEvidence(); });
}

void Agent::OpenEvidence(Run& run, const sandbox::Sandbox& sandbox) {
    if (keeper_ == nullptr) return;
    JsonObject labels;
    for (const auto& [key, value] : run.labels.free()) labels.Add(key, value);
    JsonObject object;
    object.Add("id", run.id).Add("node", HostName()).Add("session", run.labels.session()).Add("tool", run.labels.tool()).Add("trace", run.labels.trace());
    object.AddRaw("labels", labels.Done()).AddRaw("argv", TextsJson(sandbox.argv, true)).Add("runtime", sandbox.info->runtime);
    object.Add("uid", sandbox.uid).Add("owner_uid", sandbox.owner_uid).Add("cgroup", sandbox.cgroup).Add("init_pid", sandbox.init_pid).Add("shim_pid", sandbox.shim_pid);
    object.Add("policy", run.attestation.policy()).Add("policy_hash", run.attestation.policy_hash()).Add("mode", sandbox.mode).Add("backend", run.attestation.backend());
    object.AddRaw("conditions", TextsJson(sandbox.conditions, false)).AddRaw("coverage", TextsJson(run.attestation.coverage(), false)).AddRaw("notes", TextsJson(run.attestation.notes(), true));
    object.Add("contract", run.contract_name).Add("contract_sha256", run.contract_sha256).Add("attested_boot_ns", sandbox.times.attested_ns);
    EvidenceKeeper::Files files = {{"sandbox.json", object.Done() + "\n"}, {"policy.txt", policy::CanonicalText(run.policy)}, {"raw/argv.json", TextsJson(run.raw_argv, false) + "\n"}};
    run.raw_argv.clear();
    const StatusOr<std::string> mounts = ReadFile(absl::StrCat("/proc/", sandbox.init_pid, "/mountinfo"), kMaxMountBytes);
    files["mounts.txt"] = mounts.ok() ? *mounts : absl::StrCat("not read: ", mounts.status().message(), "\n");
    keeper_->Open(run.id, std::move(files));
    run.evidence_open = true;
}

// All that is known only at the end. The result is told when the folder is closed, and says where it is.
void Agent::FinishEvidence(Run& run) {
    EvidenceKeeper::Files files = {{"result.json", ResultJson(run.result) + "\n"}};
    if (run.evidence != nullptr && !run.killing) {
        files["processes.json"] = ProcessesJson(*run.evidence, true);
        files["raw/processes.json"] = ProcessesJson(*run.evidence, false);
        files["sockets.txt"] = run.evidence->sockets;
    }
    // Its shim has said its last word, and its end is nothing to act on.
    if (run.control.ok()) loop_->Forget(run.control.fd());
    keeper_->Finish(run.id, std::move(files));
    run.evidence_open = false;
    run.evidence_awaited = true;
}

void Agent::OnEvidence() {
    for (const EvidenceKeeper::Kept& kept : keeper_->TakeKept()) {
        Run* run = FindRun(kept.id);
        if (run == nullptr || !run->evidence_awaited) continue;  // told already: its tasks do not end
        run->evidence_awaited = false;
        run->result.set_evidence_path(kept.path);
        run->result.mutable_times()->set_evidence_kept(kept.boot_ns);
        if (kept.manifest_sha256.ok()) {
            run->result.set_evidence_sha256(*kept.manifest_sha256);
        } else {
            run->result.add_notes(absl::StrCat("NOT KEPT: ", kept.manifest_sha256.status().message()));
            LogError(kept.id, ": ", kept.manifest_sha256.status().message());
        }
        if (const sandbox::Sandbox* sandbox = registry_.Find(kept.id)) {
            PublishStep(*sandbox, model::LIFECYCLE_EVIDENCE, kept.path);
            PublishStep(*sandbox, model::LIFECYCLE_VERIFIED, kept.manifest_sha256.ok() ? *kept.manifest_sha256 : "");
        }
        TellResult(*run, false);
    }
}

// Over its budget is no reason to leave a step out, and none to be silent.
void Agent::CheckBudget(Run& run, const sandbox::Sandbox& sandbox) {
    const uint64_t ended = sandbox.times.ended_ns, done = std::max(sandbox.times.removed_ns, run.result.times().evidence_kept());
    counts_.removal.ObserveSince(ended, done);
    if (ended == 0 || done < ended || done - ended <= kRemovalBudgetNs) return;
    ++counts_.removals_over_budget;
    run.result.set_overrun_ns(done - ended - kRemovalBudgetNs);
    PublishStep(sandbox, model::LIFECYCLE_OVERRUN, absl::StrCat("removed ", (done - ended) / 1'000'000, " ms after its end; ", kRemovalBudgetNs / 1'000'000, " are allowed"));
}

}  // namespace stockade::cmd
