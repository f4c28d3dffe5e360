#include "userspace/launch/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

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

// The file of an order: a ChildPlan and all that it points to, with pointers as they are once it is mapped at `base`.
class PlanImage {
  public:
    explicit PlanImage(void* base) : base_(reinterpret_cast<uintptr_t>(base)) {
        bytes_.resize(sizeof(ChildPlan));
    }
    ChildPlan plan{};

    template <typename T>
    const T* Put(const T* data, size_t count) {
        bytes_.resize((bytes_.size() + alignof(T) - 1) / alignof(T) * alignof(T));
        const uintptr_t at = base_ + bytes_.size();
        if (count != 0) bytes_.append(reinterpret_cast<const char*>(data), count * sizeof(T));
        return reinterpret_cast<const T*>(at);
    }
    const char* Put(const std::string& text) { return Put(text.c_str(), text.size() + 1); }
    // Ended by a null pointer.
    const char* const* Put(const std::vector<std::string>& texts) {
        std::vector<const char*> pointers;
        for (const std::string& text : texts) pointers.push_back(Put(text));
        pointers.push_back(nullptr);
        return Put(pointers.data(), pointers.size());
    }
    std::string Done() && {
        std::memcpy(bytes_.data(), &plan, sizeof(plan));
        return std::move(bytes_);
    }

  private:
    uintptr_t base_;
    std::string bytes_;
};

void AddRlimits(const NativeSpec& spec, PlanImage& image) {
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
    std::vector<ChildRlimit> limits;
    for (const RlimitRow& row : rows) {
        rlimit now;
        if (getrlimit(static_cast<__rlimit_resource_t>(row.resource), &now) != 0) continue;
        rlimit wanted;
        wanted.rlim_max = std::min<rlim_t>(row.hard, now.rlim_max);
        wanted.rlim_cur = std::min<rlim_t>(row.soft, wanted.rlim_max);
        limits.push_back({row.resource, wanted});
    }
    image.plan.rlimits = image.Put(limits.data(), limits.size());
    image.plan.rlimit_count = limits.size();
}

void AddCandidates(const NativeSpec& spec, PlanImage& image) {
    const std::string& name = spec.argv[0];
    std::vector<std::string> candidates;
    if (name.find('/') != std::string::npos) {
        candidates.push_back(name);
    } else if (!name.empty()) {
        std::string path = kDefaultPath;
        for (const std::string& row : spec.env) {
            if (absl::StartsWith(row, "PATH=")) path = row.substr(5);
        }
        for (absl::string_view dir : absl::StrSplit(path, ':')) {
            candidates.push_back(absl::StrCat(dir.empty() ? "." : dir, "/", name));
        }
    }
    image.plan.candidates = image.Put(candidates);
}

void AddLandlock(const LandlockPlan& landlock, int abi, PlanImage& image) {
    ChildPlan& plan = image.plan;
    std::vector<ChildLandlockRule> rules;
    plan.landlock_abi = abi;
    if (landlock.empty() || abi == 0) return;
    constexpr uint64_t kRefer = 1u << 13;
    uint64_t handled = LandlockAccess(landlock.handled, abi);
    const bool writes = (landlock.handled & kLandlockWrite) != 0;
    // Any domain refuses moves between directories unless it handles and grants them.
    if (handled != 0 && !writes && abi >= 2) {
        handled |= kRefer;
        rules.push_back({image.Put(std::string("/")), kRefer, 0});
    }
    for (const LandlockPath& row : landlock.paths) {
        rules.push_back({image.Put(row.path), LandlockAccess(row.rights, abi) & handled,
                         LandlockFileAccess(row.rights, abi) & handled});
    }
    plan.landlock_fs = handled;
    if (abi >= 6)
        plan.landlock_scoped = (landlock.scope_abstract ? 1u : 0u) | (landlock.scope_signals ? 2u : 0u);
    plan.landlock_rules = image.Put(rules.data(), rules.size());
    plan.landlock_count = rules.size();
}

sock_fprog Program(const std::vector<sock_filter>& code, PlanImage& image) {
    return {static_cast<unsigned short>(code.size()),
            const_cast<sock_filter*>(image.Put(code.data(), code.size()))};
}

std::string LayOut(const NativeSpec& spec, const RootTree& tree, int landlock_abi, void* at) {
    PlanImage image(at);
    ChildPlan& plan = image.plan;
    std::vector<std::string> targets;
    for (size_t i = tree.base_mounts; i < tree.mounts.size(); ++i) targets.push_back(tree.mounts[i].target);
    plan.targets = image.Put(targets);
    plan.mount_count = targets.size();
    plan.tty = spec.tty;
    plan.uid = spec.uid;
    plan.gid = spec.gid;
    plan.cwd = image.Put(spec.cwd);
    plan.floor = Program(spec.seccomp.floor, image);
    plan.profile = Program(spec.seccomp.profile, image);
    // execve's own type; it writes to neither.
    plan.argv = const_cast<char* const*>(image.Put(spec.argv));
    plan.envp = const_cast<char* const*>(image.Put(spec.env));
    AddRlimits(spec, image);
    AddCandidates(spec, image);
    AddLandlock(spec.landlock, landlock_abi, image);
    return std::move(image).Done();
}

