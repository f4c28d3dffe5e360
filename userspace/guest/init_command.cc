#include "userspace/guest/init_command.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "userspace/base/errno.h"
#include "userspace/guest/init_system.h"

namespace stockade::guest {
namespace {

struct Limit {
    __rlimit_resource_t resource;
    rlim_t value;
};
// As in a sandbox of the native runtime (launch/child_process.cc). NPROC: a fork bomb ends there.
constexpr Limit kLimits[] = {{RLIMIT_CORE, 0},          {RLIMIT_NOFILE, 1024},     {RLIMIT_NPROC, 1024},
                             {RLIMIT_MEMLOCK, 8 << 20}, {RLIMIT_MSGQUEUE, 819200}, {RLIMIT_SIGPENDING, 4096}};
// Before anything of init: what the command ate is what the kernel takes back when memory is out.
constexpr char kFirstToGo[] = "500";

struct Pipe {
    Fd read, write;
};
StatusOr<Pipe> MakePipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
    return Pipe{Fd(fds[0]), Fd(fds[1])};
}

std::vector<char*> Pointers(const google::protobuf::RepeatedPtrField<std::string>& words) {
    std::vector<char*> out;
    out.reserve(static_cast<size_t>(words.size()) + 1);
    for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
    out.push_back(nullptr);
    return out;
}

bool EnterRoot() {
    return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           chdir(kRoot) == 0 &&
           // The initramfs cannot be left by pivot_root(2): the tree is moved over it.
           mount(".", "/", nullptr, MS_MOVE, nullptr) == 0 && chroot(".") == 0;
}

bool DropRights(const RunOrder& run) {
    for (const Limit& limit : kLimits) {
        const rlimit both{.rlim_cur = limit.value, .rlim_max = limit.value};
        if (setrlimit(limit.resource, &both) != 0) return false;
    }
    // The bounding set first: it takes CAP_SETPCAP to leave. EINVAL ends the list of those the kernel knows.
    for (unsigned long capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) return false;
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return false;
    if (setgroups(0, nullptr) != 0 || setresgid(run.gid(), run.gid(), run.gid()) != 0 ||
        setresuid(run.uid(), run.uid(), run.uid()) != 0) {
        return false;
    }
    // Also where the uid is 0: what setresuid(2) would leave.
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, 2> none{};
    return syscall(SYS_capset, &header, none.data()) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

[[noreturn]] void Fail(int report, absl::string_view step) {
    const int error = errno;
    std::string words(reinterpret_cast<const char*>(&error), sizeof(error));
    words.append(step.data(), step.size());
    (void)WriteAll(report, words);  // init reads it, or all of this is over
    _exit(127);
}

[[noreturn]] void RunCommand(const RunOrder& run, const Fd& in, const Fd& out, const Fd& err, int report) {
    if (!WriteAll(Fd::Open("/proc/self/oom_score_adj", O_WRONLY).value_or(Fd()).get(), kFirstToGo).ok()) {
        Fail(report, "give the command up first when memory is out");
    }
    if (setsid() < 0) Fail(report, "make a session");
    if (!EnterRoot()) Fail(report, "enter the root");
    if (dup2(in.get(), 0) < 0 || dup2(out.get(), 1) < 0 || dup2(err.get(), 2) < 0)
        Fail(report, "set up stdio");
    if (!DropRights(run)) Fail(report, "drop rights");
    if (chdir(run.cwd().empty() ? "/" : run.cwd().c_str()) != 0)
        Fail(report, "change to the working directory");
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, nullptr);  // cannot fail with these
    (void)signal(SIGPIPE, SIG_DFL);                  // what init ignores the command would as well
    std::vector<char*> argv = Pointers(run.argv()), env = Pointers(run.env());
    // execvpe(3) looks for the command by the PATH of its own environment.
    environ = env.data();
    execvp(argv[0], argv.data());
    Fail(report, "execve");
}

}  // namespace

bool StartCommand(const RunOrder& run, Command* command, StartFailure* failure) {
    auto fail = [&](Status status, int error) {
        *failure = {std::move(status), error};
        return false;
    };
    if (run.argv().empty()) return fail(absl::InvalidArgumentError("no command"), EINVAL);
    auto in = MakePipe(), out = MakePipe(), err = MakePipe(), report = MakePipe();
    for (const auto* pipe : {&in, &out, &err, &report}) {
        if (!pipe->ok()) return fail(pipe->status(), 0);
    }
    const pid_t pid = fork();
    if (pid < 0) return fail(ErrnoStatus(errno, "fork"), errno);
    if (pid == 0) RunCommand(run, in->read, out->write, err->write, report->write.get());
    report->write.Reset();
    // End of file is what a successful execve leaves.
    auto words = ReadAll(report->read.get(), 4096);
    if (!words.ok()) return fail(words.status(), 0);
    if (!words->empty()) {
        int error = 0;
        if (words->size() < sizeof(error)) return fail(absl::InternalError("the child ended midway"), 0);
        std::copy_n(words->data(), sizeof(error), reinterpret_cast<char*>(&error));
        return fail(ErrnoStatus(error, words->substr(sizeof(error))), error);
    }
    if (fcntl(in->write.get(), F_SETFL, O_NONBLOCK) != 0) return fail(ErrnoStatus(errno, "set up stdin"), 0);
    *command = Command{
        .pid = pid, .in = std::move(in->write), .out = std::move(out->read), .err = std::move(err->read)};
    return true;
}

bool ReapChildren(pid_t pid, Exited* exited) {
    bool found = false;
    while (true) {
        int status = 0;
        const pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended < 0 && errno == EINTR) continue;
        if (ended <= 0) return found;
        if (ended != pid) continue;
        found = true;
        if (WIFSIGNALED(status)) {
            exited->set_signal(static_cast<uint32_t>(WTERMSIG(status)));
        } else {
            exited->set_status(static_cast<uint32_t>(WEXITSTATUS(status)));
        }
    }
}

void EndEverything() {
    // One pass takes all there is: a fork under way sees its signal first. What it does not kill (ptraced, in a system
    // call) is waited for; the host has a deadline.
    do {
        (void)kill(-1, SIGKILL);  // ESRCH: nobody is left
    } while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR);
}

}  // namespace stockade::guest
