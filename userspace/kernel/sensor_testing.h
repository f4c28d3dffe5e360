// For tests of the sensor: a policy, and a child in a cgroup of its own that it judges.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bpf/wire/policy.h"
#include "gtest/gtest.h"
#include "userspace/kernel/probe.h"
#include "userspace/kernel/sensor.h"

namespace stockade::kernel {

// Of a policy that lets true and cat run, usr and the user list be read, and nobody be talked to. Defined in sensor_root_test.cc.
std::vector<union sk_cell> PolicyCells(const sk_hash_keys& keys);

// A cgroup and a child in it that waits until Go, then runs `body` and exits with its result.
class Child {
  public:
    explicit Child(const std::string& name, std::function<int()> body) {
        auto report = Probe({.canaries = false});
        dir_ = absl::StrCat(report->cgroup2_mount, "/", name, "_", getpid());
        EXPECT_EQ(mkdir(dir_.c_str(), 0755), 0) << strerror(errno);
        cgroup_ = *Fd::Open(dir_, O_RDONLY | O_DIRECTORY);
        EXPECT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
        pid_ = fork();
        if (pid_ == 0) {
            char go;
            close(pipe_[1]);
            _exit(read(pipe_[0], &go, 1) == 1 ? body() : 99);
        }
        close(pipe_[0]);
        Fd procs = *Fd::Open(dir_ + "/cgroup.procs", O_WRONLY);
        EXPECT_TRUE(WriteAll(procs.get(), absl::StrCat(pid_)).ok());
        pidfd_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    }
    int Go() {
        Start();
        return Wait();
    }
    void Start() { EXPECT_EQ(write(pipe_[1], "g", 1), 1); }
    int Wait() {
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return status;
    }
    ~Child() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(pipe_[1]);
        rmdir(dir_.c_str());
    }
    std::string dir_;
    Fd cgroup_, pidfd_;
    int pipe_[2];
    pid_t pid_ = -1;
};

inline int RunProgram(const char* program) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, "/etc/passwd", nullptr);
        _exit(errno == EPERM ? 77 : 78);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
    return WEXITSTATUS(status);
}

// As a shell says it.
inline int StatusOf(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace stockade::kernel
