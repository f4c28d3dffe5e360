#include "userspace/launch/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/base/errno.h"
#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

// A set-up takes milliseconds; a host under load may take a second. Past it something hangs, and
// the start fails instead of hanging with it.
constexpr int kReadyTimeoutMs = 30000;
constexpr const char* kDefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

struct DefaultLimit {
    int resource;
    uint64_t soft, hard;
};
// CORE 1: the kernel takes this value, and not 0, as "no dump to a pipe handler", and it is below
// the least size of a dump to a file. NPROC counts the sandbox's own uid: a fork bomb ends there
// where no pids controller exists. The rest are what distributions give a login.
constexpr DefaultLimit kDefaultLimits[] = {
    {RLIMIT_CORE, 1, 1},
    {RLIMIT_NOFILE, 1024, 65536},
    {RLIMIT_NPROC, 1024, 1024},
    {RLIMIT_MEMLOCK, 8u << 20, 8u << 20},
    {RLIMIT_MSGQUEUE, 819200, 819200},
    {RLIMIT_SIGPENDING, 4096, 4096},
    {RLIMIT_NICE, 0, 0},
    {RLIMIT_RTPRIO, 0, 0},
};

// The plan and all that it points to.
struct PlanStore {
    ChildPlan plan{};
    std::string host_name;
    std::vector<ChildMount> mounts;
    std::vector<ChildRlimit> rlimits;
    std::vector<ChildLandlockRule> rules;
    std::vector<std::string> candidate_texts;
    std::vector<const char*> candidates;
    std::vector<char*> argv, envp;
};

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
    out.push_back(nullptr);
    return out;
}

void AddRlimits(const NativeSpec& spec, PlanStore& store) {
    std::vector<RlimitRow> rows;
    for (const DefaultLimit& row : kDefaultLimits) {
        auto same = [&](const RlimitRow& asked) { return asked.resource == row.resource; };
        // The core limit is a lock, not a preference.
        if (row.resource != RLIMIT_CORE && std::any_of(spec.rlimits.begin(), spec.rlimits.end(), same))
            continue;
        rows.push_back({row.resource, row.soft, row.hard});
    }
    for (const RlimitRow& row : spec.rlimits) {
        if (row.resource != RLIMIT_CORE) rows.push_back(row);
    }
    for (const RlimitRow& row : rows) {
        rlimit now;
        if (getrlimit(static_cast<__rlimit_resource_t>(row.resource), &now) != 0) continue;
        rlimit wanted;
        wanted.rlim_max = std::min<rlim_t>(row.hard, now.rlim_max);
        wanted.rlim_cur = std::min<rlim_t>(row.soft, wanted.rlim_max);
        store.rlimits.push_back({row.resource, wanted});
    }
    store.plan.rlimits = store.rlimits.data();
    store.plan.rlimit_count = store.rlimits.size();
}

void AddCandidates(const NativeSpec& spec, PlanStore& store) {
    const std::string& name = spec.argv[0];
    if (name.find('/') != std::string::npos) {
        store.candidate_texts.push_back(name);
    } else if (!name.empty()) {
        std::string path = kDefaultPath;
        for (const std::string& row : spec.env) {
            if (absl::StartsWith(row, "PATH=")) path = row.substr(5);
        }
        for (absl::string_view dir : absl::StrSplit(path, ':')) {
            store.candidate_texts.push_back(absl::StrCat(dir.empty() ? "." : dir, "/", name));
        }
    }
    for (const std::string& text : store.candidate_texts) store.candidates.push_back(text.c_str());
    store.candidates.push_back(nullptr);
    store.plan.candidates = store.candidates.data();
}

void AddLandlock(const LandlockPlan& landlock, int abi, PlanStore& store) {
    ChildPlan& plan = store.plan;
    plan.landlock_abi = abi;
    if (landlock.empty() || abi == 0) return;
    constexpr uint64_t kRefer = 1u << 13;
    uint64_t handled = LandlockAccess(landlock.handled, abi);
    const bool writes = (landlock.handled & kLandlockWrite) != 0;
    // Any domain refuses moves between directories unless it handles and grants them.
    if (handled != 0 && !writes && abi >= 2) {
        handled |= kRefer;
        store.rules.push_back({"/", kRefer, 0});
    }
    for (const LandlockPath& row : landlock.paths) {
        store.rules.push_back({row.path.c_str(), LandlockAccess(row.rights, abi) & handled,
                               LandlockFileAccess(row.rights, abi) & handled});
    }
    plan.landlock_fs = handled;
    if (abi >= 6)
        plan.landlock_scoped = (landlock.scope_abstract ? 1u : 0u) | (landlock.scope_signals ? 2u : 0u);
    plan.landlock_rules = store.rules.data();
    plan.landlock_count = store.rules.size();
}

sock_fprog Program(const std::vector<sock_filter>& code) {
    return {static_cast<unsigned short>(code.size()), const_cast<sock_filter*>(code.data())};
}

