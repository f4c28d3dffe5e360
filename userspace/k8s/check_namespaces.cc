#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/k8s/checks.h"

namespace stockade::k8s {
namespace {

constexpr char kMetadataAddress[] = "169.254.169.254/32";

bool Selects(const Node& types, absl::string_view type) {
    for (const Node& one : types.Items("policyTypes"))
        if (one.text() == type) return true;
    return false;
}

bool SelectsAll(const Node& spec) {
    return spec.Keys("podSelector.matchLabels").empty() && spec.Items("podSelector.matchExpressions").empty();
}

// One that closes every pod of its namespace, both ways.
bool ClosesAll(const Object& policy) {
    const Node spec = policy.Get("spec");
    return SelectsAll(spec) && Selects(spec, "Ingress") && Selects(spec, "Egress") && spec.Items("ingress").empty() &&
           spec.Items("egress").empty();
}

// Whether a peer of an egress rule leaves the metadata service of clouds in.
bool OpensMetadata(const Node& peer) {
    const std::string cidr = peer.Text("ipBlock.cidr");
    if (cidr != "0.0.0.0/0" && !absl::StartsWith(cidr, "169.254.")) return false;
    for (const Node& except : peer.Items("ipBlock.except")) {
        if (absl::StartsWith(except.text(), "169.254.0.0/16") || except.text() == kMetadataAddress) return false;
    }
    return true;
}

void CheckEgress(const Object& policy, Findings* out) {
    for (const Node& rule : policy.Items("spec.egress")) {
        const std::vector<Node> peers = rule.Items("to");
        bool open = false;
        for (const Node& peer : peers) open = open || OpensMetadata(peer);
        if (peers.empty())
            out->push_back({Severity::kWeaker, "network-egress", policy.Called(), "it opens every address",
                            "name what the sandbox needs in `to`"});
        else if (open)
            out->push_back({Severity::kWeaker, "network-metadata", policy.Called(), "it opens the cloud's metadata service, where credentials are",
                            "except: [169.254.0.0/16]"});
    }
}

void CheckBreakGlass(const Object& space, int64_t now_s, Findings* out) {
    if (!space.HasLabel("stockade.dev/break-glass")) return;
    int64_t until = 0;
    const bool number = absl::SimpleAtoi(space.Label("stockade.dev/break-glass"), &until);
    const std::string what = !number          ? "its break-glass label is no time"
                             : until <= now_s ? absl::StrCat("break-glass has expired ", now_s - until,
                                                             " s ago, and the native exec-ban goes by the label until it is gone")
                                              : absl::StrCat("break-glass is open for another ", until - now_s, " s: exec into its pods is admitted");
    out->push_back({Severity::kWeaker, "break-glass", space.Called(), what,
                    absl::StrCat("kubectl label ns ", space.name(), " stockade.dev/break-glass-")});
}

void CheckSpace(const ObjectSet& set, const Object& space, int64_t now_s, Findings* out) {
    const std::string kind = SandboxClass(space);
    if (kind.empty()) return;
    if (kind != "tool" && kind != "agent")
        out->push_back({Severity::kWeaker, "sandbox-label", space.Called(), absl::StrCat("stockade.dev/sandbox is '", kind, "'; it gets the rules of tool"),
                        "tool, or agent"});
    if (space.name() == "kube-system" || space.name() == "kyverno")
        out->push_back({Severity::kUnenforceable, "namespace-exempt", space.Called(), "Kyverno's webhooks leave it out", "another namespace for sandboxes"});
    const std::string security = space.Label("pod-security.kubernetes.io/enforce");
    if (kind != "agent" && security != "restricted")
        out->push_back({Severity::kWeaker, "pod-security", space.Called(),
                        security.empty() ? "Pod Security is not set" : absl::StrCat("Pod Security is ", security),
                        "pod-security.kubernetes.io/enforce: restricted"});
    bool closed = false;
    for (const Object& policy : set.OfKind("NetworkPolicy")) {
        if (policy.space() != space.name()) continue;
        closed = closed || ClosesAll(policy);
        CheckEgress(policy, out);
    }
    if (!closed)
        out->push_back({Severity::kUnenforceable, "network-open", space.Called(),
                        "no NetworkPolicy closes all its pods: beside the agent's own verdicts nothing keeps them from the network",
                        "deploy/kubernetes/network-policies.yaml: stockade-default-deny"});
    CheckBreakGlass(space, now_s, out);
}

}  // namespace

std::string SandboxClass(const Object& space) {
    // Present without a value is still a sandbox namespace, as the policies select by existence.
    if (!space.HasLabel("stockade.dev/sandbox")) return "";
    const std::string kind = space.Label("stockade.dev/sandbox");
    return kind.empty() ? "(empty)" : kind;
}

void CheckNamespaces(const ObjectSet& set, int64_t now_s, Findings* out) {
    bool any = false;
    for (const Object& space : set.OfKind("Namespace")) {
        any = any || !SandboxClass(space).empty();
        CheckSpace(set, space, now_s, out);
    }
    if (!any)
        out->push_back({Severity::kUnknown, "no-sandbox-namespace", "cluster",
                        "no Namespace with the label stockade.dev/sandbox was given: the admission policies look at those alone", "deploy/kubernetes/namespaces.yaml"});
}

}  // namespace stockade::k8s
