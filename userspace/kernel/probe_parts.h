// The parts of Probe(), each of which fills features of one report. Private to probe*.cc.
#pragma once

#include <functional>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/kernel/probe.h"

namespace stockade::kernel::probe {

// Mounts, LSM list, capabilities, limits and plain system calls.
void FillHost(const ProbeOptions& options, ProbeReport& report);

// Program types, helpers, kfuncs and maps: each by loading one tiny program.
void FillPrograms(ProbeReport& report);

// A cgroup of the probe's own, removed with the object.
class ThrowAwayCgroup {
  public:
    static StatusOr<ThrowAwayCgroup> Create(const std::string& parent);
    ThrowAwayCgroup(ThrowAwayCgroup&& other) noexcept;
    ThrowAwayCgroup& operator=(ThrowAwayCgroup&&) = delete;
    ~ThrowAwayCgroup();

    const Fd& dir() const { return dir_; }
    StatusOr<uint64_t> Id() const;
    // Removes it; waits at most a second for the last task to be gone.
    Status Remove();

    // Runs `body` in a child inside the cgroup, `body` being async-signal-safe, and returns its
    // wait status. `meanwhile`, if given, runs in the parent when the child is inside and about
    // to start. kDeadlineExceeded: the child was killed after 10 seconds.
    StatusOr<int> Run(const std::function<int()>& body,
                      const std::function<Status()>& meanwhile = nullptr) const;

  private:
    ThrowAwayCgroup(std::string path, Fd dir) : path_(std::move(path)), dir_(std::move(dir)) {}
    std::string path_;
    Fd dir_;
};

// cgroup.kill, cgroup.freeze and clone3 into it.
void FillCgroup(const ThrowAwayCgroup& cgroup, ProbeReport& report);

// The canaries. Returns with everything detached, or fails.
Status FillCanaries(const ThrowAwayCgroup& cgroup, ProbeReport& report);

// Sets the feature from `status`.
void Set(ProbeReport& report, Feature feature, const Status& status);

}  // namespace stockade::kernel::probe
