#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "userspace/k8s/checks.h"

namespace stockade::k8s {
namespace {

constexpr const char* kIdentity[] = {"stockade.dev/session", "stockade.dev/tool", "stockade.dev/trace"};
// With one of these a pod reaches past what confines it: maps and programs, memory of others, the network's set-up, devices.
const std::set<std::string> kStrong = {"ALL",        "BPF",       "PERFMON",    "SYS_ADMIN",       "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO",
                                       "SYS_BOOT",   "NET_ADMIN", "NET_RAW",    "DAC_READ_SEARCH", "MKNOD",      "SYSLOG",     "MAC_ADMIN",
                                       "MAC_OVERRIDE", "SYS_CHROOT", "SYS_TIME", "CHECKPOINT_RESTORE"};
constexpr const char* kSockets[] = {"docker.sock", "containerd.sock", "crio.sock", "nri.sock", "podman.sock", "cri-dockerd.sock", "kubelet.sock"};
constexpr char kTolerate[] = "tolerate-missing-plugins";

// What makes pods: the way to the pod's own metadata and spec.
constexpr std::pair<const char*, const char*> kMakers[] = {
    {"Pod", ""},
    {"Job", "spec.template"},
    {"CronJob", "spec.jobTemplate.spec.template"},
    {"Deployment", "spec.template"},
    {"StatefulSet", "spec.template"},
    {"DaemonSet", "spec.template"},
    {"ReplicaSet", "spec.template"},
    {"ReplicationController", "spec.template"},
    {"PodTemplate", "template"},
};

struct Pod {
    Object object;
    Node metadata;
    Node spec;
    std::string space_class;  // of its namespace; "" where that is none of a sandbox
    bool space_known = false;
    const std::map<std::string, std::string>* handlers;  // RuntimeClass -> handler
    Findings* out;

