// Puts the records of each sandbox in the order of kernel_seq and finds the missing ones.
// Not thread-safe. See event_path.h for what it promises.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/event.pb.h"

namespace stockade::pipeline {

class Sequencer {
  public:
    struct Options {
        // A number is taken before the reserve; a task preempted in between is back after some
        // ms on a loaded machine. Both must have passed before a record is given up.
        int drains = 2;
        uint64_t gap_ns = 50'000'000;
        // The kernel's rate window is a second, its repeat record comes after it.
        uint64_t explain_ns = 2'000'000'000;
        // Events that wait behind a gap, of one sandbox and of all. At about 2 KB: 2 MB and
        // 32 MB. Beyond it the gap is given up early.
        size_t max_waiting = 1024;
        size_t max_waiting_all = 16384;
    };
    struct Counters {
        uint64_t reordered = 0;  // came before one of a lower number
        uint64_t late = 0;       // came after it had been given up
        uint64_t duplicate = 0;  // a number that was there already: dropped
        uint64_t early = 0;      // gaps given up because too much waited
        uint64_t suppressed = 0; // missing and explained
        uint64_t lost = 0;       // missing and not explained
    };
    // Events in order; also the `lost` ones, with slot and generation in event.sandbox and the
    // rest of the envelope copied from the sandbox's last event.
    using Sink = std::function<void(v1::Event&)>;

    Sequencer(Options options, Sink sink) : options_(options), sink_(std::move(sink)) {}

    void Track(uint32_t slot, uint32_t generation, uint64_t first_seq);
    void Reconcile(uint32_t slot, uint32_t generation, uint64_t suppressed);
    // Takes the event.
    void Add(uint32_t slot, uint32_t generation, std::unique_ptr<v1::Event> event);
    void OnDrained(uint64_t now_boot_ns);
    // Hands on all that waits, reports what is lost, and forgets the sandbox.
    void Finish(uint32_t slot, uint32_t generation);

    const Counters& counters() const { return counters_; }
    size_t waiting() const { return waiting_all_; }

  private:
    struct Stream {
        uint64_t next = 0;      // the number that is due; 0 = not known yet
        std::map<uint64_t, std::unique_ptr<v1::Event>> waiting;
        int gap_drains = 0;       // passes since the present gap was first seen
        uint64_t gap_since = 0;   // boot ns of the first pass that saw it; 0 = no gap
        // Numbers given up and not seen since, by ranges [first, last]; bounded.
        std::map<uint64_t, uint64_t> missing;
        uint64_t missing_count = 0;
        uint64_t missing_since = 0;    // boot ns of the oldest unexplained one; 0 = none
        uint64_t reported = 0;         // of suppressed and lost: no longer in missing_count
        uint64_t repeats = 0;          // sum of repeat records
        uint64_t suppressed = 0;       // as sk_state says
        uint64_t explained = 0;        // used up of max(repeats, suppressed)
        v1::Event last;                // envelope for a lost event
    };
    using Key = uint64_t;
    static Key KeyOf(uint32_t slot, uint32_t generation) {
        return (uint64_t{generation} << 32) | slot;
    }

    void Deliver(Stream& stream, std::unique_ptr<v1::Event> event);
    void Advance(Stream& stream);
    void GiveUp(Stream& stream);
    void Explain(Stream& stream);
    void ReportLost(Stream& stream);
    bool TakeLate(Stream& stream, uint64_t seq);

    const Options options_;
    const Sink sink_;
    Counters counters_;
    uint64_t now_ = 0;
    size_t waiting_all_ = 0;
    absl::flat_hash_map<Key, std::unique_ptr<Stream>> streams_;
};

}  // namespace stockade::pipeline
