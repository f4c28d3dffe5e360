// The thread between the spool and an exporter that must not lose: sends, acknowledges what is delivered,
// sends again what is not, tells what the peer will never take.
//
//   SpoolPump pump(*spool, "kafka", [&] { return exporters::MakeKafka(options); });
//   Status status = pump.Start();   // says why the exporter could not be made; it is tried again, as a peer that is away is
//   ...
//   pump.Stop(5000);                    // what is under way has so long
//
// After a failed delivery nothing is sent until all that is under way is decided, so that what comes again
// comes in order. The spool must outlive it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exporters/exporter.h"
#include "userspace/base/histogram.h"
#include "userspace/pipeline/spool.h"

namespace stockade::pipeline {

struct PumpCounters {
    uint64_t sent = 0;
    uint64_t delivered = 0;
    uint64_t rejected = 0;       // will never be taken; told as lost
    uint64_t failed = 0;         // not delivered at that time, and sent again
    uint64_t remade = 0;         // exporters that broke
    bool up = true;              // the peer does not complain
    Histogram::Counts delivery;  // from the operation to its delivery
};

class SpoolPump {
  public:
    // Under way at once: bounds what comes twice after a crash, and memory.
    static constexpr size_t kMaxUnderWay = 16384;

    using MakeFn = std::function<StatusOr<std::unique_ptr<exporters::SpooledExporter>>()>;
    SpoolPump(Spool& spool, std::string reader, MakeFn make);
    ~SpoolPump();
    Status Start();  // the thread runs, whatever it returns
    void Stop(int drain_ms);

    PumpCounters counters() const;
    // What the peer last complained of. Any thread.
    Status Health() const;

  private:
    struct UnderWay {  // enough to tell of it should it be refused
        std::string sandbox;
        uint64_t export_seq;
        std::string chain;
        uint64_t boot_ns;  // of the operation; 0 = spooled before this start, perhaps before this boot
    };
    void Run();
    Status Make();
    void BackOff();
    void Step();
    bool SendNext();
    void Poll(int timeout_ms);
    void Acknowledge();
    void Reject(const Spool::Record& record, absl::string_view cause);
    void Recover();
    void OnDelivered(uint64_t tag, const Status& status);
    void Remake();
    void Count(uint64_t PumpCounters::* counter, uint64_t by = 1);

    Spool& spool_;
    const std::string reader_;
    const MakeFn make_;
    std::thread thread_;
    std::atomic<bool> stop_{false};
    std::deque<Spool::Record> held_;  // were not taken yet
    absl::flat_hash_map<uint64_t, UnderWay> under_way_;
    std::vector<uint64_t> acks_;  // delivered, and not said to the spool yet
    bool failed_ = false;
    int backoff_ms_ = 0;
    Histogram delivery_;
    mutable std::mutex mutex_;
    std::shared_ptr<exporters::SpooledExporter> exporter_;  // replaced under mutex_; null = could not be made yet
    Status made_;                                           // of the last try
    PumpCounters counters_;
};

}  // namespace stockade::pipeline
