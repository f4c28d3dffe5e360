// What in a cluster's objects would make the pod of a sandbox unenforceable, or less confined than it could be.
//
//   const Diagnosis diagnosis = Diagnose(set, absl::ToUnixSeconds(absl::Now()));
//
// It goes by what objects say and asks nobody: what a node really does is told by `stockade status` there.
#pragma once

#include <cstdint>

#include "userspace/k8s/finding.h"
#include "userspace/k8s/objects.h"

namespace stockade::k8s {

struct Diagnosis {
    Findings findings;  // the worst first
    size_t objects = 0;
    size_t sandbox_pods = 0;  // pods, and templates of pods
    bool Enforceable() const;
};

Diagnosis Diagnose(const ObjectSet& set, int64_t now_s);

// The admission policies that Stockade ships, by the names of their folders in kyverno/.
const std::vector<std::string>& ShippedPolicies();
// Of these there is no native twin: they make and delete.
bool HasTwin(absl::string_view policy);

}  // namespace stockade::k8s
