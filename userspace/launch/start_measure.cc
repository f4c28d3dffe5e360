#include "userspace/launch/start_measure.h"

#include <fcntl.h>
#include <unistd.h>

#include <climits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::launch {
namespace {

// Outside the range of the sandboxes of an agent, which counts up from 700,000 by default.
constexpr uid_t kBenchUid = 699999;

}  // namespace

StatusOr<std::string> OwnProbe() {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self));
    if (n <= 0) return ErrnoStatus(errno, "read /proc/self/exe");
    std::string dir(self, static_cast<size_t>(n));
    dir.resize(dir.rfind('/'));
    for (const char* place : {"/launch_probe", "/tests/launch_probe"}) {
        std::string path = absl::StrCat(dir, place);
        if (access(path.c_str(), X_OK) == 0) return path;
    }
    return absl::NotFoundError(absl::StrCat("launch_probe is not beside ", dir));
}

StatusOr<StartFigures> MeasureStart(const std::string& probe) {
    static int count = 0;
    static const StatusOr<SeccompProgram> seccomp = CompileSeccomp(0);
    if (!seccomp.ok()) return seccomp.status();
    SK_ASSIGN_OR_RETURN(CgroupHome home, FindCgroupHome("stockade_bench"));
    NativeSpec spec;
    spec.id = absl::StrCat("sbx_bench_", getpid(), "_", ++count);
    spec.argv = {"/probe", "now"};
    spec.uid = spec.gid = kBenchUid;
    spec.seccomp = *seccomp;
    SK_ASSIGN_OR_RETURN(Fd source, Fd::Open(probe, O_PATH));
    spec.binds.push_back({std::move(source), "/probe", false});
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    Fd read_end(ends[0]), write_end(ends[1]);
    spec.stdio[1] = write_end.get();
    StartFigures figures;
    const uint64_t begin = BootNow();
    SK_ASSIGN_OR_RETURN(spec.cgroup, CreateCgroup(home, spec.id, {}));
    SK_ASSIGN_OR_RETURN(auto sandbox, NativeSandbox::Create(std::move(spec)));
    figures.create_ns = BootNow() - begin;
    SK_ASSIGN_OR_RETURN(ExecResult exec, sandbox->Release());
    write_end.Reset();
    SK_ASSIGN_OR_RETURN(std::string text, ReadAll(read_end.get(), 4096));
    SK_ASSIGN_OR_RETURN(int status, sandbox->Wait());
    const uint64_t ended = BootNow();
    SK_ASSIGN_OR_RETURN(DestroyReport report, sandbox->Destroy());
    figures.removed_ns = BootNow() - ended;
    (void)rmdir(home.path.c_str());  // stays while another bench uses it
    uint64_t first = 0;
    if (!exec.started || status != 0 || !absl::SimpleAtoi(text, &first)) {
        return absl::InternalError(absl::StrCat("the probe did not run: status ", status));
    }
    figures.start_ns = first - begin;
    (void)report;
    return figures;
}

}  // namespace stockade::launch
