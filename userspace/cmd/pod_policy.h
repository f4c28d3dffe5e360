// Which policy a pod's container gets, and whether it is a sandbox at all.
#pragma once

#include <string>

#include "userspace/cmd/config_kubernetes.h"
#include "userspace/cmd/run_policy.h"
#include "userspace/orchestrator/pod.h"

namespace stockade::cmd {

// Names the policy; of a pod.
inline constexpr char kPolicyAnnotation[] = "stockade.dev/policy";

// Its namespace is one of the configuration's, or the pod says so itself: by the annotation, or by a label of session, tool or class.
// All else on the node (its CNI, its DNS, the agent) is nobody's business here.
bool IsSandboxPod(const nri::PodSandbox& pod, const KubernetesConfig& config);

struct PodPolicy {
    policy::ResolvedPolicy policy;
    // Why it is deny-all, as "Degraded/PolicyNotFound", and what to do about it in `note`. Empty when a policy was found.
    std::string condition;
    std::string note;
};

// The annotation before selectors, selectors before the namespace's default. What a tenant writes (annotation, labels) chooses among
// what the administrator lists and nothing else; a policy that the namespace has for itself is cut down to what the node's selectors or the
// namespace's default give the pod. There is always an answer: where there is no policy, or no single one, it is deny-all.
PodPolicy ChoosePodPolicy(const orchestrator::PodContainer& container, const model::Labels& labels, const KubernetesConfig& config,
                          PolicyStore& store);

// The policy that a sandbox was bound with, by its name: one of a namespace's own is what it is only under its ceiling.
StatusOr<policy::ResolvedPolicy> PolicyOfName(const std::string& name, const model::Labels& labels, const KubernetesConfig& config,
                                              PolicyStore& store);

}  // namespace stockade::cmd
