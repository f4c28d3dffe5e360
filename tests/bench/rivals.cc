#include "tests/bench/rivals.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/errno.h"
#include "userspace/base/fd.h"

namespace stockade::bench {
namespace {

StatusOr<std::string> FindProgram(const std::string& name) {
    for (const char* dir : {"/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"}) {
        if (access((dir + name).c_str(), X_OK) == 0) return dir + name;
    }
    return absl::NotFoundError(absl::StrCat(name, " is not installed"));
}

std::string BindMount(const std::string& from, const std::string& to) {
    return absl::StrCat(R"({"destination": ")", to, R"(", "type": "bind", "source": ")", from,
                        R"(", "options": ["rbind", "ro"]})");
}

std::string RuncConfig(const Stage& stage) {
    std::vector<std::string> mounts = {
        R"({"destination": "/proc", "type": "proc", "source": "proc"})",
        R"({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]})",
        R"({"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev"]})",
        BindMount(stage.step(), "/step")};
    for (const char* dir : {"/usr", "/bin", "/sbin", "/lib", "/lib64"}) {
        if (access(dir, X_OK) == 0) mounts.push_back(BindMount(dir, dir));
    }
    return absl::StrCat(
        R"({"ociVersion": "1.0.2", "root": {"path": "rootfs", "readonly": false}, "hostname": "bench",
"process": {"terminal": false, "user": {"uid": 0, "gid": 0}, "args": ["/step", "now"], "env": ["PATH=/usr/bin:/bin"], "cwd": "/",
  "capabilities": {"bounding": [], "effective": [], "permitted": []}, "noNewPrivileges": true},
"mounts": [)",
        absl::StrJoin(mounts, ",\n  "), R"(],
"linux": {"namespaces": [{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}]}})",
        "\n");
}

Status MakeDirectory(const std::string& path) {
    return mkdir(path.c_str(), 0755) == 0 ? absl::OkStatus()
                                          : ErrnoStatus(errno, absl::StrCat("make ", path));
}

}  // namespace

StatusOr<Rival> Bubblewrap(const Stage& stage) {
    SK_ASSIGN_OR_RETURN(const std::string program, FindProgram("bwrap"));
    Rival rival{
        .name = "bwrap",
        .args = {program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"}};
    for (const char* dir : {"/usr", "/bin", "/sbin", "/lib", "/lib64"}) {
        if (access(dir, X_OK) == 0) rival.args.insert(rival.args.end(), {"--ro-bind", dir, dir});
    }
    rival.args.insert(rival.args.end(), {"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind",
                                         stage.step(), "/step", "--", "/step", "now"});
    return rival;
}

StatusOr<Rival> Runc(const Stage& stage) {
    SK_ASSIGN_OR_RETURN(const std::string program, FindProgram("runc"));
    const std::string bundle = stage.dir() + "/bundle";
    SK_RETURN_IF_ERROR(MakeDirectory(bundle));
    SK_RETURN_IF_ERROR(MakeDirectory(bundle + "/rootfs"));
    SK_ASSIGN_OR_RETURN(Fd config, Fd::Open(bundle + "/config.json", O_WRONLY | O_CREAT | O_EXCL, 0644));
    SK_RETURN_IF_ERROR(WriteAll(config.get(), RuncConfig(stage)));
    // The name is also that of its cgroup, which it removes: not that of the agent's.
    return Rival{.name = "runc",
                 .args = {program, "--root", stage.dir() + "/runc", "run", "--bundle", bundle,
                          absl::StrCat("bench_runc_", getpid())}};
}

}  // namespace stockade::bench
