// What the tests of this room share: a sandbox around the probe, and what came out of it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/launch/native.h"
#include "userspace/launch/start_measure.h"

namespace stockade::launch {

// A parent cgroup of the test's own: nothing of another test or of a running agent is touched.
inline CgroupHome& TestHome() {
    // Never destroyed: the handler below needs its path after all other statics are gone.
    static CgroupHome& home = *[] {
        auto made = FindCgroupHome(absl::StrCat("stockade_launch_test_", getpid()));
        if (!made.ok()) {
            fprintf(stderr, "%s\n", made.status().ToString().c_str());
            abort();
        }
        return new CgroupHome(*std::move(made));
    }();
    static const int registered = atexit([] { (void)rmdir(TestHome().path.c_str()); });
    (void)registered;
    return home;
}

inline const SeccompProgram& DefaultSeccomp() {
    static SeccompProgram program = [] {
        auto compiled = CompileSeccomp(0);
        return compiled.ok() ? *compiled : SeccompProgram();
    }();
    return program;
}

// A sandbox whose command is `argv`; "probe" is the probe, bound at /probe.
inline NativeSpec MakeSpec(std::vector<std::string> argv) {
    static std::atomic<uint32_t> next{0};
    uint32_t number = next++;
    NativeSpec spec;
    spec.id = absl::StrCat("sbx_test_", getpid(), "_", number);
    auto cgroup = CreateCgroup(TestHome(), spec.id, {});
    EXPECT_TRUE(cgroup.ok()) << cgroup.status();
    if (cgroup.ok()) spec.cgroup = *std::move(cgroup);
    if (argv[0] == "probe") argv[0] = "/probe";
    spec.argv = std::move(argv);
    spec.env = {"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8"};
    spec.uid = spec.gid = 700000 + number;
    spec.seccomp = DefaultSeccomp();
    auto path = OwnProbe();
    EXPECT_TRUE(path.ok()) << path.status();
    auto probe = Fd::Open(path.ok() ? *path : "/", O_PATH);
    EXPECT_TRUE(probe.ok()) << probe.status();
    if (probe.ok()) spec.binds.push_back({*std::move(probe), "/probe", false});
    return spec;
}

struct Ran {
    Status status;
    ExecResult exec;
    int exit_status = -1;
    std::string out;
};

// Reads a pipe to its end on a thread.
class Collector {
  public:
    Collector() {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) abort();
        read_ = Fd(ends[0]);
        write_ = Fd(ends[1]);
        thread_ = std::thread([this] {
            auto text = ReadAll(read_.get(), 64u << 20);
            if (text.ok()) text_ = *text;
        });
    }
    ~Collector() {
        if (thread_.joinable()) (void)Text();
    }
    int fd() const { return write_.get(); }
    void CloseWriter() { write_.Reset(); }
    std::string Text() {
        write_.Reset();
        if (thread_.joinable()) thread_.join();
        return text_;
    }

  private:
    Fd read_, write_;
    std::string text_;
    std::thread thread_;
};

// Create, release, wait, destroy.
inline Ran RunSandbox(NativeSpec spec) {
    Ran ran;
    Collector collector;
    spec.stdio[1] = spec.stdio[2] = collector.fd();
    auto sandbox = NativeSandbox::Create(std::move(spec));
    if (!sandbox.ok()) {
        ran.status = sandbox.status();
        return ran;
    }
    auto exec = (*sandbox)->Release();
    if (!exec.ok()) {
        ran.status = exec.status();
        return ran;
    }
    ran.exec = *exec;
    auto status = (*sandbox)->Wait();
    if (status.ok()) ran.exit_status = *status;
    auto destroyed = (*sandbox)->Destroy();
    if (!destroyed.ok()) ran.status = destroyed.status();
    ran.out = collector.Text();
    return ran;
}

inline Ran RunProbe(std::vector<std::string> words) {
    words.insert(words.begin(), "probe");
    return RunSandbox(MakeSpec(std::move(words)));
}

// Waits for `done` with a deadline; the condition is polled for it is another process's.
template <typename Fn>
bool Eventually(Fn done, int timeout_ms = 10000) {
    uint64_t deadline = BootNow() + static_cast<uint64_t>(timeout_ms) * 1000000ull;
    while (!done()) {
        if (BootNow() > deadline) return false;
        poll(nullptr, 0, 2);
    }
    return true;
}

}  // namespace stockade::launch
