// The parts of Diagnose(), by subject.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/k8s/finding.h"
#include "userspace/k8s/objects.h"

namespace stockade::k8s {

// "tool", "agent", another value (which gets the rules of tool), or "" for a namespace that is none of a sandbox.
std::string SandboxClass(const Object& space);
// Pods of Stockade's agent, and the sets that make them.
bool IsAgent(const Object& object);

void CheckAgent(const ObjectSet& set, Findings* out);
void CheckNodes(const ObjectSet& set, Findings* out);
void CheckAdmission(const ObjectSet& set, Findings* out);
void CheckNamespaces(const ObjectSet& set, int64_t now_s, Findings* out);
// Returns how many sandbox pods there are.
size_t CheckPods(const ObjectSet& set, Findings* out);

}  // namespace stockade::k8s
