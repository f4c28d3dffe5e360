// The way of an event behind the rings: decode -> put in order, find gaps -> enrich -> observers.
//
//   EventPath path(options);
//   path.AddObserver([](const v1::Event& event) { ... });
//   path.Track(ref.slot, ref.generation, /*first_seq=*/1);
//   for (;;) {
//       sensor->PollRings(timeout_ms, [&](Ring, auto record) { path.OnRecord(record); });
//       path.OnDrained(BootNow());  // the timeout must be short enough for gap_ns to matter
//   }
//   v1::Summary summary = path.Finish(ref.slot, ref.generation, &state);
//
// OnRecord and OnDrained are the ring reader's; all else may be called from any thread, also
// from an observer: what it publishes comes after the event that it is looking at.
// Order: the three rings share one sequence per sandbox, so that a record can be overtaken by
// later ones of another ring, or sit between taking its number and its place in the ring. Events
// behind a missing number wait until `drains` passes over all rings and `gap_ns` have gone by
// without it. Only then is it missing; a `repeat` record may still explain it as one that was
// suppressed. What is left after `explain_ns`, and is not in the kernel's own count of what it
// suppressed, becomes a `lost` event.
// Who must act at once (respond) takes urgent records before they are in order.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/decode/decode.h"
#include "userspace/enrich/host_names.h"
#include "userspace/enrich/process_tree.h"
#include "userspace/model/event.pb.h"
#include "userspace/pipeline/sequencer.h"
#include "userspace/pipeline/summary.h"

namespace stockade::pipeline {

// All that the parts of the path have counted.
struct PathCounters {
    std::array<uint64_t, static_cast<size_t>(decode::Reason::COUNT)> decode{};  // by decode::Reason
    Sequencer::Counters sequence;
    size_t waiting = 0;
    enrich::ProcessTree::Counters tree;
    size_t processes = 0;
    enrich::HostNames::Counters names;
    size_t names_known = 0;
    uint64_t summaries_overflowed = 0;
    std::map<std::string, uint64_t> redacted;  // by pattern
};

using Observer = std::function<void(const v1::Event&)>;

class EventPath {
  public:
    struct Options {
        std::string node{};
        uint64_t wall_offset_ns = 0;  // CLOCK_REALTIME - CLOCK_BOOTTIME
        decode::SandboxLookup lookup{};
        const decode::Redactor* redactor = nullptr;  // not owned; null: the default patterns
        Sequencer::Options sequence{};
        Sequencer::Suppressed suppressed{};  // called by whoever calls OnDrained, or Finish
        enrich::ProcessTree::Options tree{};
        enrich::HostNames::Options names{};
        SummaryTracker::Options summary{};
    };
    explicit EventPath(Options options);
    // Observers run on the thread that delivers and must not block. Before the first record.
    void AddObserver(Observer observer);
    // Kernel records that condemn a sandbox, at once: neither in order nor enriched. Before the
    // first record.
    void AddUrgentObserver(Observer observer);
    // For the rules: sees each event as it was before its secrets were replaced, just before the others see it. Nothing
    // of it may leave this process. It may keep the event. Before the first record.
    using RawObserver = std::function<void(const std::shared_ptr<const v1::Event>&)>;
    void AddRawObserver(RawObserver observer) { raw_.push_back(std::move(observer)); }

    // A sandbox was bound. `first_seq` is the number its first record must have: 1 for a new
    // one, 0 for not known (an adopted one).
    void Track(uint32_t slot, uint32_t generation, uint64_t first_seq);
    // An adopted one of which it is known what an earlier process has had of it, instead of Track.
    void Resume(uint32_t slot, uint32_t generation, const EarlierNumbers& earlier);
    // The sandbox is empty and the rings are drained: hands on what still waits, says what is
    // lost, forgets it, and returns its closing counts. `state` (of Sensor::ReadState, may be
    // null) tells of losses at the very end and fills the counts by section. Call it while
    // `lookup` still knows the sandbox.
    v1::Summary Finish(uint32_t slot, uint32_t generation, const sk_state* state);
    // What comes of a sandbox after Finish (its removal, a task that ended late) is not kept longer
    // than the sandbox. `slot` 0 = it had none.
    void Forget(const std::string& sandbox_id, uint32_t slot, uint32_t generation);

    // A DNS answer on its way to this sandbox: connections to the address have the name from here on. See HostNames.
    void LearnName(const std::string& sandbox_id, const std::string& address, const std::string& name);

    void OnRecord(std::span<const uint8_t> record);
    // All rings have been read until empty once more.
    void OnDrained(uint64_t now_boot_ns);
    // Up to which call of OnDrained, counted from 1, every record before it has reached the observers.
    uint64_t PassesHandedOn();
    // Any thread; waits for no observer.
    PathCounters counters();
    // Events of the agent's own (lifecycle, finding, agent, summary): id, node, kind, boot_ns
    // and time are filled in where they are empty, secrets replaced. Same observers.
    void Publish(v1::Event event);
    // Fills the same in, of an event that goes to one client and not along this path.
    void Complete(v1::Event* event);

  private:
    using EventPtr = std::shared_ptr<const v1::Event>;
    struct Ready {
        EventPtr event;
        EventPtr original;  // null: nothing was redacted
    };

    // mutex_ held; `original` is null where nothing was redacted.
    void Emit(v1::Event& event, std::unique_ptr<v1::Event> original);
    std::unique_ptr<v1::Event> TakeOriginal(const std::string& id);
    void Deliver();

    const std::string node_;
    const decode::SandboxLookup lookup_;
    decode::Decoder decoder_;
    std::vector<Observer> urgent_;
    std::vector<Observer> observers_;
    std::vector<RawObserver> raw_;

    // Taken before mutex_, held while observers run: recursive, as they may call back.
    std::recursive_mutex delivery_;
    bool delivering_ = false;  // under delivery_

    std::mutex mutex_;  // state of the events
    Sequencer sequencer_;
    enrich::ProcessTree tree_;
    enrich::HostNames names_;
    SummaryTracker summary_;
    // By id, of records on their way through the sequencer whose secrets were replaced outside of the lock.
    absl::flat_hash_map<std::string, std::unique_ptr<v1::Event>> originals_;
    std::deque<Ready> ready_;  // complete and in order, to be handed on
};

}  // namespace stockade::pipeline