Status SendWithFds(int socket, const ChildOrder& order, const std::vector<int>& fds) {
    std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
    iovec bytes{const_cast<ChildOrder*>(&order), sizeof(order)};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    // An init that is gone has said why, or was killed: WaitReady tells.
    if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
        return ErrnoStatus(errno, "send the sandbox's init its order");
    return absl::OkStatus();
}

Status MakePipe(Fd* read_end, Fd* write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
    read_end->Reset(ends[0]);
    write_end->Reset(ends[1]);
    return absl::OkStatus();
}

StatusOr<ChildProcess> CloneChild(const ChildBase& base, int cgroup_fd) {
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
    if (pid == 0) RunChild(base);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &saved, nullptr);
    if (pid < 0) return ErrnoStatus(error, "clone3 into the cgroup");
    ChildProcess child;
    child.pid = static_cast<pid_t>(pid);
    child.pidfd = Fd(pidfd);
    return child;
}

}  // namespace

StatusOr<PlanRoom> PlanRoom::Reserve() {
    void* at = mmap(nullptr, kPlanRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return ErrnoStatus(errno, "make room for an order");
    PlanRoom room;
    room.at_ = at;
    return room;
}

PlanRoom::~PlanRoom() {
    if (at_ != nullptr) (void)munmap(at_, kPlanRoom);  // fails for no range that was mapped
}

StatusOr<ChildProcess> StartChild(const RootTree& tree, int cgroup_fd) {
    std::vector<ChildMount> mounts;
    for (const RootMount& row : tree.mounts) mounts.push_back({row.mount.get(), row.target.c_str()});
    Fd go_read, go_write, status_read, status_write, exec_read, exec_write;
    SK_RETURN_IF_ERROR(MakePipe(&go_read, &go_write));
    SK_RETURN_IF_ERROR(MakePipe(&status_read, &status_write));
    SK_RETURN_IF_ERROR(MakePipe(&exec_read, &exec_write));
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        return ErrnoStatus(errno, "socketpair");
    Fd order_here(sockets[0]), order_there(sockets[1]);
    SK_ASSIGN_OR_RETURN(PlanRoom room, PlanRoom::Reserve());
    const ChildBase base{.host_name = "sandbox",
                         .root_fd = tree.root.get(),
                         .mounts = mounts.data(),
                         .mount_count = mounts.size(),
                         .go_fd = go_read.get(),
                         .status_fd = status_write.get(),
                         .exec_fd = exec_write.get(),
                         .order_fd = order_there.get(),
                         .plan_at = room.at()};
    SK_ASSIGN_OR_RETURN(ChildProcess child, CloneChild(base, cgroup_fd));
    child.go = std::move(go_write);
    child.status = std::move(status_read);
    child.exec = std::move(exec_read);
    child.order = std::move(order_here);
    child.room = std::move(room);
    return child;
}

Status SendOrder(ChildProcess& child, const NativeSpec& spec, const RootTree& tree, int landlock_abi) {
    static_assert(kMaxOrderMounts == kMaxBinds + 1);
    const std::string image = LayOut(spec, tree, landlock_abi, child.room.at());
    if (image.size() > kPlanRoom)
        return absl::InvalidArgumentError("the command and its rules are over 64 MiB");
    Fd file(memfd_create("order", MFD_CLOEXEC));
    if (!file.ok()) return ErrnoStatus(errno, "memfd for an order");
    SK_RETURN_IF_ERROR(Annotate(WriteAll(file.get(), image), "write an order"));
    SK_ASSIGN_OR_RETURN(Fd null, Fd::Open("/dev/null", O_RDWR));
    std::vector<int> fds = {file.get()};
    for (int i = 0; i < 3; ++i) {
        const int fd = spec.tty ? tree.terminal.get() : spec.stdio[i];
        fds.push_back(fd < 0 ? null.get() : fd);
    }
    for (size_t i = tree.base_mounts; i < tree.mounts.size(); ++i) fds.push_back(tree.mounts[i].mount.get());
    SK_RETURN_IF_ERROR(SendWithFds(child.order.get(), {image.size()}, fds));
    child.order.Reset();
    return absl::OkStatus();
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

namespace {

// The next of the two messages of a start. Kind, or why it went wrong.
StatusOr<ChildMessage::Kind> NextStep(const ChildProcess& child, const RootTree& tree,
                                      const std::string& cwd) {
    pollfd p{child.status.get(), POLLIN, 0};
    int rc;
    do {
        rc = poll(&p, 1, kReadyTimeoutMs);
    } while (rc < 0 && errno == EINTR);
    if (rc == 0) return absl::DeadlineExceededError("the sandbox's init is not ready after 30 s");
    ChildMessage message{};
    SK_ASSIGN_OR_RETURN(bool some, ReadMessage(child.status.get(), &message));
    if (!some) return absl::AbortedError("the sandbox's init was killed while it was set up");
    if (message.kind != ChildMessage::kFailed) return static_cast<ChildMessage::Kind>(message.kind);
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

}  // namespace

Status WaitPrepared(const ChildProcess& child, const RootTree& tree) {
    return NextStep(child, tree, "").status();
}

Status WaitReady(const ChildProcess& child, const RootTree& tree, const std::string& cwd) {
    while (true) {
        SK_ASSIGN_OR_RETURN(const ChildMessage::Kind kind, NextStep(child, tree, cwd));
        if (kind == ChildMessage::kReady) return absl::OkStatus();
    }
}

}  // namespace stockade::launch
