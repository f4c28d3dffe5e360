#include "userspace/orchestrator/pod.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stockade::orchestrator {
namespace {

// Kubernetes: names of pods and namespaces are DNS names of at most 253 characters; ids of containers have 64. Generous, as CRI has no
// bound of its own.
constexpr size_t kMaxNameBytes = 256;
// The API server takes 256 KiB of annotations for an object.
constexpr size_t kMaxAnnotations = 1024;
constexpr size_t kMaxAnnotationBytes = 256 << 10;
constexpr size_t kMaxPodLabels = 1024;
// An argv is shown, and not more of it than this.
constexpr size_t kMaxArgs = 256;
constexpr size_t kMaxArgBytes = 4096;

Status CheckName(absl::string_view what, const std::string& name, bool may_be_empty) {
    if (name.empty() && may_be_empty) return absl::OkStatus();
    const bool printable = std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f; });
    if (!name.empty() && name.size() <= kMaxNameBytes && printable && name.find('/') == name.npos) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("the runtime's ", what, " is no name: ", name.size(), " bytes"));
}

template <typename Map>
Status TakeAll(absl::string_view what, const Map& from, size_t max, std::map<std::string, std::string>* to) {
    if (static_cast<size_t>(from.size()) > max)
        return absl::InvalidArgumentError(absl::StrCat("the pod has ", from.size(), " ", what, ", at most ", max));
    size_t bytes = 0;
    for (const auto& [key, value] : from) {
        bytes += key.size() + value.size();
        if (bytes > kMaxAnnotationBytes) return absl::InvalidArgumentError(absl::StrCat("the pod's ", what, " are too long"));
        (*to)[key] = value;
    }
    return absl::OkStatus();
}

}  // namespace

StatusOr<PodContainer> ContainerOf(const nri::PodSandbox& pod, const nri::Container& container) {
    PodContainer out;
    SK_RETURN_IF_ERROR(CheckName("id of a container", container.id(), false));
    SK_RETURN_IF_ERROR(CheckName("name of a container", container.name(), true));
    SK_RETURN_IF_ERROR(CheckName("namespace of a pod", pod.namespace_(), false));
    SK_RETURN_IF_ERROR(CheckName("name of a pod", pod.name(), false));
    SK_RETURN_IF_ERROR(CheckName("uid of a pod", pod.uid(), false));
    SK_RETURN_IF_ERROR(CheckName("runtime handler", pod.runtime_handler(), true));
    if (pod.id() != container.pod_sandbox_id())
        return absl::InvalidArgumentError("the runtime tells of a container with a pod that is not its own");
    out.ref = {.name_space = pod.namespace_(),
               .name = pod.name(),
               .uid = pod.uid(),
               .container = container.name(),
               .container_id = container.id(),
               .handler = pod.runtime_handler()};
    SK_RETURN_IF_ERROR(TakeAll("labels", pod.labels(), kMaxPodLabels, &out.labels));
    SK_RETURN_IF_ERROR(TakeAll("annotations", pod.annotations(), kMaxAnnotations, &out.annotations));
    for (const std::string& arg : container.args()) {
        if (out.args.size() >= kMaxArgs) break;
        out.args.push_back(arg.substr(0, kMaxArgBytes));
    }
    if (container.pid() > 0x7fffffffu) return absl::InvalidArgumentError("the runtime's pid of a container is none");
    out.pid = static_cast<int>(container.pid());
    return out;
}

StatusOr<PodLabels> LabelsOf(const PodContainer& container, const LabelKeys& keys) {
    PodLabels out;
    const PodRef& ref = container.ref;
    const std::pair<const char*, const std::string&> whose[] = {
        {kNamespaceLabel, ref.name_space}, {kPodLabel, ref.name},           {kPodUidLabel, ref.uid},
        {kContainerLabel, ref.container},  {kContainerIdLabel, ref.container_id}, {kHandlerLabel, ref.handler}};
    for (const auto& [key, value] : whose) {
        if (!value.empty()) out.labels.free[key] = value;
    }
    const std::pair<const std::string&, std::string*> own[] = {
        {keys.session, &out.labels.session}, {keys.tool, &out.labels.tool}, {keys.trace, &out.labels.trace}};
    for (const auto& [key, value] : container.labels) {
        const auto* const mine = std::find_if(std::begin(own), std::end(own), [&key = key](const auto& row) { return row.first == key; });
        const bool taken = std::any_of(std::begin(whose), std::end(whose), [&key = key](const auto& row) { return row.first == key; });
        if (mine != std::end(own)) {
            *mine->second = value;
        } else if (taken) {
            ++out.left_out;
        } else if (out.labels.free.size() >= model::kMaxLabels) {
            ++out.left_out;
        } else {
            out.labels.free[key] = value;
        }
    }
    SK_RETURN_IF_ERROR(Annotate(model::CheckLabels(out.labels), absl::StrCat("pod ", container.ref.name_space, "/", container.ref.name)));
    return out;
}

}  // namespace stockade::orchestrator
