#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/k8s/checks.h"

namespace stockade::k8s {
namespace {

constexpr char kCluster[] = "cluster";
constexpr char kInstall[] = "helm install stockade deploy/helm/stockade -n stockade";
// The oldest kernel series that Stockade supports by itself; vendors' back-ports are told by the probe on the node alone.
constexpr std::pair<int, int> kOldestKernel = {6, 1};
// NRI came with containerd 1.7, where it is off by default, and is on from 2.0; CRI-O has it from 1.26.
constexpr std::pair<int, int> kContainerdNri = {1, 7};
constexpr std::pair<int, int> kContainerdNriOn = {2, 0};
constexpr std::pair<int, int> kCrioNri = {1, 26};

// The name by which the agent registers, and the annotation that the policy plugin-required leaves to the agent's own pods.
constexpr char kPlugin[] = "stockade";
constexpr char kTolerated[] = "tolerate-missing-plugins.stockade.dev";

// "6.1.0-13-cloud" -> {6, 1}; {0, 0} where it begins with no version.
std::pair<int, int> VersionOf(absl::string_view text) {
    std::pair<int, int> version = {0, 0};
    const std::vector<std::string> parts = absl::StrSplit(absl::StripPrefix(text, "v"), absl::MaxSplits('.', 2));
    if (parts.size() < 2) return version;
    const std::string minor = parts[1].substr(0, parts[1].find_first_not_of("0123456789"));
    int first = 0, second = 0;
    if (absl::SimpleAtoi(parts[0], &first) && absl::SimpleAtoi(minor, &second)) version = {first, second};
    return version;
}

bool IsReady(const Object& pod) {
    for (const Node& condition : pod.Items("status.conditions")) {
        if (condition.Text("type") == "Ready") return condition.Text("status") == "True";
    }
    return false;
}

// Virtual nodes run pods somewhere else: no DaemonSet, no kernel of ours.
bool IsVirtual(const Object& node) {
    return node.Label("type") == "virtual-kubelet" || node.Label("eks.amazonaws.com/compute-type") == "fargate" ||
           node.Label("type") == "kwok";
}

void CheckRuntime(const Object& node, Findings* out) {
    const std::string runtime = node.Text("status.nodeInfo.containerRuntimeVersion");
    const std::pair<int, int> version = VersionOf(runtime.substr(std::min(runtime.size(), runtime.find("://") + 3)));
    const char kCure[] = "containerd 2.0, or CRI-O 1.26, or later";
    if (runtime.empty()) {
        out->push_back({Severity::kUnknown, "node-runtime", node.Called(), "it does not say which container runtime it has", ""});
    } else if (absl::StartsWith(runtime, "containerd://") && version >= kContainerdNri) {
        if (version < kContainerdNriOn)
            out->push_back({Severity::kUnknown, "node-nri", node.Called(),
                            absl::StrCat(runtime, " has NRI, and has it off unless its configuration says otherwise"),
                            "disable = false in [plugins.\"io.containerd.nri.v1.nri\"], with the plugin required"});
    } else if (!absl::StartsWith(runtime, "cri-o://") || version < kCrioNri) {
        out->push_back({Severity::kUnenforceable, "node-runtime", node.Called(),
                        absl::StrCat(runtime, " has no NRI: the agent learns of a pod when it runs already"), kCure});
    }
}

void CheckRuntimeConfig(const RuntimeConfig& config, Findings* out) {
    const std::string object = absl::StrCat("file ", config.file);
    if (config.nri_off)
        out->push_back({Severity::kUnenforceable, "nri-off", object, "NRI is off: the agent learns of no pod", "disable = false"});
    if (!config.validates || std::find(config.required.begin(), config.required.end(), kPlugin) == config.required.end())
        out->push_back({Severity::kWeaker, "plugin-not-required", object, "the runtime starts containers while the agent is away",
                        "default_validator: enable = true, required_plugins = [\"stockade\"] (docs/kubernetes.md)"});
    if (!config.tolerated_by.empty() && config.tolerated_by != kTolerated)
        out->push_back({Severity::kUnenforceable, "plugin-tolerated", object,
                        absl::StrCat("annotation ", config.tolerated_by, " excuses a pod from the plugin, and no admission policy keeps it from pods"),
                        absl::StrCat("tolerate_missing_plugins_annotation = \"", kTolerated, "\"")});
}

void CheckNode(const Object& node, Findings* out) {
    if (IsVirtual(node)) {
        out->push_back({Severity::kUnenforceable, "node-virtual", node.Called(), "it is virtual: pods there run where no agent is",
                        "keep sandboxes to nodes labelled stockade.dev/runtime"});
        return;
    }
    const std::string system = node.Text("status.nodeInfo.operatingSystem");
    if (system == "windows") {
        out->push_back({Severity::kUnenforceable, "node-system", node.Called(), "it runs Windows", "keep sandboxes to Linux nodes"});
        return;
    }
    const std::string kernel = node.Text("status.nodeInfo.kernelVersion");
    const std::pair<int, int> version = VersionOf(kernel);
    if (version == std::pair(0, 0)) {
        out->push_back({Severity::kUnknown, "node-kernel", node.Called(), "it does not say which kernel it has", "stockade doctor on the node"});
    } else if (version < kOldestKernel) {
        out->push_back({Severity::kUnenforceable, "node-kernel", node.Called(),
                        absl::StrCat("kernel ", kernel, " is older than 6.1; unless its vendor ported back what is needed, the agent does not start"),
                        "stockade doctor on the node says what is missing"});
    }
    CheckRuntime(node, out);
}

}  // namespace

bool IsAgent(const Object& object) {
    const Node template_labels = object.Get("spec.template.metadata.labels");
    const bool labelled = object.Label("app.kubernetes.io/part-of") == "stockade" ||
                          template_labels.Key("app.kubernetes.io/part-of").text() == "stockade";
    for (const absl::string_view where : {"spec.containers", "spec.template.spec.containers"}) {
        for (const Node& container : object.Items(where)) {
            for (const Node& word : container.Items("command"))
                if (word.text() == "stockaded" || absl::EndsWith(word.text(), "/stockaded")) return true;
            if (labelled && container.Text("name") == "stockaded") return true;
        }
    }
    return false;
}

void CheckAgent(const ObjectSet& set, Findings* out) {
    bool found = false;
    for (const Object& daemons : set.OfKind("DaemonSet")) {
        if (!IsAgent(daemons)) continue;
        found = true;
        if (!daemons.Get("status").exists()) continue;  // a manifest
        const double wanted = daemons.Number("status.desiredNumberScheduled", 0);
        const double ready = daemons.Number("status.numberReady", 0);
        if (ready < wanted || wanted == 0)
            out->push_back({Severity::kUnenforceable, "agent-not-ready", daemons.Called(),
                            absl::StrCat("ready, which means attested, on ", ready, " of ", wanted, " nodes"),
                            "kubectl describe its pods; stockade status in them"});
    }
    if (!found)
        out->push_back({Severity::kUnenforceable, "agent-absent", kCluster, "no DaemonSet runs stockaded: nothing is enforced anywhere", kInstall});
}

void CheckNodes(const ObjectSet& set, Findings* out) {
    std::set<std::string> guarded;
    bool pods_known = false;
    for (const Object& pod : set.OfKind("Pod")) {
        pods_known = true;
        if (IsAgent(pod) && IsReady(pod)) guarded.insert(pod.Text("spec.nodeName"));
    }
    const std::vector<Object> nodes = set.OfKind("Node");
    if (nodes.empty())
        out->push_back({Severity::kUnknown, "node-unseen", kCluster, "no Node was given: kernels and runtimes were not looked at",
                        "kubectl get nodes -o json"});
    if (!nodes.empty() && set.runtimes.empty())
        out->push_back({Severity::kUnknown, "runtime-config-unseen", "cluster",
                        "objects do not say whether the nodes' runtimes require the agent's plugin",
                        "containerd config dump >node.toml on a node, and give that, too"});
    for (const RuntimeConfig& config : set.runtimes) CheckRuntimeConfig(config, out);
    for (const Object& node : nodes) {
        CheckNode(node, out);
        if (pods_known && !IsVirtual(node) && guarded.count(node.name()) == 0)
            out->push_back({Severity::kUnenforceable, "node-unguarded", node.Called(), "no ready agent runs on it",
                            "taint it stockade.dev/not-attested:NoSchedule, and see why"});
    }
}

}  // namespace stockade::k8s