void LayOut(const NativeSpec& spec, const RootTree& tree, int landlock_abi, PlanStore& store) {
    ChildPlan& plan = store.plan;
    store.host_name = "sandbox";
    plan.host_name = store.host_name.c_str();
    plan.root_fd = tree.root.get();
    for (const RootMount& row : tree.mounts) store.mounts.push_back({row.mount.get(), row.target.c_str()});
    plan.mounts = store.mounts.data();
    plan.mount_count = store.mounts.size();
    plan.tty = spec.tty;
    plan.uid = spec.uid;
    plan.gid = spec.gid;
    plan.cwd = spec.cwd.c_str();
    plan.floor = Program(spec.seccomp.floor);
    plan.profile = Program(spec.seccomp.profile);
    store.argv = Pointers(spec.argv);
    store.envp = Pointers(spec.env);
    plan.argv = store.argv.data();
    plan.envp = store.envp.data();
    AddRlimits(spec, store);
    AddCandidates(spec, store);
    AddLandlock(spec.landlock, landlock_abi, store);
}

Status MakePipe(Fd* read_end, Fd* write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    read_end->Reset(ends[0]);
    write_end->Reset(ends[1]);
    return absl::OkStatus();
}

StatusOr<ChildProcess> CloneChild(const PlanStore& store, int cgroup_fd) {
    int pidfd = -1;
    clone_args args{};
    // Not CLONE_NEWCGROUP: its root would be the launcher's cgroup. The child unshares it itself.
    args.flags = CLONE_INTO_CGROUP | CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_NEWNET;
    args.pidfd = reinterpret_cast<uint64_t>(&pidfd);
    args.exit_signal = SIGCHLD;
    args.cgroup = static_cast<uint64_t>(cgroup_fd);
    // No handler of the launcher may run in the child: all are blocked until it has reset them.
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    long pid = SysClone3(&args);
    if (pid == 0) RunChild(store.plan);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &saved, nullptr);
    if (pid < 0) return ErrnoStatus(error, "clone3 into the cgroup");
    ChildProcess child;
    child.pid = static_cast<pid_t>(pid);
    child.pidfd = Fd(pidfd);
    return child;
}

}  // namespace

StatusOr<ChildProcess> StartChild(const NativeSpec& spec, const RootTree& tree, int landlock_abi) {
    PlanStore store;
    LayOut(spec, tree, landlock_abi, store);
    SK_ASSIGN_OR_RETURN(Fd null, Fd::Open("/dev/null", O_RDWR));
    for (int i = 0; i < 3; ++i) {
        int fd = spec.tty ? tree.terminal.get() : spec.stdio[i];
        store.plan.stdio[i] = fd < 0 ? null.get() : fd;
    }
    Fd go_read, go_write, status_read, status_write, exec_read, exec_write;
    SK_RETURN_IF_ERROR(MakePipe(&go_read, &go_write));
    SK_RETURN_IF_ERROR(MakePipe(&status_read, &status_write));
    SK_RETURN_IF_ERROR(MakePipe(&exec_read, &exec_write));
    store.plan.go_fd = go_read.get();
    store.plan.status_fd = status_write.get();
    store.plan.exec_fd = exec_write.get();
    SK_ASSIGN_OR_RETURN(ChildProcess child, CloneChild(store, spec.cgroup.dir.get()));
    child.go = std::move(go_write);
    child.status = std::move(status_read);
    child.exec = std::move(exec_read);
    return child;
}

StatusOr<bool> ReadMessage(int fd, ChildMessage* message) {
    ssize_t n;
    do {
        n = read(fd, message, sizeof(*message));
    } while (n < 0 && errno == EINTR);
    if (n < 0) return ErrnoStatus(errno, "read from the sandbox's init");
    // Records are below PIPE_BUF: whole or not at all.
    if (n != 0 && n != sizeof(*message)) return absl::InternalError("half a record from the init");
    return n != 0;
}

Status WaitReady(const ChildProcess& child, const RootTree& tree, const std::string& cwd) {
    pollfd p{child.status.get(), POLLIN, 0};
    int rc;
    do {
        rc = poll(&p, 1, kReadyTimeoutMs);
    } while (rc < 0 && errno == EINTR);
    if (rc == 0) return absl::DeadlineExceededError("the sandbox's init is not ready after 30 s");
    ChildMessage message{};
    SK_ASSIGN_OR_RETURN(bool some, ReadMessage(child.status.get(), &message));
    if (!some) return absl::AbortedError("the sandbox's init was killed while it was set up");
    if (message.kind == ChildMessage::kReady) return absl::OkStatus();
    std::string what = ChildStepName(message.step);
    if (message.step == kAttachMount && static_cast<size_t>(message.index) < tree.mounts.size()) {
        absl::StrAppend(&what, " at /", tree.mounts[static_cast<size_t>(message.index)].target);
    } else if (message.step == kWorkingDirectory) {
        absl::StrAppend(&what, " ", cwd, " of the sandbox");
    } else if (message.index != 0) {
        absl::StrAppend(&what, " (row ", message.index, ")");
    }
    return ErrnoStatus(message.error, what);
}

}  // namespace stockade::launch
