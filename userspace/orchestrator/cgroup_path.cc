#include "userspace/orchestrator/cgroup_path.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace stockade::orchestrator {
namespace {

constexpr size_t kIdDigits = 64;
// PATH_MAX: the kernel shows no longer ones.
constexpr size_t kMaxPathBytes = 4096;

bool IsLowerHex(absl::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool IsContainerId(absl::string_view text) { return text.size() == kIdDigits && IsLowerHex(text); }

// 8-4-4-4-12, or 32 digits in a row: the uid of a static pod is a hash of its configuration.
bool IsPodUid(absl::string_view text) {
    if (text.size() == 32) return IsLowerHex(text);
    if (text.size() != 36) return false;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !IsLowerHex(text.substr(i, 1))) return false;
    }
    return true;
}

struct Prefix {
    absl::string_view prefix;
    absl::string_view runtime;
};
// What comes before the id, in a scope of systemd or in a directory. CRI-O's and podman's monitors are named alike and are no containers.
constexpr Prefix kPrefixes[] = {
    {"cri-containerd-", "containerd"}, {"crio-", "crio"},       {"docker-", "docker"}, {"libpod-", "podman"},
    {"nerdctl-", "nerdctl"},           {"containerd-", "containerd"}, {"kata_", "kata"},
};

struct Id {
    std::string runtime;
    std::string id;
};

// Of one directory's name.
std::optional<Id> ContainerOf(absl::string_view name) {
    // A runtime without systemd in systemd's tree: "<slice>:cri-containerd:<id>" as one directory.
    const std::vector<absl::string_view> parts = absl::StrSplit(name, ':');
    if (parts.size() == 3 && IsContainerId(parts[2])) {
        if (parts[1] == "cri-containerd" || parts[1] == "crio")
            return Id{parts[1] == "crio" ? "crio" : "containerd", std::string(parts[2])};
        return Id{std::string(parts[1]), std::string(parts[2])};
    }
    (void)absl::ConsumeSuffix(&name, ".scope");  // systemd's, or a plain directory
    if (IsContainerId(name)) return Id{"", std::string(name)};
    for (const Prefix& prefix : kPrefixes) {
        absl::string_view id = name;
        if (absl::ConsumePrefix(&id, prefix.prefix) && IsContainerId(id)) return Id{std::string(prefix.runtime), std::string(id)};
    }
    return std::nullopt;
}

// "kubepods-burstable-pod<uid with underscores>.slice", "kubelet-kubepods-pod<...>.slice", "pod<uid>"; also as the first part of
// "<slice>:cri-containerd:<id>".
std::string PodUidOf(absl::string_view name) {
    name = name.substr(0, name.find(':'));
    const bool slice = absl::ConsumeSuffix(&name, ".slice");
    const size_t at = slice ? name.rfind("-pod") : std::string::npos;
    if (slice) {
        if (at == name.npos) return "";
        name.remove_prefix(at + 1);
    }
    if (!absl::ConsumePrefix(&name, "pod")) return "";
    const std::string uid = slice ? absl::StrReplaceAll(name, {{"_", "-"}}) : std::string(name);
    return IsPodUid(uid) ? uid : "";
}

std::string QosOf(absl::string_view name, absl::string_view parent) {
    for (const char* qos : {"burstable", "besteffort"}) {
        if (parent == qos || absl::StrContains(name, absl::StrCat("-", qos, "-"))) return qos;
    }
    return "guaranteed";
}

}  // namespace

std::optional<CgroupPlace> ParseCgroupPath(absl::string_view path) {
    if (path.size() > kMaxPathBytes) return std::nullopt;
    const std::vector<absl::string_view> names = absl::StrSplit(path, '/', absl::SkipEmpty());
    CgroupPlace place;
    // The innermost container counts: a node of kind is a container of docker, with pods in it. But one can make cgroups of its own, and
    // name them as it likes: below a pod's container nothing is anybody else's.
    for (size_t i = 0; i < names.size(); ++i) {
        if (std::string uid = PodUidOf(names[i]); !uid.empty() && place.pod_uid.empty()) {
            place = {.pod_uid = uid, .qos = QosOf(names[i], i > 0 ? names[i - 1] : "")};
            // One directory names both the slice and the container.
            if (!absl::StrContains(names[i], ':')) continue;
        }
        std::optional<Id> found = ContainerOf(names[i]);
        if (!found) continue;
        place.runtime = std::move(found->runtime);
        place.container_id = std::move(found->id);
        place.container_path = "/" + absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i) + 1, "/");
        if (!place.pod_uid.empty()) break;
    }
    if (place.container_id.empty()) return std::nullopt;
    return place;
}

}  // namespace stockade::orchestrator
