#include "userspace/contract/job.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "re2/re2.h"
#include "userspace/contract/call.h"
#include "userspace/contract/json_value.h"
#include "userspace/model/sandbox.h"

namespace stockade::contract {
namespace {

// apimachinery's validation of label values and of DNS-1123 names.
const char kLabelForm[] = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?";
const char kNameForm[] = "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?";
const char kImageForm[] = "[a-zA-Z0-9][a-zA-Z0-9./:_-]{0,254}@sha256:[0-9a-f]{64}";
constexpr uint64_t kMib = 1 << 20, kSecond = 1'000'000'000;
constexpr uint64_t kLeastMemoryBytes = 128 * kMib;  // what the pod asks the scheduler for

Status Form(const std::string& what, const std::string& value, const char* form, const std::string& example) {
    if (RE2::FullMatch(value, form)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(what, value.empty() ? " is missing" : " cannot be said in a Job", ": ", example, " is expected"));
}

// The kubelet puts variables in the place of $(NAME), and one dollar in that of two.
std::string Word(const std::string& word) { return QuotedText(absl::StrReplaceAll(word, {{"$", "$$"}})); }

std::string Quantity(uint64_t bytes) {
    if (bytes % (1 << 30) == 0) return absl::StrCat(bytes >> 30, "Gi");
    return bytes % kMib == 0 ? absl::StrCat(bytes / kMib, "Mi") : absl::StrCat(bytes);
}

// Of a class that admits the runtime (kyverno/runtime-class).
const char* ClassOf(const std::string& runtime) { return runtime == "runc" ? "standard" : runtime == "kata-qemu" ? "hostile" : "untrusted"; }

Status Check(const ToolContract& contract, const JobRequest& request) {
    SK_RETURN_IF_ERROR(CheckCall(contract, request.argv));
    SK_RETURN_IF_ERROR(Form("the image", request.image, kImageForm, "NAME@sha256: and 64 hex digits"));
    SK_RETURN_IF_ERROR(Form("the session", request.session, kLabelForm, "a label's value (at most 63 letters, digits, '-', '_', '.')"));
    SK_RETURN_IF_ERROR(Form("the tool", contract.tool, kLabelForm, "a label's value (at most 63 letters, digits, '-', '_', '.')"));
    // As the node's agent looks at the pod's label.
    if (request.trace.empty()) return absl::InvalidArgumentError("the trace is missing: a W3C traceparent is expected");
    SK_RETURN_IF_ERROR(model::CheckLabels({.trace = request.trace}));
    SK_RETURN_IF_ERROR(Form("the namespace", request.space, kNameForm, "a name of Kubernetes"));
    SK_RETURN_IF_ERROR(Form("the policy", contract.policy, kNameForm, "the name of a policy that the cluster has, and no file"));
    if (request.runtime != "gvisor" && request.runtime != "kata-qemu" && request.runtime != "runc")
        return absl::InvalidArgumentError("the runtime is gvisor, kata-qemu or runc");
    if (contract.inputs.empty() != request.input.empty())
        return absl::InvalidArgumentError(contract.inputs.empty() ? "this contract has no inputs: leave the ConfigMap out" : "this contract has inputs: name the ConfigMap that has them");
    if (!request.input.empty()) SK_RETURN_IF_ERROR(Form("the ConfigMap", request.input, kNameForm, "a name of Kubernetes"));
    for (const std::string& word : request.argv) {
        if (!CanBeQuoted(word)) return absl::InvalidArgumentError("an argument that is not UTF-8 cannot be said in a Job");
    }
    if (contract.timeout_ns > kJobMaxSeconds * kSecond)
        return absl::InvalidArgumentError(absl::StrCat("a timeout of ", contract.timeout, " is more than the ", kJobMaxSeconds, " s that the policy tool-job admits"));
    return absl::OkStatus();
}

std::string Labels(const ToolContract& contract, const JobRequest& request, const std::string& indent) {
    return absl::StrCat(indent, "stockade.dev/session: ", QuotedText(request.session), "\n", indent, "stockade.dev/tool: ", QuotedText(contract.tool), "\n", indent,
                        "stockade.dev/trace: ", QuotedText(request.trace), "\n", indent, "stockade.dev/tool-class: ", ClassOf(request.runtime), "\n");
}

std::vector<std::string> Notes(const ToolContract& contract) {
    std::vector<std::string> notes;
    if (contract.approval) notes.push_back("approval is the dispatcher's to ask for: this rendering asks nobody");
    if (contract.limits.pids != 0) notes.push_back("limits.pids is not kept: a pod has no such field, the kubelet's podPidsLimit holds");
    if (contract.require == "lsm") notes.push_back("require: lsm is not kept: the labels of the nodes decide");
    return notes;
}

}  // namespace

StatusOr<JobText> RenderJob(const ToolContract& contract, const JobRequest& request) {
    SK_RETURN_IF_ERROR(Check(contract, request));
    const uint64_t seconds = contract.timeout_ns == 0 ? kJobDefaultSeconds : (contract.timeout_ns + kSecond - 1) / kSecond;
    const uint64_t memory = contract.limits.memory_bytes == 0 ? kJobDefaultMemoryBytes : contract.limits.memory_bytes;
    const uint64_t out = contract.limits.out_bytes == 0 ? kJobDefaultOutBytes : contract.limits.out_bytes;
    const uint64_t cpu = contract.limits.cpu_percent == 0 ? 1000 : contract.limits.cpu_percent * uint64_t{10};
    const std::string words = absl::StrJoin(request.argv, ", ", [](std::string* to, const std::string& word) { to->append(Word(word)); });
    const std::string ask = absl::StrCat("{cpu: ", std::min<uint64_t>(cpu, 100), "m, memory: ", Quantity(std::min(memory, kLeastMemoryBytes)), "}");
    JobText job;
    absl::StrAppend(&job.yaml,
                    "apiVersion: batch/v1\nkind: Job\nmetadata:\n  generateName: tool-\n  namespace: ", request.space, "\n  labels:\n", Labels(contract, request, "    "),
                    "spec:\n  backoffLimit: 0\n  ttlSecondsAfterFinished: 60\n  activeDeadlineSeconds: ", seconds, "\n  template:\n    metadata:\n      labels:\n",
                    Labels(contract, request, "        "), "      annotations:\n        stockade.dev/policy: ", QuotedText(contract.policy), "\n");
    absl::StrAppend(&job.yaml,
                    "    spec:\n      restartPolicy: Never\n      activeDeadlineSeconds: ", seconds, "\n      terminationGracePeriodSeconds: 5\n",
                    "      runtimeClassName: ", request.runtime, "\n      nodeSelector: {stockade.dev/runtime: ", request.runtime, "}\n",
                    "      automountServiceAccountToken: false\n      enableServiceLinks: false\n      dnsPolicy: None\n      dnsConfig: {nameservers: [127.0.0.1]}\n",
                    "      securityContext:\n        runAsNonRoot: true\n        runAsUser: 1000\n        runAsGroup: 1000\n        fsGroup: 1000\n",
                    "        seccompProfile: {type: RuntimeDefault}\n");
    absl::StrAppend(&job.yaml,
                    "      containers:\n        - name: tool\n          image: ", QuotedText(request.image), "\n          command: [", words, "]\n",
                    "          securityContext:\n            allowPrivilegeEscalation: false\n            readOnlyRootFilesystem: true\n            capabilities: {drop: [ALL]}\n",
                    "          resources:\n            requests: ", ask, "\n            limits: {cpu: ", cpu, "m, memory: ", Quantity(memory), ", ephemeral-storage: 1Gi}\n",
                    "          volumeMounts:\n", request.input.empty() ? "" : "            - {name: in, mountPath: /in, readOnly: true}\n",
                    "            - {name: out, mountPath: /out}\n            - {name: tmp, mountPath: /tmp}\n");
    absl::StrAppend(&job.yaml, "      volumes:\n", request.input.empty() ? "" : absl::StrCat("        - name: in\n          configMap: {name: ", request.input, "}\n"),
                    "        - name: out\n          emptyDir: {sizeLimit: ", Quantity(out), "}\n        - name: tmp\n          emptyDir: {medium: Memory, sizeLimit: 64Mi}\n");
    job.notes = Notes(contract);
    return job;
}

}  // namespace stockade::contract
