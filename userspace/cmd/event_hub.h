// The thread that reads the rings, and what it hands to the agent's own thread.
//
//   EventHub hub(*sensor, options);  hub.Start();
//   watch(hub.event_fd()): for (auto& event : hub.TakeUrgent()) ...; for (auto& e : hub.TakeEvents()) ...
//   hub.Delivered();  // once what was taken is out of our hands
//
// Records stay in the rings until then, and with a store also until they are stored, so that the agent's death takes none
// along: the next agent reads them again, and clients and spool know by kernel_seq what they have.
//
// The sensor must outlive it. Start after capabilities are dropped: threads keep what they had.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/kernel/sensor.h"
#include "userspace/pipeline/event_path.h"
#include "userspace/pipeline/event_store.h"

namespace stockade::cmd {

// An event on its way to clients.
struct StreamedEvent {
    std::string sandbox;
    std::string session;
    std::string kind;
    std::string bytes;  // serialised stockade.v1.Event
};

class EventHub {
  public:
    // Events that wait for the agent's thread, in bytes. Beyond it they are dropped and counted;
    // the thread does nothing that takes long, so this is a second of a flood.
    static constexpr size_t kMaxWaitingBytes = 64 << 20;

    // `raw`, if any, sees each record before it is decoded, on the reading thread.
    using RawFn = std::function<void(std::span<const uint8_t>)>;
    // `store`, if any, must outlive it.
    static StatusOr<std::unique_ptr<EventHub>> Create(kernel::Sensor& sensor, pipeline::EventPath::Options options,
                                                      RawFn raw = {}, pipeline::EventStore* store = nullptr);
    ~EventHub();
    void Start();

    pipeline::EventPath& path() { return path_; }
    int event_fd() const { return event_.get(); }  // borrowed; readable when there is anything below
    // At most one for each sandbox that is known: the first that condemns it is enough to act.
    std::vector<v1::Event> TakeUrgent();
    std::vector<StreamedEvent> TakeEvents();
    // All that TakeEvents has returned is delivered.
    void Delivered();
    // Events are kept for TakeEvents only while somebody listens.
    void SetListening(bool listening) { listening_ = listening; }
    // Held, records stay in the rings: what comes before those who listen are back would reach nobody.
    void SetHold(bool hold);
    // Rings are looked at often only while there is a sandbox. The look that waits for one ends with the first.
    void SetBusy(bool busy) {
        if (busy_.exchange(busy) != busy && busy) sensor_.WakeRings();
    }
    // Events that TakeEvents has missed since the last call.
    uint64_t TakeDropped() { return dropped_.exchange(0); }
    // Passes whose records were released undelivered, as they filled half of a ring.
    uint64_t early_releases() const { return early_releases_; }

    // A number; once drained() has reached it, all records that were in the rings at this call
    // have gone through the path.
    uint64_t RequestDrain();
    uint64_t drained() const { return passes_done_; }

  private:
    EventHub(kernel::Sensor& sensor, pipeline::EventPath::Options options, RawFn raw, pipeline::EventStore* store,
             Fd event);
    void Read();
    bool AwaitRelease();
    void ClosePass(uint64_t pass);
    void Wake();
    void OnUrgent(const v1::Event& event);
    void OnEvent(const v1::Event& event);

    kernel::Sensor& sensor_;
    const RawFn raw_;
    pipeline::EventStore* const store_;  // not owned
    Fd event_;
    std::mutex mutex_;
    std::condition_variable released_;
    bool hold_ = false;
    bool stop_ = false;
    std::vector<v1::Event> urgent_;
    std::set<std::string> urgent_ids_;  // of the sandboxes in urgent_
    std::vector<StreamedEvent> events_;
    size_t waiting_bytes_ = 0;
    // Passes all of whose events are: in events_ or taken; taken; delivered.
    uint64_t handed_on_ = 0;
    uint64_t taken_ = 0;
    uint64_t delivered_ = 0;
    struct Unreleased {
        uint64_t pass;
        kernel::RingPosition upto;
    };
    std::deque<Unreleased> unreleased_;  // of the reading thread alone
    std::atomic<uint64_t> early_releases_{0};
    std::atomic<bool> listening_{false};
    std::atomic<bool> busy_{false};
    std::atomic<uint64_t> dropped_{0};
    std::atomic<uint64_t> passes_started_{0};
    std::atomic<uint64_t> passes_done_{0};
    std::atomic<uint64_t> wanted_{0};
    std::thread thread_;
    pipeline::EventPath path_;
};

}  // namespace stockade::cmd
