#include "tests/bench/stage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "userspace/base/errno.h"
#include "userspace/kernel/probe.h"

namespace stockade::bench {
namespace {

Status MakeDirectory(const std::string& path) {
    return mkdir(path.c_str(), 0755) == 0 ? absl::OkStatus()
                                          : ErrnoStatus(errno, absl::StrCat("make ", path));
}

Status Copy(const std::string& from, const std::string& to) {
    SK_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(from, 64 << 20));
    SK_ASSIGN_OR_RETURN(Fd out, Fd::Open(to, O_WRONLY | O_CREAT | O_EXCL, 0755));
    return WriteAll(out.get(), bytes);
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> Stage::Create(const std::string& step) {
    std::unique_ptr<Stage> stage(new Stage());
    // Not below /tmp, which sandboxes have one of their own of.
    char name[] = "/var/tmp/stockade-bench.XXXXXX";
    if (!mkdtemp(name)) return ErrnoStatus(errno, "make a directory in /var/tmp");
    stage->dir_ = name;
    if (chmod(name, 0755) != 0) return ErrnoStatus(errno, absl::StrCat("open up ", name));
    SK_RETURN_IF_ERROR(MakeDirectory(stage->dir_ + "/data"));
    SK_RETURN_IF_ERROR(MakeDirectory(stage->dir_ + "/bin"));
    SK_ASSIGN_OR_RETURN(Fd file, Fd::Open(stage->file(), O_WRONLY | O_CREAT | O_EXCL, 0644));
    SK_RETURN_IF_ERROR(WriteAll(file.get(), "data\n"));
    SK_RETURN_IF_ERROR(Copy(step, stage->step()));
    SK_ASSIGN_OR_RETURN(const kernel::ProbeReport report, kernel::Probe({.canaries = false}));
    if (report.cgroup2_mount.empty()) return absl::FailedPreconditionError("no cgroup v2 is mounted");
    stage->mount_ = report.cgroup2_mount;
    static int number = 0;
    std::string cgroup = absl::StrCat(stage->mount_, "/sk_bench_", getpid(), "_", ++number);
    SK_RETURN_IF_ERROR(MakeDirectory(cgroup));
    stage->cgroup_ = std::move(cgroup);
    SK_RETURN_IF_ERROR(MakeDirectory(stage->base_cgroup()));
    SK_RETURN_IF_ERROR(MakeDirectory(stage->launched_cgroup()));
    return stage;
}

StatusOr<std::string> Stage::NewCgroup() {
    std::string path = absl::StrCat(launched_cgroup(), "/s", ++made_);
    SK_RETURN_IF_ERROR(MakeDirectory(path));
    return path;
}

Stage::~Stage() {
    // What cannot be removed is left for a person to see; the figures do not depend on it.
    std::error_code ignored;
    if (!dir_.empty()) std::filesystem::remove_all(dir_, ignored);
    if (cgroup_.empty()) return;
    for (int i = 1; i <= made_; i++) (void)rmdir(absl::StrCat(launched_cgroup(), "/s", i).c_str());
    (void)rmdir(launched_cgroup().c_str());
    (void)rmdir(base_cgroup().c_str());
    (void)rmdir(cgroup_.c_str());
}

}  // namespace stockade::bench
