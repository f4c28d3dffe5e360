// An exporter with its thread and its bounded queue, so that a slow one holds up nobody.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "exporters/exporter.h"
#include "userspace/model/event.pb.h"

namespace stockade::pipeline {

class ExportQueue {
  public:
    struct Options {
        // Events that wait for the exporter, at about 2 KB: 16 MB. Beyond it telemetry is dropped.
        size_t max_events = 8192;
        // Room beyond max_events that only violations, lifecycle, lost, findings and summaries
        // may use: telemetry goes first.
        size_t reserve = 2048;
    };
    struct Counters {
        uint64_t queued = 0;
        uint64_t dropped_telemetry = 0;
        uint64_t dropped_important = 0;
        uint64_t failed = 0;  // calls of the exporter that failed
        std::string last_error;
    };
    ExportQueue(std::unique_ptr<exporters::Exporter> exporter, Options options);
    ~ExportQueue();

    // Never blocks. `important`: not plain telemetry.
    void Push(std::shared_ptr<const v1::Event> event, bool important);
    // Blocks until all that was pushed before is handed to the exporter and flushed. The
    // status is that of the last batch.
    Status Flush();
    // Delivers what waits, closes the exporter, joins the thread. Push then drops.
    Status Close();

    Counters counters() const;
    const exporters::Exporter& exporter() const { return *exporter_; }

  private:
    void Run();
    void Note(const Status& status);  // mutex_ held

    const Options options_;
    std::unique_ptr<exporters::Exporter> exporter_;  // used by thread_ alone, but counters()
    mutable std::mutex mutex_;
    std::condition_variable work_;
    std::condition_variable idle_;
    std::deque<std::shared_ptr<const v1::Event>> queue_;
    size_t in_flight_ = 0;  // taken off queue_, not yet through the exporter
    Counters counters_;
    Status flush_status_;
    Status close_status_;
    uint64_t flush_wanted_ = 0;
    uint64_t flush_done_ = 0;
    bool stop_ = false;
    bool closed_ = false;
    std::thread thread_;
};

}  // namespace stockade::pipeline
