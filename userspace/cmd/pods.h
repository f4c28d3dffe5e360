// What the agent keeps of a node's pods beside registry and runs.
#pragma once

#include <cstdint>
#include <string>

#include "userspace/base/histogram.h"
#include "userspace/base/status.h"
#include "userspace/cmd/pod_policy.h"
#include "bpf/wire/slot.h"
#include "userspace/model/sandbox.h"
#include "userspace/orchestrator/pod.h"

namespace stockade::cmd {

// Containers of sandbox pods, running, created or stopped and not removed yet: beyond the slots there are, none could be bound.
inline constexpr size_t kMaxPods = 2 * SK_MAX_SLOTS;

// From its creation, when labels and policy are chosen and frozen, until the runtime has removed it.
struct PodEntry {
    orchestrator::PodContainer container;
    model::Labels labels;
    PodPolicy chosen;
    std::string sandbox_id;  // empty = not bound
};

struct PodCounts {
    uint64_t created = 0;          // sandbox pods' containers that the runtime asked about
    uint64_t others = 0;           // of pods that are no sandboxes
    uint64_t bound = 0;            // at their start
    uint64_t refused_creates = 0;
    uint64_t refused_starts = 0;
    uint64_t unprotected = 0;      // that ran before they were bound
    uint64_t unbindable = 0;       // of these, those that could not be bound: they run unguarded
    uint64_t deny_all = 0;         // for want of a policy
    uint64_t late_starts = 0;      // bound after the runtime had been told no: they never ran
    uint64_t labels_left_out = 0;
    Histogram answer;              // from the call to our answer
};

// The cgroup of a container, below the mount: the one that carries the container's id, whatever is made below it. From where the
// container's first task is, and not from what the runtime says: it says it in three forms. kFailedPrecondition where that task is in no
// cgroup of that container.
StatusOr<std::string> ContainerCgroup(int pid, const std::string& container_id);

}  // namespace stockade::cmd
