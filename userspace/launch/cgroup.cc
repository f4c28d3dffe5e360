#include "userspace/launch/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::launch {
namespace {

// Children of a sandbox's cgroup: it cannot make any itself (no cgroupfs inside), only a container
// runtime does, one or two levels deep.
constexpr int kMaxCgroupDepth = 16;

StatusOr<std::string> FindCgroup2() {
    SK_ASSIGN_OR_RETURN(std::string text, ReadFile("/proc/self/mountinfo", 16u << 20));
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
        std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
        if (halves.size() != 2) continue;
        std::vector<absl::string_view> tail = absl::StrSplit(halves[1], ' ');
        std::vector<absl::string_view> head = absl::StrSplit(halves[0], ' ');
        if (tail.empty() || tail[0] != "cgroup2" || head.size() < 5) continue;
        if (head[3] != "/")
            continue;  // a subtree shown elsewhere; ids below it would not differ,
                       // but its parent could be taken away from us
        std::string root(head[4]);
        // Only the hierarchy's own root lacks it. The kernel counts levels from there: seen from the
        // root of a cgroup namespace each sandbox would lie at another level, and be condemned.
        if (access(absl::StrCat(root, "/cgroup.events").c_str(), F_OK) == 0) {
            return absl::FailedPreconditionError(absl::StrCat(
                root,
                " shows cgroup v2 from within a cgroup namespace; run stockaded in the host's (docker "
                "run --cgroupns=host)"));
        }
        return root;
    }
    return absl::FailedPreconditionError(
        "cgroup v2 is not mounted; mount -t cgroup2 none /sys/fs/cgroup/unified");
}

Status WriteAt(const Fd& dir, const std::string& name, absl::string_view value) {
    SK_ASSIGN_OR_RETURN(Fd file, Fd::OpenAt(dir, name, O_WRONLY));
    return Annotate(WriteAll(file.get(), value), absl::StrCat("write ", name));
}

bool Exists(const Fd& dir, const std::string& name) {
    return faccessat(dir.get(), name.c_str(), F_OK, 0) == 0;
}

// A controller reaches a cgroup when all above it hand it down: the mount's root, and the home.
// Another program owns subtree_control of the root where this fails: then the controller is as
// good as absent, which the caller is told.
void HandDown(const Fd& home, const char* controller) {
    for (const char* file : {"../cgroup.subtree_control", "cgroup.subtree_control"}) {
        (void)WriteAt(home, file, absl::StrCat("+", controller));
    }
}

// 1 populated, 0 not. The directory may be gone already: that is 0 as well.
StatusOr<bool> Populated(int events_fd) {
    char text[256];
    ssize_t n = pread(events_fd, text, sizeof(text), 0);
    if (n < 0 && errno == ENODEV) return false;
    if (n < 0) return ErrnoStatus(errno, "read cgroup.events");
    return absl::string_view(text, static_cast<size_t>(n)).find("populated 1") != absl::string_view::npos;
}

Status WaitEmpty(int events_fd, int timeout_ms) {
    const uint64_t deadline = BootNow() + static_cast<uint64_t>(timeout_ms) * 1000000ull;
    for (;;) {
        SK_ASSIGN_OR_RETURN(bool populated, Populated(events_fd));
        if (!populated) return absl::OkStatus();
        uint64_t now = BootNow();
        if (now >= deadline) return absl::DeadlineExceededError("cgroup still has tasks: kill pending");
        pollfd p{events_fd, POLLPRI, 0};
        int left_ms = static_cast<int>((deadline - now + 999999) / 1000000);
        if (poll(&p, 1, left_ms) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll cgroup.events");
    }
}

Status RemoveTree(int parent, const std::string& name, int depth) {
    if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return absl::OkStatus();
    int error = errno;
    if (depth == kMaxCgroupDepth || error != EBUSY) {
        return ErrnoStatus(error, absl::StrCat("remove cgroup ", name));
    }
    int fd = openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return errno == ENOENT ? absl::OkStatus() : ErrnoStatus(errno, "open cgroup");
    DIR* dir = fdopendir(fd);
    if (dir == nullptr) {
        close(fd);
        return ErrnoStatus(errno, "list cgroup");
    }
    while (dirent* entry = readdir(dir)) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.') continue;
        Status status = RemoveTree(fd, entry->d_name, depth + 1);
        if (!status.ok()) {
            closedir(dir);
            return status;
        }
    }
    closedir(dir);
    if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("remove cgroup ", name));
}

}  // namespace

