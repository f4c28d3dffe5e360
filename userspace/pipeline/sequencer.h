// Puts the records of each sandbox in the order of kernel_seq and finds the missing ones.
// Not thread-safe. See event_path.h for what it promises.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "userspace/model/event.pb.h"
#include "userspace/pipeline/kernel_numbers.h"

namespace stockade::pipeline {

// What an earlier process has had of a sandbox. Its numbers are no gap; what came behind them and is in no ring is.
struct EarlierNumbers {
    KernelNumbers seen{};
    uint64_t repeats = 0;  // missing ones that the kernel's repeat records explained
    uint64_t told = 0;     // missing ones that were told of otherwise
    uint64_t left_out_boot_ns = 0;  // until then, quiet records are among those told of
};

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
        // 16 MB. Beyond it the gap is given up early.
        size_t max_waiting = 1024;
        size_t max_waiting_all = 8192;
    };
    struct Counters {
        uint64_t reordered = 0;  // came before one of a lower number
        uint64_t late = 0;       // came after it had been given up
        uint64_t duplicate = 0;  // a number that was there already: dropped
        uint64_t early = 0;      // gaps given up because too much waited
        uint64_t suppressed = 0; // missing and explained
        uint64_t lost = 0;       // missing and not explained
    };
    // Events in order; also the `lost` ones, which have the sandbox of the others (or slot and
    // generation alone when there was none) and boot_ns, but neither wall time nor id.
    using Sink = std::function<void(v1::Event&)>;
    // sk_state.suppressed of a sandbox now. Asked before a loss is told: the repeat record of a
    // code comes with its next violation, which may be never.
    using Suppressed = std::function<uint64_t(uint32_t slot, uint32_t generation)>;

    Sequencer(Options options, Sink sink, Suppressed suppressed = {})
        : options_(options), sink_(std::move(sink)), ask_suppressed_(std::move(suppressed)) {}

    void Track(uint32_t slot, uint32_t generation, uint64_t first_seq);
    // An adopted one, before its first record. Records of `earlier` that come again are handed on.
    void Resume(uint32_t slot, uint32_t generation, const EarlierNumbers& earlier);
    void Reconcile(uint32_t slot, uint32_t generation, uint64_t suppressed);
    // Takes the event.
    void Add(uint32_t slot, uint32_t generation, std::unique_ptr<v1::Event> event);
    void OnDrained(uint64_t now_boot_ns);
    // Hands on all that waits, reports what is lost, and forgets the sandbox. `last_seq`: the
    // last number that was taken (sk_state.seq); 0 = not known, then a loss at the very end
    // cannot be seen.
    void Finish(uint32_t slot, uint32_t generation, uint64_t last_seq);

    const Counters& counters() const { return counters_; }
    size_t waiting() const { return waiting_all_; }
    size_t streams() const { return streams_.size(); }  // sandboxes that something is kept of
    // Calls of OnDrained, and up to which of them all that came before it has been handed on.
    uint64_t passes() const { return passes_; }
    uint64_t passes_handed_on() const { return waiting_since_.empty() ? passes_ : waiting_since_.begin()->first; }

  private:
    struct Waiting {
        uint64_t passes;  // before it came
        std::unique_ptr<v1::Event> event;
    };
    struct Stream {
        uint32_t slot = 0;
        uint32_t generation = 0;
        v1::Sandbox sandbox;   // of the first event, for `lost` ones
        std::string node;
        KernelNumbers seen;    // by an earlier process
        uint64_t left_out_boot_ns = 0;
        bool tracked = false;  // somebody will end it; else it goes when nothing of it waits
        uint64_t next = 0;     // the number that is due; 0 = not known yet
        uint64_t unknown_before = 0;  // it was taken to be the first: whether lower ones had come is not known
        std::map<uint64_t, Waiting> waiting;
        int gap_drains = 0;       // passes since the present gap was first seen
        uint64_t gap_since = 0;   // boot ns of the pass that saw it first; 0 = no gap
        std::map<uint64_t, uint64_t> missing;  // given up, not seen since: first -> last
        uint64_t forgotten = 0;        // ranges up to this number were dropped from `missing`
        uint64_t unexplained = 0;      // numbers given up, neither explained nor reported
        uint64_t unexplained_since = 0;  // boot ns of the oldest of them
        uint64_t unexplained_first = 0;
        uint64_t unexplained_last = 0;
        uint64_t repeats = 0;          // sum of repeat records
        uint64_t suppressed = 0;       // as sk_state says
        uint64_t explained = 0;        // used up of the greater of the two
    };
    using Key = uint64_t;
    static Key KeyOf(uint32_t slot, uint32_t generation) {
        return (uint64_t{generation} << 32) | slot;
    }

    Stream& StreamOf(uint32_t slot, uint32_t generation);
    void Wait(Stream& stream, uint64_t seq, std::unique_ptr<v1::Event> event);
    void Advance(Stream& stream);
    void GiveUp(Stream& stream);
    void Miss(Stream& stream, uint64_t first, uint64_t last);
    void Explain(Stream& stream);
    void ReportLost(Stream& stream);
    bool TakeLate(Stream& stream, uint64_t seq);

    const Options options_;
    const Sink sink_;
    const Suppressed ask_suppressed_;
    Counters counters_;
    uint64_t now_ = 0;
    uint64_t passes_ = 0;
    size_t waiting_all_ = 0;
    std::map<uint64_t, size_t> waiting_since_;  // how many wait, by Waiting::passes
    absl::flat_hash_map<Key, std::unique_ptr<Stream>> streams_;
    absl::flat_hash_set<Key> active_;  // streams with a gap or with unexplained numbers
};

}  // namespace stockade::pipeline
