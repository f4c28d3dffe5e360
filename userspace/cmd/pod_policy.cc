#include "userspace/cmd/pod_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/model/text.h"
#include "userspace/policy/builtin.h"
#include "userspace/policy/resolve.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxShownBytes = 128;

std::string Shown(absl::string_view text) {
    std::string out;
    (void)model::AppendEscaped(text.substr(0, kMaxShownBytes), &out);
    return out;
}

PodPolicy DenyAll(absl::string_view condition, std::string note) {
    PodPolicy out;
    out.condition = absl::StrCat("Degraded/", condition);
    out.note = std::move(note);
    // Built in, and no file can make it another: it always resolves.
    StatusOr<policy::ResolvedPolicy> policy = policy::PolicyLibrary().Resolve(policy::kDenyAll);
    if (policy.ok()) out.policy = *std::move(policy);
    return out;
}

bool Lists(const std::vector<std::string>& policies, const std::string& name) {
    return std::count(policies.begin(), policies.end(), name) + std::count(policies.begin(), policies.end(), "*") > 0;
}

}  // namespace

bool IsSandboxPod(const nri::PodSandbox& pod, const KubernetesConfig& config) {
    if (config.namespaces.contains(pod.namespace_())) return true;
    if (pod.annotations().contains(kPolicyAnnotation)) return true;
    return pod.labels().contains(config.labels.session) || pod.labels().contains(config.labels.tool) ||
           pod.labels().contains(config.labels.tool_class);
}

PodPolicy ChoosePodPolicy(const orchestrator::PodContainer& container, const model::Labels& labels, const KubernetesConfig& config,
                          PolicyStore& store) {
    const auto found = config.namespaces.find(container.ref.name_space);
    const NamespaceConfig none;
    const NamespaceConfig& own = found == config.namespaces.end() ? none : found->second;
    const auto allowed = [&](const std::string& name) {
        return name == own.policy || name == policy::kDenyAll || Lists(own.policies, name) || Lists(config.policies, name);
    };
    const auto not_allowed = [&](absl::string_view how, const std::string& name) {
        return DenyAll("PolicyNotAllowed", absl::StrCat(how, " ", Shown(name), ", which kubernetes.policies does not list, nor those of namespace ",
                                                        container.ref.name_space));
    };
    const auto by_name = [&](const std::string& name) -> PodPolicy {
        api::PolicySource source;
        source.set_name(name);
        StatusOr<ChosenPolicy> chosen = store.Choose(source, labels);
        if (chosen.ok()) return {.policy = std::move(chosen->policy), .condition = "", .note = ""};
        return DenyAll(absl::IsNotFound(chosen.status()) ? "PolicyNotFound" : "PolicyBroken", std::string(chosen.status().message()));
    };

    const auto annotation = container.annotations.find(kPolicyAnnotation);
    if (annotation != container.annotations.end()) {
        if (annotation->second.empty()) return DenyAll("PolicyNotFound", absl::StrCat("the annotation ", kPolicyAnnotation, " is empty"));
        if (!allowed(annotation->second)) return not_allowed("its annotation names", annotation->second);
        return by_name(annotation->second);
    }
    StatusOr<std::optional<policy::ResolvedPolicy>> selected = store.Select(labels);
    if (absl::IsAlreadyExists(selected.status())) return DenyAll("AmbiguousPolicy", std::string(selected.status().message()));
    if (!selected.ok()) return DenyAll("PolicyBroken", std::string(selected.status().message()));
    if (selected->has_value()) {
        if (!allowed((*selected)->name)) return not_allowed("its labels select", (*selected)->name);
        return {.policy = **std::move(selected), .condition = "", .note = ""};
    }
    if (!own.policy.empty()) return by_name(own.policy);
    return DenyAll("PolicyNotFound",
                   absl::StrCat("pod ", container.ref.name_space, "/", container.ref.name, " names no policy (annotation ", kPolicyAnnotation,
                                "), none selects it, and its namespace has no default"));
}

}  // namespace stockade::cmd
