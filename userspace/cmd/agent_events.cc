// Events that the agent says itself, and where all of them are kept.
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/cmd/agent.h"
#include "userspace/model/lifecycle.h"
#include "userspace/model/names.h"
#include "userspace/model/text.h"

namespace stockade::cmd {
namespace {

// Names come with policies of single runs as well; forgetting costs an event that says the same again.
constexpr size_t kMaxPoliciesTold = 1024;

}  // namespace

std::string HostName() {
    char name[256] = "";
    (void)gethostname(name, sizeof(name) - 1);  // empty when it is longer; the event says so then
    return name;
}

void Agent::OpenStore() {
    if (options_.exporters.empty()) return;
    const Config& config = options_.config;
    (void)mkdir(config.state_dir.c_str(), 0700);  // where it cannot be made the store says so, and tries again
    pipeline::EventStore::Options store;
    store.key_path = config.node_key_path();
    store.spool.dir = config.spool_dir();
    store.spool.node = HostName();
    store.spool.max_bytes = config.events.spool_max_bytes;
    store.readers = std::move(options_.exporters);
    store_ = pipeline::EventStore::Open(std::move(store));
}

void Agent::StartStore() {
    if (store_ == nullptr) return;
    std::set<std::string> alive;
    for (const auto& [id, run] : runs_) alive.insert(id);
    store_->Start(std::move(alive));
}

// The agent about itself, for who audits.
void Agent::TellOwn(const std::string& op, const std::string& detail) {
    v1::Event event;
    event.set_kind("agent");
    event.mutable_agent()->set_op(op);
    event.mutable_agent()->set_version(kVersion);
    event.mutable_agent()->set_detail(detail);
    hub_->path().Publish(std::move(event));
}

// Under what sandboxes start, and whose run brought it: once for each policy, and when another has its name.
void Agent::TellPolicy(const model::PolicyRef& policy, std::optional<uint32_t> actor_uid) {
    if (policies_told_.size() >= kMaxPoliciesTold) policies_told_.clear();
    std::string& known = policies_told_[policy.name];
    if (known == policy.hash) return;
    const std::string before = std::exchange(known, policy.hash);
    TellOwn(before.empty() ? "policy-loaded" : "policy-changed",
            absl::StrCat(policy.name, " ", policy.hash, before.empty() ? "" : ", before ", before,
                         actor_uid.has_value() ? absl::StrCat(", by uid ", *actor_uid) : ""));
}

v1::Event Agent::Envelope(const sandbox::Sandbox& sandbox) const {
    v1::Event event;
    model::ToProto(*sandbox.info, event.mutable_sandbox());
    event.set_boot_ns(BootNow());
    event.set_backend(sensor_.backend() == kernel::Backend::kLsm ? "lsm" : "signal");
    if (!sandbox.info->policies.empty()) {
        event.mutable_policy()->set_name(sandbox.info->policies.front().name);
        event.mutable_policy()->set_hash(sandbox.info->policies.front().hash);
    }
    return event;
}

void Agent::PublishStep(const sandbox::Sandbox& sandbox, int step, const std::string& detail) {
    v1::Event event = Envelope(sandbox);
    event.set_kind("lifecycle");
    v1::Lifecycle& lifecycle = *event.mutable_lifecycle();
    lifecycle.set_op(std::string(model::NameOf(model::LifecycleOps(), static_cast<uint32_t>(step))));
    if (!detail.empty()) (void)model::AppendEscaped(detail, lifecycle.mutable_detail());
    if (step == model::LIFECYCLE_ATTESTED) {
        for (const CoverageRow& row : CoverageRows(sandbox.info->coverage)) {
            v1::CoverageCell& cell = *lifecycle.add_coverage();
            cell.set_operation(row.operation);
            cell.set_cell(row.cell);
        }
    }
    if (step == model::LIFECYCLE_DESTROYED) {
        const auto it = runs_.find(sandbox.id());
        if (it != runs_.end()) lifecycle.set_exit_status(it->second->result.exit_code());
    }
    hub_->path().Publish(std::move(event));
}

void Agent::PublishKilled(const Run& run, const sandbox::Sandbox& sandbox, bool pending) {
    v1::Event event = Envelope(sandbox);
    event.set_kind("lifecycle");
    v1::Lifecycle& lifecycle = *event.mutable_lifecycle();
    const int step = pending ? model::LIFECYCLE_KILL_PENDING : model::LIFECYCLE_KILLED;
    lifecycle.set_op(std::string(model::NameOf(model::LifecycleOps(), static_cast<uint32_t>(step))));
    const std::pair<const char*, uint64_t> steps[] = {{"condemned", sandbox.times.condemned_ns},
                                                      {"freeze_asked", run.kill.freeze_asked_ns},
                                                      {"frozen", run.kill.frozen_ns},
                                                      {"evidence", run.kill.evidence_ns},
                                                      {"kill_asked", run.kill.kill_asked_ns},
                                                      {"empty", run.kill.empty_ns}};
    for (const auto& [name, boot_ns] : steps) {
        if (boot_ns == 0) continue;
        v1::Step& row = *lifecycle.add_steps();
        row.set_name(name);
        row.set_boot_ns(boot_ns);
    }
    if (run.evidence != nullptr) {
        std::string detail = absl::StrCat(run.evidence->processes.size(),
                                          run.evidence->processes.size() == 1 ? " process" : " processes");
        if (run.evidence->left_out > 0) absl::StrAppend(&detail, " and ", run.evidence->left_out, " more");
        lifecycle.set_detail(detail);
    }
    hub_->path().Publish(std::move(event));
}

}  // namespace stockade::cmd
