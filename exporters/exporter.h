// Where events go. An exporter is called by one thread. It may block, it never throws, and it counts
// what it could not deliver.
//
//   SK_ASSIGN_OR_RETURN(auto exporter, MakeExporter("jsonl", {{"path", "events.jsonl"}}));
//   Status status = exporter->Export(event);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/model/event.pb.h"
#include "userspace/model/event_bytes.h"

namespace stockade::exporters {

struct ExporterCounters {
    uint64_t accepted = 0;   // events taken by Export
    uint64_t delivered = 0;  // events that are where they belong
    uint64_t bytes = 0;      // delivered
    std::map<std::string, uint64_t> dropped;  // by reason: "closed pipe", "disk full" ...
};

// Options of an exporter as the configuration gives them.
using ExporterOptions = std::map<std::string, std::string>;

class Exporter {
  public:
    // Flushes nothing: call Close first and look at its status.
    virtual ~Exporter() = default;
    // For counters and messages: "jsonl:/var/log/events.jsonl".
    virtual std::string name() const = 0;
    // Takes the event; it may be delivered later. A failure is that of delivery: the event, or
    // earlier ones, were dropped and counted. kUnavailable: try again with the next event.
    // kFailedPrecondition: the peer is gone for good.
    virtual Status Export(const v1::Event& event) = 0;
    // Delivers what was taken so far.
    virtual Status Flush() = 0;
    // Flush, then let go of the peer. Export after it fails.
    virtual Status Close() = 0;
    // Any thread.
    virtual ExporterCounters counters() const = 0;
};

// An exporter that says later what became of an event, for what must not be lost: pipeline/spool_pump.h
// feeds it from the spool and acknowledges what it delivered. One thread calls it.
class SpooledExporter {
  public:
    // Called by Poll and Close, once for each event that Send took. kInvalidArgument: the peer will never take
    // it. kAborted: not delivered, nor will it be by this exporter. Other failures: it may be sent again.
    using Delivered = std::function<void(uint64_t tag, const Status& status)>;

    virtual ~SpooledExporter() = default;
    virtual std::string name() const = 0;
    // Before the first Send.
    virtual void OnDelivered(Delivered delivered) = 0;
    // The event as the spool has it: what needs no message of it makes none. It is gone when Send returns.
    // `again`: it may have been delivered before. kUnavailable: enough is under way, Poll first.
    // kInvalidArgument: never. kFailedPrecondition: this exporter is broken; make another.
    virtual Status Send(uint64_t tag, const model::EventBytes& event, bool again) = 0;
    virtual void Poll(int timeout_ms) = 0;
    // What the peer last complained of; OK while it does what it should. Any thread.
    virtual Status Health() const = 0;
    // Waits so long for what is under way, then lets go of it and of the peer.
    virtual void Close(int timeout_ms) = 0;
    virtual ExporterCounters counters() const = 0;
};

}  // namespace stockade::exporters
