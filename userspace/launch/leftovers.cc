// What launchers that were killed have left behind.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/launch/native.h"
#include "userspace/launch/network.h"

namespace stockade::launch {
namespace {

constexpr int kKillMs = 5000;
constexpr const char* kPrefix = "sbx_";

std::vector<std::string> SandboxNames(const CgroupHome& home) {
    std::vector<std::string> names;
    DIR* dir = opendir(home.path.c_str());
    if (dir == nullptr) return names;
    while (dirent* entry = readdir(dir)) {
        if (entry->d_type == DT_DIR && absl::StartsWith(entry->d_name, kPrefix))
            names.push_back(entry->d_name);
    }
    closedir(dir);
    return names;
}

}  // namespace

Leftovers CleanLeftovers(const CgroupHome& home, const LeftoverOptions& options) {
    Leftovers found;
    for (const std::string& name : SandboxNames(home)) {
        if (options.is_known && options.is_known(name)) continue;
        auto dir = Fd::OpenAt(home.dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (!dir.ok() || flock(dir->get(), LOCK_EX | LOCK_NB) != 0) continue;  // gone, or alive
        found.found.push_back(absl::StrCat("cgroup ", name));
        if (options.dry_run) continue;
        Status status = KillCgroup(*dir, kKillMs);
        if (status.ok()) status = RemoveCgroup(home.dir, name);
        if (status.ok()) {
            ++found.cgroups;
        } else {
            found.failed.push_back(absl::StrCat(name, ": ", status.message()));
        }
    }
    found.networks = CleanNetworks(options.dry_run, &found.found, &found.failed);
    return found;
}

}  // namespace stockade::launch
