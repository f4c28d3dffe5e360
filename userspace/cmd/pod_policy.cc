#include "userspace/cmd/pod_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/model/text.h"
#include "userspace/policy/builtin.h"
#include "userspace/policy/ceiling.h"
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

class Choice {
  public:
    Choice(const orchestrator::PodContainer& container, const model::Labels& labels, const KubernetesConfig& config, PolicyStore& store)
        : container_(container), labels_(labels), config_(config), store_(store) {
        const auto found = config.namespaces.find(container.ref.name_space);
        if (found != config.namespaces.end()) own_ = found->second;
    }

    PodPolicy Make() {
        const auto annotation = container_.annotations.find(kPolicyAnnotation);
        const bool named = annotation != container_.annotations.end();
        const std::string name = named ? annotation->second : "";
        if (named && name.empty()) return DenyAll("PolicyNotFound", absl::StrCat("the annotation ", kPolicyAnnotation, " is empty"));
        const auto own = store_.OfNamespace(container_.ref.name_space, name, labels_);
        if (!own.ok()) return Failed(own.status());
        if (!own->has_value()) return named ? Named(name) : Unnamed();
        // It narrows what the node's policies give the pod without it.
        PodPolicy ceiling = Unnamed();
        if (!ceiling.condition.empty()) return ceiling;
        policy::Narrowed narrowed = policy::Narrow(ceiling.policy, **own);
        return {.policy = std::move(narrowed.policy), .condition = "", .note = absl::StrJoin(narrowed.notes, "; ")};
    }

  private:
    bool Allowed(const std::string& name) const {
        return name == own_.policy || name == policy::kDenyAll || Lists(own_.policies, name) || Lists(config_.policies, name);
    }

    PodPolicy NotAllowed(absl::string_view how, const std::string& name) const {
        return DenyAll("PolicyNotAllowed", absl::StrCat(how, " ", Shown(name), ", which kubernetes.policies does not list, nor those of namespace ",
                                                        container_.ref.name_space));
    }

    static PodPolicy Failed(const Status& status) {
        return DenyAll(absl::IsAlreadyExists(status) ? "AmbiguousPolicy" : "PolicyBroken", std::string(status.message()));
    }

    PodPolicy ByName(const std::string& name) {
        api::PolicySource source;
        source.set_name(name);
        StatusOr<ChosenPolicy> chosen = store_.Choose(source, labels_);
        if (chosen.ok()) return {.policy = std::move(chosen->policy), .condition = "", .note = ""};
        return DenyAll(absl::IsNotFound(chosen.status()) ? "PolicyNotFound" : "PolicyBroken", std::string(chosen.status().message()));
    }

    PodPolicy Named(const std::string& name) {
        if (!Allowed(name)) return NotAllowed("its annotation names", name);
        return ByName(name);
    }

    // By its labels, else the default of its namespace.
    PodPolicy Unnamed() {
        StatusOr<std::optional<policy::ResolvedPolicy>> selected = store_.Select(labels_);
        if (!selected.ok()) return Failed(selected.status());
        if (selected->has_value()) {
            if (!Allowed((*selected)->name)) return NotAllowed("its labels select", (*selected)->name);
            return {.policy = **std::move(selected), .condition = "", .note = ""};
        }
        if (!own_.policy.empty()) return ByName(own_.policy);
        return DenyAll("PolicyNotFound",
                       absl::StrCat("pod ", container_.ref.name_space, "/", container_.ref.name, " names no policy (annotation ",
                                    kPolicyAnnotation, ") of the node, none selects it, and its namespace has no default"));
    }

    const orchestrator::PodContainer& container_;
    const model::Labels& labels_;
    const KubernetesConfig& config_;
    PolicyStore& store_;
    NamespaceConfig own_;
};

}  // namespace

bool IsSandboxPod(const nri::PodSandbox& pod, const KubernetesConfig& config) {
    if (config.namespaces.contains(pod.namespace_())) return true;
    if (pod.annotations().contains(kPolicyAnnotation)) return true;
    return pod.labels().contains(config.labels.session) || pod.labels().contains(config.labels.tool) ||
           pod.labels().contains(config.labels.tool_class);
}

PodPolicy ChoosePodPolicy(const orchestrator::PodContainer& container, const model::Labels& labels, const KubernetesConfig& config,
                          PolicyStore& store) {
    return Choice(container, labels, config, store).Make();
}

StatusOr<policy::ResolvedPolicy> PolicyOfName(const std::string& name, const model::Labels& labels, const KubernetesConfig& config,
                                              PolicyStore& store) {
    const size_t slash = name.find('/');
    if (slash == name.npos) {
        api::PolicySource source;
        source.set_name(name);
        SK_ASSIGN_OR_RETURN(ChosenPolicy chosen, store.Choose(source, labels));
        return std::move(chosen.policy);
    }
    // Whatever chose it then: named, it has the same ceiling.
    orchestrator::PodContainer container;
    container.ref.name_space = name.substr(0, slash);
    container.annotations[kPolicyAnnotation] = name.substr(slash + 1);
    PodPolicy chosen = ChoosePodPolicy(container, labels, config, store);
    if (!chosen.condition.empty()) return absl::NotFoundError(chosen.note);
    return std::move(chosen.policy);
}

}  // namespace stockade::cmd
