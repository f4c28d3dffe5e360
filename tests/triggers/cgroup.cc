// Ways out of the sandbox's cgroup, and shapes of process trees.
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/triggers/trigger.h"

namespace stockade::triggers {
namespace {

int WriteProcs(Args args) {
    int fd = open(args[0], O_WRONLY);
    if (fd < 0) return Refused();
    return Outcome(write(fd, "0", 1));
}

// The directory of the cgroup is opened O_PATH, which no policy judges.
int CloneInto(Args args) {
    int cgroup = open(args[0], O_PATH | O_DIRECTORY);
    if (cgroup < 0) return Setup("open");
    clone_args how{};
    how.flags = CLONE_INTO_CGROUP;
    how.exit_signal = SIGCHLD;
    how.cgroup = static_cast<unsigned long long>(cgroup);
    long pid = syscall(SYS_clone3, &how, sizeof(how));
    if (pid == 0) {
        Data("child", 5);
        _exit(0);
    }
    if (pid < 0) return Refused();
    int status = 0;
    waitpid(static_cast<pid_t>(pid), &status, 0);
    return Done();
}

int MakeCgroup(Args args) {
    char path[4096];
    if (mkdir(args[0], 0755) != 0) return Setup("mkdir");
    size_t length = strlen(args[0]);
    if (length + 14 > sizeof(path)) return 2;
    memcpy(path, args[0], length);
    memcpy(path + length, "/cgroup.procs", 14);
    int fd = open(path, O_WRONLY);
    if (fd < 0) return Refused();
    return Outcome(write(fd, "0", 1));
}

// COUNT processes that wait on standard input, as a chain of forks; then done.
int Fork(Args args) {
    int left = Number(args[0]);
    for (; left > 0; left--) {
        pid_t pid = fork();
        if (pid < 0) return Setup("fork");
        if (pid > 0) break;
        if (left % 3 == 0) setsid();
    }
    if (left == 0) Done();
    char byte;
    (void)!read(0, &byte, 1);
    return 0;
}

void* Wait(void*) {
    char byte;
    (void)!read(0, &byte, 1);
    return nullptr;
}

int Threads(Args args) {
    for (int i = 0; i < Number(args[0]); i++) {
        pthread_t thread;
        if (pthread_create(&thread, nullptr, Wait, nullptr) != 0) return Setup("thread");
    }
    Done();
    Wait(nullptr);
    return 0;
}

const Trigger kTriggers[] = {
    {"write_procs", 1, "FILE", WriteProcs},
    {"clone_into", 1, "CGROUP", CloneInto},
    {"make_cgroup", 1, "CGROUP", MakeCgroup},
    {"fork", 1, "COUNT", Fork},
    {"threads", 1, "COUNT", Threads},
};

}  // namespace

std::span<const Trigger> CgroupTriggers() { return kTriggers; }

}  // namespace stockade::triggers
