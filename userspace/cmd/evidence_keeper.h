// Writes the evidence of sandboxes to disk, on a thread of its own, while they run: at the end little is left to do.
//
//   keeper->Open(id, {{"policy.txt", text}});  keeper->OnEvent(event) ...  keeper->Finish(id, {{"result.json", json}});
//   watch(keeper->event_fd()): for (auto& kept : keeper->TakeKept()) ...
//
// The queue is bounded: past kMaxWaitingBytes events are dropped, counted, and told in the manifest; what the agent itself has to say is
// not. Any thread may call OnEvent; the rest is the agent's own thread's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/cmd/config_evidence.h"
#include "userspace/cmd/evidence_hook.h"
#include "userspace/model/event.pb.h"
#include "userspace/sandbox/evidence_folder.h"

namespace stockade::cmd {

class EvidenceKeeper {
  public:
    // Events on their way to the disk: some seconds of a flood.
    static constexpr size_t kMaxWaitingBytes = 32 << 20;
    using Files = std::map<std::string, std::string>;

    struct Kept {
        std::string id;
        std::string path;
        StatusOr<std::string> manifest_sha256 = absl::UnknownError("");
        uint64_t boot_ns = 0;
    };
    struct Counters {
        uint64_t kept = 0, failed = 0, events_dropped = 0, removed = 0, hooks_failed = 0;
        uint64_t folders = 0, bytes = 0;  // on disk, when it was last looked
    };

    // Makes the directory (0700) where it is missing. `alive`: of sandboxes that were taken over; all other unfinished folders are closed.
    static StatusOr<std::unique_ptr<EvidenceKeeper>> Create(const EvidenceConfig& config, const std::vector<std::string>& alive);
    ~EvidenceKeeper();

    // Opens the folder, or goes on with the one that an earlier agent had begun.
    void Open(const std::string& id, Files files);
    void OnEvent(const v1::Event& event);
    void Finish(const std::string& id, Files files);
    int event_fd() const { return event_.get(); }  // borrowed; readable when TakeKept has something
    std::vector<Kept> TakeKept();
    Counters counters();

  private:
    struct Order {
        enum class Kind { kOpen, kEvent, kFinish } kind = Kind::kEvent;
        std::string id;
        Files files;
        uint64_t events_dropped = 0;  // kFinish
    };
    EvidenceKeeper(const EvidenceConfig& config, Fd event) : config_(config), event_(std::move(event)), hook_(config.hook) {}
    void Put(Order order);
    void Write();
    void Do(const Order& order);
    void Close(const Order& order);
    void Sweep(bool now);

    const EvidenceConfig config_;
    Fd event_;
    EvidenceHook hook_;                                                            // of the writing thread, as are these
    std::map<std::string, std::unique_ptr<sandbox::EvidenceFolder>> folders_;      // by sandbox
    uint64_t swept_ns_ = 0;
    std::mutex mutex_;  // of all below
    std::condition_variable wake_;
    bool stop_ = false;
    std::deque<Order> orders_;
    size_t waiting_bytes_ = 0;               // of events
    std::map<std::string, uint64_t> open_;   // events dropped, by sandbox
    std::vector<Kept> kept_;
    Counters counters_;
    std::thread thread_;
};

}  // namespace stockade::cmd
