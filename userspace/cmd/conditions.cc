#include "userspace/cmd/conditions.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace stockade::cmd {
namespace {

Condition ReadyOf(const sandbox::Sandbox& sandbox) {
    if (sandbox.kill_pending)
        return {"Ready", false, "KillPending", "the kernel cannot end its tasks yet (state D)"};
    switch (sandbox.state) {
        case model::SandboxState::kRegistered:
        case model::SandboxState::kStarting:
            return {"Ready", false, "Starting", ""};
        case model::SandboxState::kRunning:
            return {"Ready", true, "Attested", ""};
        case model::SandboxState::kCondemned:
            return {"Ready", false, "Condemned", ""};
        case model::SandboxState::kEmpty:
        case model::SandboxState::kDestroyed:
            break;
    }
    return {"Ready", false, "Ended", ""};
}

// What was done to a running sandbox beside its policy (agent_restrain.cc).
constexpr struct {
    absl::string_view type, message;
} kRestraints[] = {{"Frozen", "its tasks stand still until stockade thaw"},
                   {"Isolated", "it has no network until stockade release"},
                   {"Denied", "paths were denied to it beside its policy, until stockade release"}};

}  // namespace

std::vector<Condition> SandboxConditions(const sandbox::Sandbox& sandbox, absl::string_view backend) {
    std::vector<Condition> out = {ReadyOf(sandbox)};
    if (sandbox.slot == 0) {
        out.push_back({"Enforced", false, "NotBound", ""});
    } else if (sandbox.mode == "observe") {
        out.push_back({"Enforced", false, "ObserveOnly",
                       "mode: observe reports what would have been refused, and refuses nothing"});
    } else {
        out.push_back({"Enforced", true, backend == "lsm" ? "Lsm" : "Signal",
                       backend == "lsm"
                           ? ""
                           : "some effects are seen, or killed after they happened: see the coverage"});
    }
    std::vector<std::string> degraded;
    bool adopted = false;
    for (absl::string_view condition : sandbox.conditions) {
        if (absl::ConsumePrefix(&condition, "Degraded/")) {
            degraded.emplace_back(condition);
        } else if (condition == "Adopted") {
            adopted = true;
        }
    }
    out.push_back({"Degraded", !degraded.empty(), degraded.empty() ? "AsIntended" : degraded.front(),
                   degraded.size() > 1 ? absl::StrJoin(degraded, ", ") : ""});
    for (const auto& [type, message] : kRestraints) {
        if (absl::c_linear_search(sandbox.conditions, type))
            out.push_back({std::string(type), true, "Restrained", std::string(message)});
    }
    if (adopted) out.push_back({"Adopted", true, "AgentRestarted", "an earlier agent started it"});
    return out;
}

std::string Headline(const std::vector<Condition>& conditions) {
    for (const Condition& condition : conditions) {
        if (condition.type == "Degraded" && condition.holds)
            return absl::StrCat("Degraded/", condition.reason);
    }
    for (const Condition& condition : conditions) {
        if ((condition.type == "Ready" || condition.type == "Enforced") && !condition.holds)
            return condition.reason;
    }
    for (const Condition& condition : conditions) {
        if (condition.reason == "Restrained") return condition.type;
    }
    return "Ready";
}

}  // namespace stockade::cmd
