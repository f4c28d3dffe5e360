// Runs KillCgroup for many sandboxes at once, each on a thread of its own, and hands the
// reports back.
//
//   Killer killer;
//   killer.Start({.id = id, .cgroup = std::move(fd), ...});
//   poll(killer.event_fd()); for (Killed& killed : killer.Finished()) ...
//
// Start and Finished belong to one thread. The evidence function runs on a kill thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/respond/kill.h"

namespace stockade::respond {

struct KillOrder {
    std::string id;
    Fd cgroup;
    KillOptions options;
    EvidenceFn evidence;
    // After a pending report: a second one follows when the sandbox is empty at last.
    bool wait_pending = false;
};

struct Killed {
    std::string id;
    KillReport report;
    bool last = true;  // false = a second report will follow
};

class Killer {
  public:
    // A sandbox waiting for a thread is condemned already, so a bound costs time, not safety.
    // 256 threads that wait in poll() cost some MiB.
    static constexpr size_t kMaxThreads = 256;

    static StatusOr<std::unique_ptr<Killer>> Create();
    // Writes the kills that were ordered and waits for no end: what is left is condemned, and the
    // next agent's.
    ~Killer();
    Killer(const Killer&) = delete;
    Killer& operator=(const Killer&) = delete;

    void Start(KillOrder order);
    // Readable while reports wait. Borrowed.
    int event_fd() const { return event_.get(); }
    std::vector<Killed> Finished();

  private:
    Killer(Fd event, Fd halt) : event_(std::move(event)), halt_(std::move(halt)) {}
    void Work();
    void Report(Killed killed);
    bool EmptyAtLast(int cgroup_fd);  // false = this ends first

    Fd event_;
    Fd halt_;  // readable once stop_ is set: ends the waits of the threads
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<KillOrder> orders_;
    std::vector<Killed> finished_;
    std::vector<std::thread> threads_;
    size_t idle_ = 0;
    bool stop_ = false;
};

}  // namespace stockade::respond
