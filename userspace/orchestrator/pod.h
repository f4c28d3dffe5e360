// A container of a pod, as the runtime tells of it, and what of it becomes a sandbox's labels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/model/sandbox.h"
#include "userspace/nri/nri.pb.h"

namespace stockade::orchestrator {

// As the runtime named it when it was created.
struct PodRef {
    std::string name_space{};
    std::string name{};
    std::string uid{};
    std::string container{};
    std::string container_id{};
    std::string handler{};  // of the pod's RuntimeClass; empty = the node's default
};

struct PodContainer {
    PodRef ref;
    std::map<std::string, std::string> labels;       // of the pod
    std::map<std::string, std::string> annotations;  // of the pod
    std::vector<std::string> args;                   // of the container
    int pid = 0;                                     // of its first task; 0 before it is made
};

// kInvalidArgument for what no runtime says: no id, text that is no name, more than fits. A pod of another id than the container's own is
// that too.
StatusOr<PodContainer> ContainerOf(const nri::PodSandbox& pod, const nri::Container& container);

// Free labels that say whose it is, named as OpenTelemetry names them. A pod's own label of such a name does not count.
inline constexpr char kNamespaceLabel[] = "k8s.namespace.name";
inline constexpr char kPodLabel[] = "k8s.pod.name";
inline constexpr char kPodUidLabel[] = "k8s.pod.uid";
inline constexpr char kContainerLabel[] = "k8s.container.name";
inline constexpr char kContainerIdLabel[] = "container.id";
inline constexpr char kHandlerLabel[] = "container.runtime.handler";

// Keys under which labels are the sandbox's session, tool and trace. Those of the pod that are left become free labels, as many as fit:
// `left_out` says how many did not.
struct LabelKeys {
    std::string session, tool, trace;
};
struct PodLabels {
    model::Labels labels;
    size_t left_out = 0;
};
// kInvalidArgument for a trace that is no traceparent, or a label beyond model::CheckLabels.
StatusOr<PodLabels> LabelsOf(const PodContainer& container, const LabelKeys& keys);

}  // namespace stockade::orchestrator
