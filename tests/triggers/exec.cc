// Ways to run code.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/triggers/trigger.h"

namespace stockade::triggers {
namespace {

char* kNoEnvironment[] = {nullptr};

// args[first] is the program, the rest its words.
int ExecArgs(Args args, size_t first) {
    execve(args[first], args.data() + first, kNoEnvironment);
    return Refused();
}

int Exec(Args args) { return ExecArgs(args, 0); }

int ExecFd(int fd, Args args) {
    syscall(SYS_execveat, fd, "", args.data(), kNoEnvironment, AT_EMPTY_PATH);
    return Refused();
}

int Fexecve(Args args) {
    int fd = open(args[0], O_PATH);
    return fd < 0 ? Setup("open") : ExecFd(fd, args);
}

int ExecProcFd(Args args) {
    int fd = open(args[0], O_PATH);
    if (fd < 0) return Setup("open");
    char path[] = "/proc/self/fd/0";
    if (dup2(fd, 9) < 0) return Setup("dup2");
    path[sizeof(path) - 2] = '9';
    execve(path, args.data(), kNoEnvironment);
    return Refused();
}

int Copy(const char* from, int to) {
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) return -1;
    ssize_t left = info.st_size;
    while (left > 0) {
        ssize_t n = sendfile(to, fd, nullptr, static_cast<size_t>(left));
        if (n <= 0) return -1;
        left -= n;
    }
    close(fd);
    return 0;
}

int ExecMemfd(Args args) {
    int fd = memfd_create("program", MFD_CLOEXEC);
    if (fd < 0 || Copy(args[0], fd) != 0) return Setup("copy");
    return ExecFd(fd, args);
}

// COPY is made, opened, unlinked and executed.
int ExecDeleted(Args args) {
    int to = open(args[1], O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (to < 0 || Copy(args[0], to) != 0) return Setup("copy");
    close(to);
    int fd = open(args[1], O_PATH | O_CLOEXEC);
    if (fd < 0 || unlink(args[1]) != 0) return Setup("unlink");
    return ExecFd(fd, args.subspan(1));
}

Args g_thread_args;
void* ExecInThread(void*) {
    Exec(g_thread_args);
    _exit(1);
}

int ExecThread(Args args) {
    g_thread_args = args;
    pthread_t thread;
    if (pthread_create(&thread, nullptr, ExecInThread, nullptr) != 0) return Setup("thread");
    pthread_join(thread, nullptr);
    return 1;
}

// FILE holds the program's name: its page is not there when the kernel reads it.
int ExecUnfaulted(Args args) {
    int fd = open(args[0], O_RDONLY | O_CLOEXEC);
    void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    if (page == MAP_FAILED) return Setup("map");
    execve(static_cast<char*>(page), args.data() + 1, kNoEnvironment);
    return Refused();
}

int MapCode(Args args) {
    int fd = open(args[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Setup("open");
    void* code = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    return code == MAP_FAILED ? Refused() : Done();
}

int Mprotect(Args args) {
    int fd = open(args[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Setup("open");
    void* code = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    if (code == MAP_FAILED) return Setup("map");
    return Outcome(mprotect(code, 4096, PROT_READ | PROT_EXEC));
}

// In the grandchild of a session of its own, re-parented to whoever takes orphans.
int ExecOrphan(Args args) {
    pid_t child = fork();
    if (child < 0) return Setup("fork");
    if (child > 0) {
        int status = 0;
        waitpid(child, &status, 0);
        return 0;
    }
    setsid();
    if (fork() != 0) _exit(0);
    return Exec(args);
}

const Trigger kTriggers[] = {
    {"exec", 1, "PROGRAM [ARG]...", Exec},
    {"fexecve", 1, "PROGRAM [ARG]...", Fexecve},
    {"exec_proc_fd", 1, "PROGRAM [ARG]...", ExecProcFd},
    {"exec_memfd", 1, "PROGRAM [ARG]...", ExecMemfd},
    {"exec_deleted", 2, "PROGRAM COPY [ARG]...", ExecDeleted},
    {"exec_thread", 1, "PROGRAM [ARG]...", ExecThread},
    {"exec_unfaulted", 2, "FILE PROGRAM [ARG]...", ExecUnfaulted},
    {"map_code", 1, "FILE", MapCode},
    {"mprotect_code", 1, "FILE", Mprotect},
    {"exec_orphan", 1, "PROGRAM [ARG]...", ExecOrphan},
};

}  // namespace

std::span<const Trigger> ExecTriggers() { return kTriggers; }

}  // namespace stockade::triggers
