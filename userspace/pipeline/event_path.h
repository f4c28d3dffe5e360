// The way of an event behind the rings: decode -> put in order, find gaps -> enrich ->
// observers -> exporters.
//
//   EventPath path({.node = "n1", .lookup = ..., .wall_offset_ns = ...});
//   path.AddObserver([](const v1::Event& event) { ... });
//   path.AddExporter(std::move(exporter));
//   path.Track(ref.slot, ref.generation, /*first_seq=*/1);
//   for (;;) {
//       sensor->PollRings(timeout_ms, [&](Ring, auto record) { path.OnRecord(record); });
//       path.OnDrained(BootNow());
//   }
//
// One thread calls OnRecord and OnDrained: the ring reader's. The rest may be called from any.
// Order: the three rings share one sequence per sandbox, so that a record can be overtaken by
// later ones of another ring, or sit between taking its number and its place in the ring. Events
// behind a missing number wait until `drains` passes over all rings and `gap_ns` have gone by
// without it. Only then is it missing; a `repeat` record or Reconcile may still explain it as
// one that was suppressed, and what is left after `explain_ns` becomes a `lost` event.
// Who must act at once (respond) takes urgent records before they are in order.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

struct Counter {
    std::string stage;
    std::string reason;
    uint64_t value;
};

class EventPath {
  public:
    struct Options {
        std::string node;
        uint64_t wall_offset_ns = 0;
        decode::SandboxLookup lookup;
        decode::ArgvRedactor redact;          // unset: the default patterns
        Sequencer::Options sequence;
        enrich::ProcessTree::Options tree;
        SummaryTracker::Options summary;
        ExportQueue::Options queue;
    };
    explicit EventPath(Options options);
    // Flushes and closes the exporters.
    ~EventPath();

    // Before the first record. Observers run on the reader's thread and must not block.
    void AddObserver(Observer observer);
    // Kernel records that condemn or kill a sandbox, at once: not in order, not enriched.
    void AddUrgentObserver(Observer observer);
    // Takes the exporter and gives it a thread and a bounded queue of its own.
    void AddExporter(std::unique_ptr<exporters::Exporter> exporter);

    // A sandbox was bound. `first_seq` is the number its first record must have: 1 for a new
    // one, 0 for not known (an adopted one).
    void Track(uint32_t slot, uint32_t generation, uint64_t first_seq);
    // From sk_state: how many records were suppressed in all.
    void Reconcile(uint32_t slot, uint32_t generation, uint64_t suppressed);
    // The sandbox is empty and the rings are drained: hands on what still waits, says what is
    // lost, forgets it, and returns its closing counts (without sections: those are sk_state's).
    v1::Summary Finish(uint32_t slot, uint32_t generation);

    void OnRecord(std::span<const uint8_t> record);
    // All rings have been read until empty once more.
    void OnDrained(uint64_t now_boot_ns);
    // Events of the agent's own (lifecycle, finding, agent, summary): id, node, kind, boot_ns
    // and time are filled in where they are empty. Same observers and exporters.
    void Publish(v1::Event event);

    // Waits until all exporters have delivered what was published, or failed to.
    Status Flush();

    // (stage, reason) pairs that are not 0.
    std::vector<Counter> Counters() const;
    decode::Decoder& decoder() { return decoder_; }

  private:
    void Emit(v1::Event& event);
    void HandOn(const v1::Event& event);

    mutable std::mutex mutex_;  // everything below but the decoder and the exporters' threads
    const std::string node_;
    decode::Decoder decoder_;
    Sequencer sequencer_;
    enrich::ProcessTree tree_;
    SummaryTracker summary_;
    const ExportQueue::Options queue_options_;
    std::vector<Observer> observers_;
    std::vector<Observer> urgent_;
    std::vector<std::unique_ptr<ExportQueue>> queues_;
    uint64_t emitted_ = 0;
};

}  // namespace stockade::pipeline
