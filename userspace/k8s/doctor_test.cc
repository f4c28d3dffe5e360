// Each check on an object that it finds something in, and on the same object without that.
#include "userspace/k8s/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "userspace/base/fd.h"

namespace stockade::k8s {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr int64_t kNow = 1'800'000'000;

constexpr char kAgent[] = R"(
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: stockade, namespace: stockade, labels: {app.kubernetes.io/part-of: stockade}}
spec: {template: {spec: {hostPID: true, containers: [{name: stockaded, command: [stockaded]}]}}}
status: {desiredNumberScheduled: 1, numberReady: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: stockade-x, namespace: stockade, labels: {app.kubernetes.io/part-of: stockade}}
spec: {nodeName: n1, hostPID: true, containers: [{name: stockaded, command: [stockaded]}]}
status: {conditions: [{type: Ready, status: "True"}]}
)";
constexpr char kNode[] = R"(
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {nodeInfo: {kernelVersion: 6.1.0-13-amd64, containerRuntimeVersion: "containerd://2.1.4", operatingSystem: linux}}
)";
constexpr char kSpaces[] = R"(
apiVersion: v1
kind: Namespace
metadata: {name: sb, labels: {stockade.dev/sandbox: tool, pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: ag, labels: {stockade.dev/sandbox: agent}}
---
apiVersion: v1
kind: Namespace
metadata: {name: plain}
)";
constexpr char kClosed[] = R"(
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: d, namespace: sb}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: d, namespace: ag}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
)";
constexpr char kRuntimes[] = R"(
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: plain}
handler: runc
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: strong}
handler: runsc
)";
constexpr char kPod[] = R"(
apiVersion: v1
kind: Pod
metadata:
  name: tool
  namespace: sb
  labels: {stockade.dev/session: s, stockade.dev/tool: t, stockade.dev/trace: u}
  annotations: {stockade.dev/policy: networkless}
spec:
  runtimeClassName: plain
  automountServiceAccountToken: false
  securityContext: {seccompProfile: {type: RuntimeDefault}}
  volumes: [{name: tmp, emptyDir: {}}]
  containers: [{name: c, securityContext: {capabilities: {drop: [ALL]}}}]
)";

std::string Policies(const std::string& without = "") {
    std::string out;
    for (const std::string& policy : ShippedPolicies()) {
        if (!HasTwin(policy) || policy == without) continue;
        absl::StrAppend(&out, "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: stockade-", policy,
                        "-native}\nspec: {failurePolicy: Fail}\n---\napiVersion: admissionregistration.k8s.io/v1\n"
                        "kind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b-", policy, "}\nspec: {policyName: stockade-", policy,
                        "-native, validationActions: [Deny, Audit]}\n---\n");
    }
    return out;
}

std::string Kyverno(const std::string& without = "") {
    std::string out;
    for (const std::string& policy : ShippedPolicies()) {
        if (policy != without)
            absl::StrAppend(&out, "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: stockade-", policy,
                            "}\nspec: {failurePolicy: Fail, validationActions: [Deny]}\n---\n");
    }
    return out;
}

constexpr char kKyvernoRuns[] = R"(
apiVersion: apps/v1
kind: Deployment
metadata: {name: k, namespace: kyverno, labels: {app.kubernetes.io/part-of: kyverno, app.kubernetes.io/component: admission-controller}}
)";

constexpr char kContainerd[] = R"(
version = 3
[plugins]
  [plugins.'io.containerd.nri.v1.nri']
    disable = false
    socket_path = '/var/run/nri/nri.sock'
    [plugins.'io.containerd.nri.v1.nri'.default_validator]
      enable = true
      required_plugins = ['stockade']
      tolerate_missing_plugins_annotation = 'tolerate-missing-plugins.stockade.dev'
)";

struct Whole {
    std::string agent = kAgent, node = kNode, spaces = kSpaces, closed = kClosed, runtimes = kRuntimes, policies = Policies(), pod = kPod, containerd = kContainerd;
    Diagnosis Judge() const {
        ObjectSet set;
        for (const std::string* text : {&agent, &node, &spaces, &closed, &runtimes, &policies, &pod}) {
            if (text->empty()) continue;
            const Status status = ReadObjects("t", *text, &set);
            EXPECT_TRUE(status.ok()) << status << *text;
        }
        if (!containerd.empty()) {
            StatusOr<RuntimeConfig> config = ReadRuntimeConfig("c.toml", containerd);
            EXPECT_TRUE(config.ok()) << config.status();
            if (config.ok()) set.runtimes.push_back(*std::move(config));
        }
        return Diagnose(set, kNow);
    }
};

