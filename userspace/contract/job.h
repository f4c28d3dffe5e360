// One tool call as a Kubernetes Job: the form of deploy/kubernetes/tool-call-job.yaml, which the admission policies of kyverno/ admit as it
// stands, filled in from a contract.
//
// The cluster's agent enforces the policy that the annotation names; this says what the pod itself is bound to. Nobody is asked for approval
// and nothing takes /out: that is the dispatcher's part.
#pragma once

#include <string>
#include <vector>

#include "userspace/contract/document.h"

namespace stockade::contract {

// What a contract does not say.
struct JobRequest {
    std::vector<std::string> argv;  // a call that CheckCall takes; the program is the image's
    std::string image;              // with its digest: NAME@sha256:HEX
    std::string session;            // label values of Kubernetes: at most 63 of [A-Za-z0-9_.-]
    std::string trace;              // W3C traceparent
    std::string runtime = "gvisor"; // RuntimeClass: gvisor, kata-qemu or runc
    std::string space = "stockade-tools";
    std::string input;              // ConfigMap shown as /in; needed where the contract has inputs
};

// activeDeadlineSeconds where a contract has no timeout, and what the policy tool-job admits at most.
inline constexpr uint64_t kJobDefaultSeconds = 300, kJobMaxSeconds = 3600;
// limits.memory and size of /out where a contract says nothing: those of the shipped Job, and of `stockade run`.
inline constexpr uint64_t kJobDefaultMemoryBytes = 1ull << 30, kJobDefaultOutBytes = 256ull << 20;

struct JobText {
    std::string yaml;
    std::vector<std::string> notes;  // what of the contract a Job does not keep
};

// kPermissionDenied with a refusal's code as CheckCall gives it, kInvalidArgument for what cannot be said in a Job.
StatusOr<JobText> RenderJob(const ToolContract& contract, const JobRequest& request);

}  // namespace stockade::contract