StatusOr<CgroupHome> OpenCgroupHome(const std::string& name) {
    SK_ASSIGN_OR_RETURN(std::string root, FindCgroup2());
    CgroupHome home;
    home.path = absl::StrCat(root, "/", name);
    SK_ASSIGN_OR_RETURN(home.dir, Fd::Open(home.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    return home;
}

StatusOr<CgroupHome> FindCgroupHome(const std::string& name) {
    SK_ASSIGN_OR_RETURN(const std::string root, FindCgroup2());
    const std::string path = absl::StrCat(root, "/", name);
    if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return ErrnoStatus(errno, absl::StrCat("make ", path));
    return OpenCgroupHome(name);
}

Status ApplyLimits(SandboxCgroup& cgroup, const CgroupLimits& limits) {
    struct Row {
        bool wanted;
        const char* controller;
        std::string value;
    };
    const Row rows[] = {
        {limits.pids_max != 0, "pids", absl::StrCat(limits.pids_max)},
        {limits.memory_max_bytes != 0, "memory", absl::StrCat(limits.memory_max_bytes)},
        {limits.cpu_max_percent != 0, "cpu", absl::StrCat(limits.cpu_max_percent * 1000ull, " 100000")},
    };
    for (const Row& row : rows) {
        if (!row.wanted) continue;
        const std::string file = absl::StrCat(row.controller, ".max");
        if (!Exists(cgroup.dir, file)) HandDown(cgroup.parent, row.controller);
        if (!Exists(cgroup.dir, file)) {
            absl::StrAppend(&cgroup.unlimited, cgroup.unlimited.empty() ? "" : ", ", row.controller);
            continue;
        }
        SK_RETURN_IF_ERROR(WriteAt(cgroup.dir, file, row.value));
    }
    // Absent where the kernel does not account for swap.
    if (limits.memory_max_bytes != 0 && Exists(cgroup.dir, "memory.swap.max")) {
        return WriteAt(cgroup.dir, "memory.swap.max", absl::StrCat(limits.swap_max_bytes));
    }
    return absl::OkStatus();
}

StatusOr<SandboxCgroup> CreateCgroup(const CgroupHome& home, const std::string& name,
                                     const CgroupLimits& limits) {
    SandboxCgroup cgroup;
    cgroup.name = name;
    SK_ASSIGN_OR_RETURN(cgroup.parent, Fd::Dup(home.dir.get()));
    if (mkdirat(cgroup.parent.get(), name.c_str(), 0755) != 0) {
        return ErrnoStatus(errno, absl::StrCat("make cgroup ", home.path, "/", name));
    }
    auto finish = [&]() -> Status {
        SK_ASSIGN_OR_RETURN(cgroup.dir, Fd::OpenAt(cgroup.parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
        if (flock(cgroup.dir.get(), LOCK_EX | LOCK_NB) != 0) return ErrnoStatus(errno, "lock cgroup");
        struct stat st;
        if (fstat(cgroup.dir.get(), &st) != 0) return ErrnoStatus(errno, "stat cgroup");
        cgroup.id = st.st_ino;
        return ApplyLimits(cgroup, limits);
    };
    Status status = finish();
    if (!status.ok()) {
        (void)RemoveCgroup(cgroup.parent, name);  // the first failure is the one to tell
        return status;
    }
    return cgroup;
}

Status KillCgroup(const Fd& dir, int timeout_ms) {
    SK_ASSIGN_OR_RETURN(Fd events, Fd::OpenAt(dir, "cgroup.events", O_RDONLY));
    SK_ASSIGN_OR_RETURN(bool populated, Populated(events.get()));
    if (!populated) return absl::OkStatus();
    auto kill_fd = Fd::OpenAt(dir, "cgroup.kill", O_WRONLY);
    if (!kill_fd.ok()) return kill_fd.status();
    // The thread owns its descriptor and outlives this call when the write blocks.
    std::thread([fd = std::make_shared<Fd>(*std::move(kill_fd))] {
        (void)!write(fd->get(), "1", 1);  // what it achieved is read from cgroup.events
    }).detach();
    return WaitEmpty(events.get(), timeout_ms);
}

Status RemoveCgroup(const Fd& parent, const std::string& name) {
    SK_RETURN_IF_ERROR(RemoveTree(parent.get(), name, 0));
    if (Exists(parent, name)) return absl::InternalError(absl::StrCat("cgroup ", name, " came back"));
    return absl::OkStatus();
}

}  // namespace stockade::launch
