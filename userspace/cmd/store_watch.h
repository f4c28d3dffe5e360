// What the event store counts, looked at by a thread of its own: the spool's counters stand behind a lock that is held while the disk
// writes, and the agent, which ends sandboxes, waits for no disk.
//
//   StoreWatch watch(*store);
//   ... watch.latest()->counters ...
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include "userspace/base/status.h"
#include "userspace/pipeline/event_store.h"

namespace stockade::cmd {

class StoreWatch {
  public:
    struct Seen {
        pipeline::StoreCounters counters;
        Status health;
        uint64_t boot_ns = 0;  // when it was looked at; long ago = the disk hangs
    };
    // The store must outlive it.
    explicit StoreWatch(const pipeline::EventStore& store);
    ~StoreWatch();
    StoreWatch(const StoreWatch&) = delete;
    StoreWatch& operator=(const StoreWatch&) = delete;

    // Never null, and never waits. A second old where the disk works.
    std::shared_ptr<const Seen> latest() const;

  private:
    void Run();

    const pipeline::EventStore& store_;
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    bool stop_ = false;
    std::shared_ptr<const Seen> latest_;
    std::thread thread_;
};

}  // namespace stockade::cmd
