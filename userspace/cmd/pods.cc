#include "userspace/cmd/pods.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "userspace/base/fd.h"
#include "userspace/orchestrator/cgroup_path.h"

namespace stockade::cmd {
namespace {

// A line a hierarchy, each at most PATH_MAX.
constexpr size_t kMaxCgroupFileBytes = 64 << 10;

// Of a layout that nobody has told of: the outermost directory that carries the id. A monitor's is not the container's.
std::string UnknownLayout(absl::string_view path, const std::string& id) {
    std::string out;
    for (absl::string_view name : absl::StrSplit(path, '/', absl::SkipEmpty())) {
        absl::StrAppend(&out, "/", name);
        if (absl::StrContains(name, id)) return absl::StrContains(name, "conmon") ? "" : out;
    }
    return "";
}

}  // namespace

StatusOr<std::string> ContainerCgroup(int pid, const std::string& container_id) {
    SK_ASSIGN_OR_RETURN(const std::string text, ReadFile(absl::StrCat("/proc/", pid, "/cgroup"), kMaxCgroupFileBytes));
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
        if (!absl::ConsumePrefix(&line, "0::")) continue;
        const auto place = orchestrator::ParseCgroupPath(line);
        if (place && place->container_id == container_id) return place->container_path;
        if (const std::string other = place ? "" : UnknownLayout(line, container_id); !other.empty()) return other;
        return absl::FailedPreconditionError(
            absl::StrCat("process ", pid, " is in cgroup ", line.substr(0, 256), ", which is not that of container ", container_id));
    }
    return absl::FailedPreconditionError(absl::StrCat("process ", pid, " is in no cgroup of version 2"));
}

}  // namespace stockade::cmd
