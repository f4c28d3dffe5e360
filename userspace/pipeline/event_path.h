// The way of an event behind the rings: decode -> put in order, find gaps -> enrich ->
// observers -> exporters.
//
//   EventPath path(options);
//   path.AddExporter(std::move(exporter));
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

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "exporters/exporter.h"
#include "userspace/decode/decode.h"
#include "userspace/enrich/process_tree.h"
#include "userspace/model/event.pb.h"
#include "userspace/pipeline/export_queue.h"
#include "userspace/pipeline/sequencer.h"
#include "userspace/pipeline/summary.h"

namespace stockade::pipeline {

using Observer = std::function<void(const v1::Event&)>;
using Filter = std::function<bool(const v1::Event&)>;

struct Counter {
    std::string stage;
    std::string reason;
    uint64_t value;
};

class EventPath {
  public:
    struct Options {
        std::string node{};
        uint64_t wall_offset_ns = 0;  // CLOCK_REALTIME - CLOCK_BOOTTIME
        decode::SandboxLookup lookup{};
        decode::ArgvRedactor redact{};  // unset: the default patterns
        Sequencer::Options sequence{};
        Sequencer::Suppressed suppressed{};  // called by whoever calls OnDrained, or Finish
        enrich::ProcessTree::Options tree{};
        SummaryTracker::Options summary{};
        ExportQueue::Options queue{};
    };
    explicit EventPath(Options options);
    // Flushes and closes the exporters. No call may be running.
    ~EventPath();

    // Observers run on the thread that delivers and must not block. Not called any more once
    // RemoveObserver has returned.
    uint64_t AddObserver(Observer observer);
    void RemoveObserver(uint64_t id);
    // Kernel records that condemn a sandbox, at once: neither in order nor enriched. Before the
    // first record.
    void AddUrgentObserver(Observer observer);
    // Takes the exporter and gives it a thread and a bounded queue of its own. With a filter it
    // gets only the events for which that is true, e.g. those of one sandbox.
    uint64_t AddExporter(std::unique_ptr<exporters::Exporter> exporter, Filter filter = {});
    // Delivers what it was given, closes it. The status is that of its last delivery. Its
    // counters go with it: read them before (Counters).
    Status RemoveExporter(uint64_t id);

    // A sandbox was bound. `first_seq` is the number its first record must have: 1 for a new
    // one, 0 for not known (an adopted one).
    void Track(uint32_t slot, uint32_t generation, uint64_t first_seq);
    // The sandbox is empty and the rings are drained: hands on what still waits, says what is
    // lost, forgets it, and returns its closing counts. `state` (of Sensor::ReadState, may be
    // null) tells of losses at the very end and fills the counts by section. Call it while
    // `lookup` still knows the sandbox.
    v1::Summary Finish(uint32_t slot, uint32_t generation, const sk_state* state);
    // What comes of a sandbox after Finish (its removal, a task that ended late) is not kept longer
    // than the sandbox. `slot` 0 = it had none.
    void Forget(const std::string& sandbox_id, uint32_t slot, uint32_t generation);
    // The counts up to now.
    v1::Summary Peek(const std::string& sandbox_id) const;

    void OnRecord(std::span<const uint8_t> record);
    // All rings have been read until empty once more.
    void OnDrained(uint64_t now_boot_ns);
    // Events of the agent's own (lifecycle, finding, agent, summary): id, node, kind, boot_ns
    // and time are filled in where they are empty. Same observers and exporters.
    void Publish(v1::Event event);
    // Fills the same in, of an event that goes to one client and not along this path.
    void Complete(v1::Event* event);

    // Waits until all exporters have delivered what came before, or failed to.
    Status Flush();

    // (stage, reason) pairs that are not 0.
    std::vector<Counter> Counters() const;
    decode::Decoder& decoder() { return decoder_; }

  private:
    using EventPtr = std::shared_ptr<const v1::Event>;
    struct Export {
        std::unique_ptr<ExportQueue> queue;
        Filter filter;
    };

    void Emit(v1::Event& event);  // mutex_ held
    void Deliver();
    void HandOn(const EventPtr& event);

    const std::string node_;
    const decode::SandboxLookup lookup_;
    decode::Decoder decoder_;
    const ExportQueue::Options queue_options_;
    std::vector<Observer> urgent_;

    // Taken before mutex_, held while observers run: recursive, as they may call back.
    std::recursive_mutex delivery_;
    bool delivering_ = false;  // under delivery_
    std::map<uint64_t, std::shared_ptr<const Observer>> observers_;  // under delivery_
    std::map<uint64_t, std::shared_ptr<Export>> exports_;            // under delivery_ and mutex_

    mutable std::mutex mutex_;  // state of the events
    Sequencer sequencer_;
    enrich::ProcessTree tree_;
    SummaryTracker summary_;
    std::deque<EventPtr> ready_;  // complete and in order, to be handed on
    uint64_t next_id_ = 1;
};

}  // namespace stockade::pipeline
