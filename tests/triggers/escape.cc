// Calls that reach out of a sandbox or around its judges. Each is harmless where it works.
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/triggers/trigger.h"
#include "tests/triggers/uring.h"

namespace stockade::triggers {
namespace {

// A child that does nothing until it is killed, or until its parent dies.
class Sleeper {
  public:
    Sleeper() {
        int pipes[2];
        if (pipe(pipes) != 0) return;
        pid_ = fork();
        if (pid_ == 0) {
            char byte;
            close(pipes[1]);
            (void)!read(pipes[0], &byte, 1);
            _exit(0);
        }
        close(pipes[0]);
    }
    ~Sleeper() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = -1;
};

int Ptrace(Args) {
    Sleeper child;
    return Outcome(ptrace(PTRACE_SEIZE, child.pid(), nullptr, nullptr));
}

int TraceMe(Args) { return Outcome(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }

long g_word = 7;
int ProcessVmRead(Args) {
    Sleeper child;
    long here = 0;
    iovec local = {&here, sizeof(here)}, remote = {&g_word, sizeof(g_word)};
    return Outcome(process_vm_readv(child.pid(), &local, 1, &remote, 1, 0));
}

int ProcessVmWrite(Args) {
    Sleeper child;
    long here = 8;
    iovec local = {&here, sizeof(here)}, remote = {&g_word, sizeof(g_word)};
    return Outcome(process_vm_writev(child.pid(), &local, 1, &remote, 1, 0));
}

int ProcMem(Args) {
    Sleeper child;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mem", child.pid());
    int fd = open(path, O_RDONLY);
    long here = 0;
    if (fd < 0) return Refused();
    return Outcome(pread(fd, &here, sizeof(here), reinterpret_cast<off_t>(&g_word)));
}

int PidfdGetfd(Args) {
    Sleeper child;
    int pidfd = static_cast<int>(syscall(SYS_pidfd_open, child.pid(), 0));
    if (pidfd < 0) return Setup("pidfd_open");
    return Outcome(syscall(SYS_pidfd_getfd, pidfd, 1, 0));
}

int Mount(Args args) { return Outcome(mount("tmpfs", args[0], "tmpfs", 0, nullptr)); }
int MountBind(Args args) { return Outcome(mount(args[0], args[1], nullptr, MS_BIND, nullptr)); }
int OpenTree(Args args) { return Outcome(syscall(SYS_open_tree, AT_FDCWD, args[0], 1 /* OPEN_TREE_CLONE */)); }
int Fsopen(Args) { return Outcome(syscall(SYS_fsopen, "tmpfs", 0)); }
int Umount(Args args) { return Outcome(umount2(args[0], MNT_DETACH)); }
// In a mount namespace of its own, which is granted: the test's root must stay.
int PivotRoot(Args args) {
    if (unshare(CLONE_NEWNS) != 0) return Setup("unshare");
    return Outcome(syscall(SYS_pivot_root, args[0], args[1]));
}
int Chroot(Args args) { return Outcome(chroot(args[0])); }

// MOVE_MOUNT_F_EMPTY_PATH of a clone that a grant or this backend let through; without it, of nothing.
int MoveMount(Args args) { return Outcome(syscall(SYS_move_mount, AT_FDCWD, args[0], AT_FDCWD, args[1], 0)); }

// Into the namespace that it is in.
int Setns(Args) {
    int pidfd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
    return pidfd < 0 ? Setup("pidfd_open") : Outcome(setns(pidfd, CLONE_NEWUTS));
}
int SetnsFile(Args) {
    int fd = open("/proc/self/ns/uts", O_RDONLY);
    return fd < 0 ? Refused() : Outcome(setns(fd, CLONE_NEWUTS));
}

int UnshareUser(Args) { return Outcome(unshare(CLONE_NEWUSER)); }
int UnshareMount(Args) { return Outcome(unshare(CLONE_NEWNS)); }

int CloneWith(unsigned long flags) {
    long pid = syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid(static_cast<pid_t>(pid), nullptr, 0);
    return Outcome(pid);
}
int CloneUser(Args) { return CloneWith(CLONE_NEWUSER); }
int CloneMount(Args) { return CloneWith(CLONE_NEWNS); }

int Bpf(Args) {
    bpf_attr attr{};
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = attr.value_size = 4;
    attr.max_entries = 1;
    return Outcome(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}

// Fails with ENOENT where it is let through and no program has that number.
int BpfById(Args args) {
    bpf_attr attr{};
    attr.prog_id = static_cast<unsigned>(Number(args[0]));
    return Outcome(syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, &attr, sizeof(attr)));
}

int PerfEvent(Args) {
    perf_event_attr attr{};
    attr.type = PERF_TYPE_SOFTWARE;
    attr.size = sizeof(attr);
    attr.config = PERF_COUNT_SW_TASK_CLOCK;
    return Outcome(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
}

int IoUring(Args) {
    Uring ring;
    return ring.Start(0) ? Done() : Refused();
}

int Userfaultfd(Args) { return Outcome(syscall(SYS_userfaultfd, O_CLOEXEC)); }
int AddKey(Args) { return Outcome(syscall(SYS_add_key, "user", "stockade", "x", 1, -2 /* process keyring */)); }
int Keyctl(Args) { return Outcome(syscall(SYS_keyctl, 0 /* GET_KEYRING_ID */, -2, 1)); }

// What is no module and no kernel: refused with another errno where nobody forbids it.
int InitModule(Args) { return Outcome(syscall(SYS_init_module, "none", 4, "")); }
int FinitModule(Args args) {
    int fd = open(args[0], O_RDONLY);
    return fd < 0 ? Setup("open") : Outcome(syscall(SYS_finit_module, fd, "", 0));
}
int Kexec(Args) { return Outcome(syscall(SYS_kexec_load, 0, 0, nullptr, 0)); }

const Trigger kTriggers[] = {
    {"ptrace", 0, "", Ptrace},
    {"ptrace_me", 0, "", TraceMe},
    {"process_vm_readv", 0, "", ProcessVmRead},
    {"process_vm_writev", 0, "", ProcessVmWrite},
    {"proc_mem", 0, "", ProcMem},
    {"pidfd_getfd", 0, "", PidfdGetfd},
    {"mount", 1, "DIR", Mount},
    {"mount_bind", 2, "FROM TO", MountBind},
    {"move_mount", 2, "FROM TO", MoveMount},
    {"open_tree", 1, "DIR", OpenTree},
    {"fsopen", 0, "", Fsopen},
    {"umount", 1, "DIR", Umount},
    {"pivot_root", 2, "NEW OLD", PivotRoot},
    {"chroot", 1, "DIR", Chroot},
    {"setns", 0, "", Setns},
    {"setns_file", 0, "", SetnsFile},
    {"unshare_user", 0, "", UnshareUser},
    {"unshare_mount", 0, "", UnshareMount},
    {"clone_user", 0, "", CloneUser},
    {"clone_mount", 0, "", CloneMount},
    {"bpf", 0, "", Bpf},
    {"bpf_by_id", 1, "ID", BpfById},
    {"perf_event_open", 0, "", PerfEvent},
    {"io_uring_setup", 0, "", IoUring},
    {"userfaultfd", 0, "", Userfaultfd},
    {"add_key", 0, "", AddKey},
    {"keyctl", 0, "", Keyctl},
    {"init_module", 0, "", InitModule},
    {"finit_module", 1, "FILE", FinitModule},
    {"kexec_load", 0, "", Kexec},
};

}  // namespace

std::span<const Trigger> EscapeTriggers() { return kTriggers; }

}  // namespace stockade::triggers
