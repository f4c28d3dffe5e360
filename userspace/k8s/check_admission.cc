#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "userspace/k8s/checks.h"
#include "userspace/k8s/doctor.h"

namespace stockade::k8s {
namespace {

constexpr char kNative[] = "kubectl apply kyverno/*/twin.yaml and binding.yaml, or admission.native.enabled of the chart";
// As many of one kind of finding are told by name.
constexpr size_t kMaxNamed = 8;

bool Denies(const std::vector<Node>& actions) {
    return std::any_of(actions.begin(), actions.end(), [](const Node& action) { return action.text() == "Deny"; });
}

bool Ignores(const Object& policy) { return policy.Text("spec.failurePolicy") == "Ignore"; }

// Stockade's are called after it, whoever installed them.
struct Installed {
    bool native = false;        // bound, and denies
    bool native_there = false;  // but not so
    bool kyverno = false;       // denies
    bool kyverno_there = false;
    bool ignores = false;
};

Installed InstalledOf(const ObjectSet& set, const std::string& policy) {
    Installed is;
    const std::string name = absl::StrCat("stockade-", policy), native = absl::StrCat(name, "-native");
    for (const Object& twin : set.OfKind("ValidatingAdmissionPolicy")) {
        if (twin.name() != native) continue;
        is.native_there = true;
        is.ignores = is.ignores || Ignores(twin);
        for (const Object& binding : set.OfKind("ValidatingAdmissionPolicyBinding")) {
            if (binding.Text("spec.policyName") == native && Denies(binding.Items("spec.validationActions"))) is.native = true;
        }
    }
    for (const absl::string_view kind : {"ValidatingPolicy", "GeneratingPolicy", "DeletingPolicy"}) {
        for (const Object& one : set.OfKind(kind)) {
            if (one.name() != name) continue;
            is.kyverno_there = true;
            is.ignores = is.ignores || Ignores(one);
            is.kyverno = kind != "ValidatingPolicy" || Denies(one.Items("spec.validationActions"));
        }
    }
    return is;
}

std::string Named(const std::vector<std::string>& names) {
    const size_t shown = std::min(names.size(), kMaxNamed);
    return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                        shown < names.size() ? absl::StrCat(" and ", names.size() - shown, " more") : "");
}

bool KyvernoRuns(const ObjectSet& set) {
    for (const Object& deployment : set.OfKind("Deployment")) {
        if (deployment.Label("app.kubernetes.io/part-of") == "kyverno" &&
            deployment.Label("app.kubernetes.io/component") == "admission-controller")
            return deployment.Number("spec.replicas", 1) > 0;
    }
    return false;
}

void CheckKyverno(const ObjectSet& set, bool has_policies, Findings* out) {
    if (!has_policies) return;
    if (!KyvernoRuns(set)) {
        out->push_back({Severity::kUnenforceable, "kyverno-absent", "cluster",
                        "there are policies for Kyverno, and no Deployment of its admission controller: nobody asks them", kNative});
        return;
    }
    for (const Object& exception : set.OfKind("PolicyException"))
        out->push_back({Severity::kWeaker, "kyverno-exception", exception.Called(), "it excuses something from Kyverno's policies", "look at what it matches"});
}

}  // namespace

const std::vector<std::string>& ShippedPolicies() {
    static const std::vector<std::string> kPolicies = {
        "dns",           "exec-ban",        "forbidden-mounts", "hardening-agent", "hardening-tool",    "host-namespaces",  "labels",
        "leftovers",     "namespace-guard", "network",          "network-default", "no-token",          "node-proxy",       "pinned-images",
        "plugin-required", "protect-cluster", "protect-namespace", "protect-nodes", "protect-policies", "runtime-class",    "runtime-pool",
        "sandbox-namespace", "seccomp",     "tool-job",         "volumes"};
    return kPolicies;
}

bool HasTwin(absl::string_view policy) { return policy != "leftovers"; }

void CheckAdmission(const ObjectSet& set, Findings* out) {
    std::vector<std::string> missing, idle, only_kyverno, ignoring;
    bool kyverno = false;
    for (const std::string& policy : ShippedPolicies()) {
        const Installed is = InstalledOf(set, policy);
        kyverno = kyverno || is.kyverno_there;
        if (is.ignores) ignoring.push_back(policy);
        if (!HasTwin(policy) || is.native) continue;
        if (is.kyverno) only_kyverno.push_back(policy);
        else (is.native_there || is.kyverno_there ? idle : missing).push_back(policy);
    }
    const size_t twins = std::count_if(ShippedPolicies().begin(), ShippedPolicies().end(), HasTwin);
    if (missing.size() == twins) {
        out->push_back({Severity::kUnenforceable, "admission-absent", "cluster",
                        "no admission policy of Stockade is there: any pod may ask for what cannot be confined", kNative});
    } else if (!missing.empty()) {
        out->push_back({Severity::kWeaker, "admission-missing", "cluster", absl::StrCat("there is no policy ", Named(missing)), kNative});
    }
    if (!idle.empty())
        out->push_back({Severity::kUnenforceable, "admission-idle", "cluster",
                        absl::StrCat("these refuse nothing, without a binding or an action Deny: ", Named(idle)), "validationActions: [Deny, Audit]"});
    if (!ignoring.empty())
        out->push_back({Severity::kUnenforceable, "admission-ignores", "cluster",
                        absl::StrCat("these admit what they cannot judge: ", Named(ignoring)), "failurePolicy: Fail"});
    if (!only_kyverno.empty())
        out->push_back({Severity::kWeaker, "admission-one-sided", "cluster",
                        absl::StrCat("only Kyverno keeps, and nobody does while it is exempt or away: ", Named(only_kyverno)), kNative});
    CheckKyverno(set, kyverno, out);
}

}  // namespace stockade::k8s
