// Whose cgroup a path is: the names that container runtimes and kubelets give to cgroups.
//
//   auto place = ParseCgroupPath("/kubepods.slice/.../cri-containerd-<64 hex>.scope/init");
//   place->container_id, place->pod_uid, place->container_path
//
// Pure. The path is a name that root gave, or somebody to whom it has delegated a part of the tree: it says who a container claims to
// be, and proves nothing.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace stockade::orchestrator {

struct CgroupPlace {
    std::string runtime{};         // containerd, crio, docker, podman, nerdctl, kata; "" = a name without its runtime's
    std::string container_id{};    // 64 hexadecimal digits; of a Kata sandbox its id
    std::string pod_uid{};         // as the API has it, with dashes; "" = not below a pod
    std::string qos{};             // guaranteed, burstable, besteffort; "" = not below a pod
    std::string container_path{};  // the part of the path that is the container's own cgroup, whatever it made below
};

// `path` as in /proc/PID/cgroup, or relative to the mount. Nothing for what is no container: a slice, a pod's own cgroup, a session of a
// user, conmon's scope.
std::optional<CgroupPlace> ParseCgroupPath(absl::string_view path);

}  // namespace stockade::orchestrator