    void Add(Severity severity, std::string check, std::string what, std::string cure) const {
        out->push_back({severity, std::move(check), object.Called(), std::move(what), std::move(cure)});
    }
};

bool IsStrongRuntime(const std::string& handler) {
    return absl::StartsWith(handler, "runsc") || absl::StartsWith(handler, "kata") || absl::StrContains(handler, "gvisor") ||
           absl::StrContains(handler, "firecracker");
}

void CheckRuntime(const Pod& pod) {
    const std::string name = pod.spec.Text("runtimeClassName");
    if (name.empty()) return;
    const auto known = pod.handlers->find(name);
    const std::string handler = known == pod.handlers->end() ? name : known->second;
    if (IsStrongRuntime(handler)) {
        pod.Add(Severity::kUnenforceable, "runtime-unseen",
                absl::StrCat("runtime ", name, " has a kernel of its own: exec and files in it are seen by nobody here, network and DNS at its edge"),
                "a policy with network and dns alone; the runtime is what confines the rest");
    } else if (known == pod.handlers->end() && !pod.handlers->empty()) {
        pod.Add(Severity::kUnknown, "runtime-unknown", absl::StrCat("there is no RuntimeClass ", name), "deploy/kubernetes/runtime-classes.yaml");
    } else if (handler != "runc" && handler != "crun") {
        pod.Add(Severity::kUnknown, "runtime-unknown", absl::StrCat("runtime ", name, " is none that Stockade knows"), "runc, crun, gvisor or kata-qemu");
    }
}

void CheckVolumes(const Pod& pod) {
    for (const Node& volume : pod.spec.Items("volumes")) {
        const Node host = volume.Get("hostPath");
        if (!host.exists()) continue;
        const std::string path = host.Text("path");
        bool socket = false;
        for (const char* name : kSockets) socket = socket || absl::EndsWith(path, name);
        if (socket)
            pod.Add(Severity::kUnenforceable, "runtime-socket", absl::StrCat(path, " of the host is mounted: who speaks to it is the node's root"),
                    "no sandbox needs it");
        else
            pod.Add(Severity::kUnenforceable, "host-path", absl::StrCat("hostPath ", path, ": what is written there outlives the sandbox and leaves it"),
                    "an emptyDir with a sizeLimit");
    }
}

void CheckHost(const Pod& pod) {
    std::vector<std::string> shared;
    for (const char* name : {"hostNetwork", "hostPID", "hostIPC"})
        if (pod.spec.Flag(name, false)) shared.emplace_back(name);
    if (!shared.empty())
        pod.Add(Severity::kUnenforceable, "host-namespace", absl::StrCat("it is in the host's namespaces: ", absl::StrJoin(shared, ", ")),
                "leave them out");
}

// The egress guard of an agent pod: the first init container, and NET_ADMIN alone.
bool IsEgressGuard(const Pod& pod, const Node& container, bool first_init) {
    if (pod.space_class != "agent" || !first_init) return false;
    const std::vector<Node> added = container.Items("securityContext.capabilities.add");
    return added.size() == 1 && added[0].text() == "NET_ADMIN" && !container.Flag("securityContext.privileged", false);
}

void CheckContainer(const Pod& pod, const Node& container, bool first_init, bool* unconfined) {
    const std::string name = container.Text("name");
    if (container.Flag("securityContext.privileged", false))
        pod.Add(Severity::kUnenforceable, "privileged", absl::StrCat("container ", name, " is privileged: it can take the node's programs away"),
                "privileged: false");
    std::vector<std::string> strong;
    for (const Node& added : container.Items("securityContext.capabilities.add")) {
        const std::string text(absl::StripPrefix(added.text(), "CAP_"));
        if (kStrong.count(text) > 0) strong.push_back(text);
    }
    if (!strong.empty() && !IsEgressGuard(pod, container, first_init))
        pod.Add(Severity::kUnenforceable, "capability", absl::StrCat("container ", name, " adds ", absl::StrJoin(strong, ", ")), "drop: [ALL]");
    std::string seccomp = container.Text("securityContext.seccompProfile.type");
    if (seccomp.empty()) seccomp = pod.spec.Text("securityContext.seccompProfile.type");
    *unconfined = *unconfined || seccomp.empty() || seccomp == "Unconfined";
}

void CheckContainers(const Pod& pod) {
    bool unconfined = false;
    for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
        bool first = true;
        for (const Node& container : pod.spec.Items(list)) {
            CheckContainer(pod, container, first && absl::string_view(list) == "initContainers", &unconfined);
            first = false;
        }
    }
    if (unconfined) pod.Add(Severity::kWeaker, "seccomp", "a container has no seccomp profile", "seccompProfile: {type: RuntimeDefault}");
    if (!pod.spec.Items("ephemeralContainers").empty())
        pod.Add(Severity::kWeaker, "entered", "it has an ephemeral container: somebody debugs it", "let it end");
}

void CheckIdentity(const Pod& pod) {
    std::vector<std::string> missing;
    for (const char* key : kIdentity)
        if (pod.metadata.Get("labels").Key(key).text().empty()) missing.emplace_back(key);
    if (!missing.empty())
        pod.Add(Severity::kWeaker, "labels", absl::StrCat("its events will not say whose it is: no label ", absl::StrJoin(missing, ", ")), "set them at its birth");
    for (const std::string& key : pod.metadata.Keys("annotations")) {
        if (absl::StartsWith(key, kTolerate))
            pod.Add(Severity::kUnenforceable, "plugin-optional", absl::StrCat("annotation ", key, " lets it start while the agent is away"), "leave it out");
    }
    const std::string source = pod.metadata.Get("annotations").Key("kubernetes.io/config.source").text();
    if (source == "file" || source == "http")
        pod.Add(Severity::kWeaker, "static-pod", "it is a static pod: admission never sees it", "make it by the API server");
    if (pod.spec.Flag("automountServiceAccountToken", true))
        pod.Add(Severity::kWeaker, "token", "it has a service-account token", "automountServiceAccountToken: false");
}

bool HasEnded(const Object& object) {
    const std::string phase = object.kind() == "Pod" ? object.Text("status.phase") : "";
    return phase == "Succeeded" || phase == "Failed";
}

bool HasIdentity(const Node& metadata) {
    for (const char* key : kIdentity)
        if (metadata.Get("labels").Key(key).exists()) return true;
    return false;
}

void CheckPod(const Pod& pod) {
    if (pod.space_class.empty() && pod.space_known)
        pod.Add(Severity::kUnenforceable, "outside", absl::StrCat("it has a sandbox's labels, and its namespace ", pod.object.space(), " is none of sandboxes: no policy looks at it"),
                "a namespace with the label stockade.dev/sandbox");
    CheckRuntime(pod);
    CheckVolumes(pod);
    CheckHost(pod);
    CheckContainers(pod);
    CheckIdentity(pod);
}

}  // namespace

size_t CheckPods(const ObjectSet& set, Findings* out) {
    std::map<std::string, std::string> spaces, handlers;  // by name
    for (const Object& space : set.OfKind("Namespace")) spaces[space.name()] = SandboxClass(space);
    for (const Object& runtime : set.OfKind("RuntimeClass")) handlers[runtime.name()] = runtime.Text("handler");
    size_t count = 0;
    for (const auto& [kind, way] : kMakers) {
        for (const Object& object : set.OfKind(kind)) {
            // What has a maker was looked at there, but for pods, which may have been changed since.
            if (object.kind() == "ReplicaSet" && !object.Items("metadata.ownerReferences").empty()) continue;
            if (IsAgent(object) || HasEnded(object)) continue;
            const auto space = spaces.find(object.space());
            const Node pod = object.Get(way);
            const std::string space_class = space == spaces.end() ? "" : space->second;
            if (space_class.empty() && !HasIdentity(pod.Get("metadata"))) continue;
            ++count;
            CheckPod({object, pod.Get("metadata"), pod.Get("spec"), space_class, space != spaces.end(), &handlers, out});
        }
    }
    return count;
}

}  // namespace stockade::k8s
