// The thread that brings events into the spool, and the pumps that empty it.
//
//   auto store = EventStore::Open(options);         // a disk that takes nothing is tried again, and no failure
//   path.AddObserver([&](const v1::Event& event) { store->Take(event); });
//   path.Resume(slot, generation, ...store->earlier()...)      // of adopted sandboxes
//   store->Start(ids of the sandboxes that live);   // all others are sealed
//   per pass over the rings: store->EndPass(path.PassesHandedOn()); release up to store->stored_pass()
//   store->Destroyed(sandbox);                      // after its last event
//
// A thread of its own, for a spool syncs its files: what decodes records tells of those that condemn, and must not
// wait for a disk. What it has not stored is in the rings still, so its queue is bounded by them; the agent's own
// events, which no ring holds, are bounded here.
//
// While the disk takes nothing the queue waits, the rings fill, and the kernel counts what it loses; the loss is told
// as a gap of kernel_seq. Nothing else of the agent waits for that.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "userspace/model/event.pb.h"
#include "userspace/pipeline/node_key.h"
#include "userspace/pipeline/spool.h"
#include "userspace/pipeline/spool_pump.h"

namespace stockade::pipeline {

struct StoreCounters {
    uint64_t stored = 0;
    uint64_t left_out = 0;   // by the policy's record level
    uint64_t overflowed = 0; // the agent's own events beyond the bound, while the disk takes nothing
    uint64_t refused = 0;    // what no record of the spool holds
    SpoolCounters spool;
    std::map<std::string, PumpCounters> readers;
};

class EventStore {
  public:
    // What an agent without a disk may say before it is dropped: some hundred starts and ends.
    static constexpr size_t kMaxOwnWaiting = 8192;

    struct Reader {
        std::string name;
        SpoolPump::MakeFn make;
    };
    struct Options {
        std::string key_path;  // made when it is absent
        Spool::Options spool;  // readers and key are set here
        std::vector<Reader> readers;
    };
    static std::unique_ptr<EventStore> Open(Options options);
    ~EventStore();
    void Start(std::set<std::string> alive);
    // What waits is stored, what is under way has so long. Also done by the destructor.
    void Stop(int drain_ms);

    // Of sandboxes that were open when the spool was opened; empty when it could not be. Before Start.
    const std::map<std::string, ChainBooks>& earlier() const { return earlier_; }

    // Any thread. None waits for the disk. Most events are serialised here and now, where their memory was made and goes back to.
    void Take(const v1::Event& event);
    void Destroyed(const v1::Sandbox& sandbox);
    void EndPass(uint64_t pass);
    uint64_t stored_pass() const { return stored_pass_; }
    StoreCounters counters() const;
    // OK, or why nothing is stored.
    Status Health() const;

  private:
    struct Item {
        bool own() const { return event != nullptr && event->kernel_seq() == 0; }

        std::unique_ptr<v1::Event> event;  // null: it is all in bytes
        std::string bytes;
        bool seal = false;  // of event's sandbox
    };
    struct LeftOut {
        v1::Sandbox sandbox;
        std::string node;
        uint64_t count = 0;
        uint64_t boot_ns = 0;  // of the first
        uint64_t last_boot_ns = 0;
    };

    explicit EventStore(Options options) : options_(std::move(options)) {}
    Status OpenSpool();
    void StartPumps();
    void SealGone();
    void Put(Item item);
    void Run();
    bool Step(uint64_t pass);
    Status Store();
    Status StoreSome();
    Status StoreOne(Item& item);
    Status StoreBytes(const Item& item);
    Status Append(v1::Event* event);
    void Sync();
    Status TellLeftOut(const std::string& sandbox);
    Status TellAllLeftOut();
    Status TellOverflow();
    void Told(const Status& status);
    void WatchPumps();

    const Options options_;
    std::unique_ptr<NodeKey> key_;
    std::map<std::string, ChainBooks> earlier_;
    std::set<std::string> alive_;
    std::thread thread_;
    std::thread syncer_;  // whoever stores waits for no disk but for room in its cache

    mutable std::mutex mutex_;
    std::condition_variable wake_;     // of the thread that stores
    std::condition_variable stopped_;  // of the syncer
    std::deque<Item> queue_;
    uint64_t pass_ = 0;
    bool idle_ = true;  // the thread has nothing in hand
    bool stop_ = false;
    size_t own_waiting_ = 0;
    uint64_t overflow_to_tell_ = 0;
    Status health_;
    Status synced_;  // the last sync
    StoreCounters counters_;
    std::shared_ptr<Spool> spool_;  // set once, under mutex_
    std::vector<std::unique_ptr<SpoolPump>> pumps_;  // likewise, in the order of options_.readers
    std::atomic<uint64_t> stored_pass_{0};

    // Of the thread.
    std::deque<Item> hand_;
    std::map<std::string, LeftOut> left_out_;  // by sandbox; empty after each pass
    uint64_t opened_ns_ = 0;  // last try

    std::vector<bool> complained_;  // by pump; of the syncer, once there are pumps
};

}  // namespace stockade::pipeline