// What is found, as "severity check object".
std::vector<std::string> Found(const Whole& whole) {
    std::vector<std::string> out;
    for (const Finding& finding : whole.Judge().findings) {
        out.push_back(absl::StrCat(SeverityName(finding.severity), " ", finding.check, " ", finding.object));
        EXPECT_NE(finding.what, "") << out.back();
    }
    return out;
}

std::string With(std::string text, const std::string& from, const std::string& to) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return absl::StrReplaceAll(text, {{from, to}});
}

TEST(Doctor, HasNothingToSayOfAWholeCluster) {
    EXPECT_THAT(Found({}), IsEmpty());
    EXPECT_EQ(Whole().Judge().sandbox_pods, 1u);
    EXPECT_TRUE(Whole().Judge().Enforceable());
}

TEST(Doctor, NothingButAPod) {
    const Whole only{"", "", "", "", "", "", kPod, ""};
    EXPECT_THAT(Found(only), UnorderedElementsAre("unenforceable agent-absent cluster", "unenforceable admission-absent cluster",
                                                  "unknown node-unseen cluster", "unknown no-sandbox-namespace cluster",
                                                  "unknown runtime-unknown Pod sb/tool"));
    EXPECT_EQ(only.Judge().sandbox_pods, 1u);
    EXPECT_FALSE(only.Judge().Enforceable());
}

struct Change {
    const char* from;
    const char* to;
    const char* found;  // severity and check; "" = nothing
};

TEST(Doctor, Pods) {
    const Change kChanges[] = {
        {"runtimeClassName: plain", "runtimeClassName: strong", "unenforceable runtime-unseen"},
        {"runtimeClassName: plain", "runtimeClassName: other", "unknown runtime-unknown"},
        {"runtimeClassName: plain", "x: y", ""},
        {"emptyDir: {}", "hostPath: {path: /home}", "unenforceable host-path"},
        {"emptyDir: {}", "hostPath: {path: /var/run/docker.sock}", "unenforceable runtime-socket"},
        {"emptyDir: {}", "hostPath: {path: /run/containerd/containerd.sock}", "unenforceable runtime-socket"},
        {"runtimeClassName: plain", "hostNetwork: true", "unenforceable host-namespace"},
        {"runtimeClassName: plain", "hostPID: yes", "unenforceable host-namespace"},
        {"runtimeClassName: plain", "hostIPC: true", "unenforceable host-namespace"},
        {"runtimeClassName: plain", "hostIPC: false", ""},
        {"drop: [ALL]", "add: [SYS_ADMIN]", "unenforceable capability"},
        {"drop: [ALL]", "add: [CAP_BPF]", "unenforceable capability"},
        {"drop: [ALL]", "add: [NET_ADMIN]", "unenforceable capability"},  // no egress guard: a tool's namespace
        {"drop: [ALL]", "add: [NET_BIND_SERVICE]", ""},
        {"capabilities: {drop: [ALL]}", "privileged: true", "unenforceable privileged"},
        {"containers: [", "initContainers: [{name: i, securityContext: {privileged: true}}]\n  containers: [", "unenforceable privileged"},
        {"RuntimeDefault", "Unconfined", "weaker seccomp"},
        {"RuntimeDefault", "Localhost", ""},
        {"seccompProfile: {type: RuntimeDefault}", "runAsUser: 1", "weaker seccomp"},
        {"capabilities: {drop: [ALL]}", "seccompProfile: {type: Unconfined}", "weaker seccomp"},
        {"automountServiceAccountToken: false", "x: y", "weaker token"},
        {"stockade.dev/session: s, ", "", "weaker labels"},
        {"stockade.dev/policy: networkless", "tolerate-missing-plugins.stockade.dev: 'true'", "unenforceable plugin-optional"},
        {"stockade.dev/policy: networkless", "kubernetes.io/config.source: file", "weaker static-pod"},
        {"stockade.dev/policy: networkless", "kubernetes.io/config.source: api", ""},
        {"containers: [", "ephemeralContainers: [{name: e}]\n  containers: [", "weaker entered"},
        {"namespace: sb", "namespace: plain", "unenforceable outside"},
        {"kind: Pod", "kind: Pod\nstatus: {phase: Succeeded}", ""},
    };
    for (const Change& change : kChanges) {
        Whole whole;
        whole.pod = With(kPod, change.from, change.to);
        const std::string object = std::string(change.to) == "namespace: plain" ? "Pod plain/tool" : "Pod sb/tool";
        if (*change.found == 0) EXPECT_THAT(Found(whole), IsEmpty()) << change.to;
        else EXPECT_THAT(Found(whole), ElementsAre(absl::StrCat(change.found, " ", object))) << change.to;
    }
}

TEST(Doctor, AnEndedPodIsNone) {
    Whole whole;
    whole.pod = With(kPod, "emptyDir: {}", "hostPath: {path: /}");
    EXPECT_THAT(Found(whole), Not(IsEmpty()));
    absl::StrAppend(&whole.pod, "status: {phase: Failed}\n");
    EXPECT_THAT(Found(whole), IsEmpty());
    EXPECT_EQ(whole.Judge().sandbox_pods, 0u);
}

TEST(Doctor, PodsThatAreNoSandboxAreLeftAlone) {
    Whole whole;
    whole.pod = R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"db","namespace":"plain"},"spec":{"hostNetwork":true}})";
    EXPECT_THAT(Found(whole), IsEmpty());
    EXPECT_EQ(whole.Judge().sandbox_pods, 0u);
    // Within the namespace of sandboxes it is one, with labels or without.
    whole.pod = R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"db","namespace":"sb"},"spec":{"hostNetwork":true}})";
    EXPECT_THAT(Found(whole), Contains("unenforceable host-namespace Pod sb/db"));
}

TEST(Doctor, WhatMakesPodsIsAPod) {
    const char kMaker[] = R"({"apiVersion":"batch/v1","kind":"KIND","metadata":{"name":"m","namespace":"sb"},"spec":WAY})";
    const char kTemplate[] = R"({"template":{"spec":{"hostPID":true}}})";
    for (const std::string kind : {"Job", "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "ReplicationController", "CronJob"}) {
        Whole whole;
        whole.pod = absl::StrReplaceAll(kMaker, {{"KIND", kind}, {"WAY", kind == "CronJob" ? absl::StrCat(R"({"jobTemplate":{"spec":)", kTemplate, "}}") : kTemplate}});
        EXPECT_THAT(Found(whole), Contains(absl::StrCat("unenforceable host-namespace ", kind, " sb/m"))) << kind;
    }
}

TEST(Doctor, TheEgressGuardIsNoFault) {
    const std::string guard = "initContainers: [{name: egress-guard, securityContext: {capabilities: {add: [NET_ADMIN]}}}]\n  containers: [";
    Whole whole;
    whole.pod = With(With(kPod, "containers: [", guard), "namespace: sb", "namespace: ag");
    EXPECT_THAT(Found(whole), IsEmpty());
    whole.pod = With(whole.pod, "[NET_ADMIN]", "[NET_ADMIN, SYS_ADMIN]");
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable capability Pod ag/tool"));
    // Not another container's.
    whole.pod = With(With(kPod, "drop: [ALL]", "add: [NET_ADMIN]"), "namespace: sb", "namespace: ag");
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable capability Pod ag/tool"));
}

TEST(Doctor, Nodes) {
    const Change kChanges[] = {
        {"6.1.0-13-amd64", "5.15.0-100-generic", "unenforceable node-kernel"},
        {"6.1.0-13-amd64", "6.0.19", "unenforceable node-kernel"},
        {"6.1.0-13-amd64", "6.12.5", ""},
        {"6.1.0-13-amd64", "7.0.3", ""},
        {"6.1.0-13-amd64", "custom", "unknown node-kernel"},
        {"containerd://2.1.4", "containerd://1.6.20", "unenforceable node-runtime"},
        {"containerd://2.1.4", "containerd://1.7.24~ds1", "unknown node-nri"},
        {"containerd://2.1.4", "docker://24.0.1", "unenforceable node-runtime"},
        {"containerd://2.1.4", "cri-o://1.25.1", "unenforceable node-runtime"},
        {"containerd://2.1.4", "cri-o://1.30.0", ""},
        {"containerd://2.1.4", "", "unknown node-runtime"},
        {"operatingSystem: linux", "operatingSystem: windows", "unenforceable node-system"},
        {"metadata: {name: n1}", "metadata: {name: n1, labels: {type: virtual-kubelet}}", "unenforceable node-virtual"},
    };
    for (const Change& change : kChanges) {
        Whole whole;
        whole.node = With(kNode, change.from, change.to);
        if (*change.found == 0) EXPECT_THAT(Found(whole), IsEmpty()) << change.to;
        else EXPECT_THAT(Found(whole), ElementsAre(absl::StrCat(change.found, " Node n1"))) << change.to;
    }
}

TEST(Doctor, RuntimeConfigurations) {
    const Change kChanges[] = {
        {"disable = false", "disable = true", "unenforceable nri-off"},
        {"enable = true", "enable = false", "weaker plugin-not-required"},
        {"['stockade']", "['other']", "weaker plugin-not-required"},
        {"['stockade']", "[\n  \"other\",  # a comment\n  \"stockade\",\n]", ""},
        {"      required_plugins = ['stockade']\n", "", "weaker plugin-not-required"},
        {"tolerate-missing-plugins.stockade.dev", "tolerate-missing-plugins.noderesource.dev", "unenforceable plugin-tolerated"},
        {"[plugins.'io.containerd.nri.v1.nri']\n    disable = false", "# [x]\n  plugins.\"io.containerd.nri.v1.nri\".disable = true", ""},  // plugins.plugins
    };
    for (const Change& change : kChanges) {
        Whole whole;
        whole.containerd = With(kContainerd, change.from, change.to);
        if (*change.found == 0) EXPECT_THAT(Found(whole), IsEmpty()) << change.to;
        else EXPECT_THAT(Found(whole), ElementsAre(absl::StrCat(change.found, " file c.toml"))) << change.to;
    }
    Whole whole;
    whole.containerd.clear();
    EXPECT_THAT(Found(whole), ElementsAre("unknown runtime-config-unseen cluster"));
    whole.containerd = "plugins.\"io.containerd.nri.v1.nri\".disable = true\n";
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable nri-off file c.toml", "weaker plugin-not-required file c.toml"));
}

TEST(Doctor, RuntimeConfigurationsThatCannotBeRead) {
    for (const char* text : {"[plugins", "disable", "a =", "x = \"\"\"", "l = [1,\n", "plugins = {a = 1}",
                             "[plugins.'io.containerd.nri.v1.nri']\ndisable = 'yes'",
                             "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nrequired_plugins = [1]",
                             "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nrequired_plugins = 'stockade'",
                             "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = maybe"}) {
        const StatusOr<RuntimeConfig> config = ReadRuntimeConfig("c.toml", text);
        ASSERT_FALSE(config.ok()) << text;
        EXPECT_THAT(std::string(config.status().message()), HasSubstr("c.toml:")) << text;
    }
}

TEST(Doctor, Agents) {
    Whole whole;
    whole.node = With(kNode, "name: n1", "name: n2");
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable node-unguarded Node n2"));
    whole = Whole();
    whole.agent = With(kAgent, "status: \"True\"", "status: \"False\"");
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable node-unguarded Node n1"));
    whole.agent = With(kAgent, "numberReady: 1", "numberReady: 0");
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable agent-not-ready DaemonSet stockade/stockade"));
    whole.agent = With(kAgent, "command: [stockaded]", "command: [sleep]");
    whole.agent = With(whole.agent, "name: stockaded", "name: other");
    EXPECT_THAT(Found(whole), UnorderedElementsAre("unenforceable agent-absent cluster", "unenforceable node-unguarded Node n1"));
}

TEST(Doctor, Namespaces) {
    Whole whole;
    whole.closed = With(kClosed, "namespace: sb", "namespace: plain");
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable network-open Namespace sb"));
    for (const char* spec : {"podSelector: {}, policyTypes: [Ingress]", "podSelector: {matchLabels: {a: b}}, policyTypes: [Ingress, Egress]",
                             "podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{}]"}) {
        whole.closed = With(kClosed, "podSelector: {}, policyTypes: [Ingress, Egress]", spec);
        EXPECT_THAT(Found(whole), UnorderedElementsAre("unenforceable network-open Namespace sb", "unenforceable network-open Namespace ag")) << spec;
    }
    const char kMore[] = "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: e, namespace: sb}\nspec: {podSelector: {}, egress: [EGRESS]}\n";
    const Change kEgress[] = {
        {"EGRESS", "{}", "weaker network-egress"},
        {"EGRESS", "{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}", "weaker network-metadata"},
        {"EGRESS", "{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [169.254.0.0/16]}}]}", ""},
        {"EGRESS", "{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}", ""},
    };
    for (const Change& change : kEgress) {
        whole = Whole();
        whole.closed = absl::StrCat(kClosed, With(kMore, change.from, change.to));
        if (*change.found == 0) EXPECT_THAT(Found(whole), IsEmpty()) << change.to;
        else EXPECT_THAT(Found(whole), ElementsAre(absl::StrCat(change.found, " NetworkPolicy sb/e"))) << change.to;
    }
    const Change kLabels[] = {
        {"sandbox: tool, ", "sandbox: tol, ", "weaker sandbox-label"},
        {"enforce: restricted", "enforce: baseline", "weaker pod-security"},
        {"enforce: restricted", "warn: restricted", "weaker pod-security"},
        {"sandbox: tool, ", "sandbox: tool, stockade.dev/break-glass: '1800000060', ", "weaker break-glass"},
        {"sandbox: tool, ", "sandbox: tool, stockade.dev/break-glass: '1799999999', ", "weaker break-glass"},
    };
    for (const Change& change : kLabels) {
        whole = Whole();
        whole.spaces = With(kSpaces, change.from, change.to);
        EXPECT_THAT(Found(whole), ElementsAre(absl::StrCat(change.found, " Namespace sb"))) << change.to;
    }
}

TEST(Doctor, Admission) {
    Whole whole;
    whole.policies = Policies("seccomp");
    EXPECT_THAT(Found(whole), ElementsAre("weaker admission-missing cluster"));
    EXPECT_THAT(whole.Judge().findings[0].what, HasSubstr("no policy seccomp"));
    whole.policies = With(Policies(), "[Deny, Audit]", "[Audit]");
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable admission-idle cluster"));
    whole.policies = With(Policies(), "failurePolicy: Fail", "failurePolicy: Ignore");
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable admission-ignores cluster"));
    whole.policies = absl::StrCat(Kyverno(), kKyvernoRuns);
    EXPECT_THAT(Found(whole), ElementsAre("weaker admission-one-sided cluster"));
    whole.policies = absl::StrCat(Kyverno(), "---\n", Policies(), kKyvernoRuns);
    EXPECT_THAT(Found(whole), IsEmpty());
    whole.policies = absl::StrCat(Kyverno(), Policies());
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable kyverno-absent cluster"));
    whole.policies = absl::StrCat(Kyverno(), Policies(), kKyvernoRuns, "spec: {replicas: 0}\n");
    EXPECT_THAT(Found(whole), ElementsAre("unenforceable kyverno-absent cluster"));
}

// The list of names is that of kyverno/.
TEST(Doctor, KnowsWhatIsShipped) {
    const char* source = std::getenv("STOCKADE_SOURCE_DIR");
    const std::filesystem::path folder = std::filesystem::path(source == nullptr ? "." : source) / "kyverno";
    std::set<std::string> there, twins;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (!entry.is_directory()) continue;
        there.insert(entry.path().filename());
        if (std::filesystem::exists(entry.path() / "twin.yaml")) twins.insert(entry.path().filename());
    }
    std::set<std::string> known(ShippedPolicies().begin(), ShippedPolicies().end()), known_twins;
    for (const std::string& policy : known)
        if (HasTwin(policy)) known_twins.insert(policy);
    EXPECT_EQ(known, there);
    EXPECT_EQ(known_twins, twins);
}

// Values of the wrong kind everywhere: nothing is found by them, and nothing breaks.
TEST(Doctor, TakesAnyShape) {
    for (const char* value : {"[]", "{}", "x", "1", "true", "null", "[[[]]]", "[null, 1, {a: b}]"}) {
        for (const char* kind : {"Pod", "Job", "CronJob", "Node", "Namespace", "NetworkPolicy", "DaemonSet", "Deployment", "RuntimeClass",
                                 "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingPolicy"}) {
            ObjectSet set;
            ASSERT_TRUE(ReadObjects("t", absl::StrCat("apiVersion: v1\nkind: ", kind, "\nmetadata: ", value, "\nspec: ", value, "\nstatus: ", value, "\n"), &set).ok());
            EXPECT_FALSE(Diagnose(set, kNow).Enforceable());
        }
    }
}

}  // namespace
}  // namespace stockade::k8s
