// The rules at work: events in from the thread that reads the rings, findings out to the agent's own.
//
//   RuleEngine engine(options);
//   engine.Start();
//   path.AddRawObserver([&](const auto& event) { engine.Push(event); });
//   watch(engine.event_fd()): RuleEngine::Taken taken = engine.Take();
//   engine.Stop();   // before the path ends; Push is without effect from then on
//
// Threads of its own: one matches, one looks whether the files changed. Whoever pushes never waits for the rules
// but where refused operations fill their half of the queue, and then at most kMaxWaitNs.
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

#include "absl/container/flat_hash_map.h"
#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/cmd/rule_store.h"
#include "userspace/detect/detector.h"

namespace stockade::cmd {

// Since the agent began, over all sets of rules that it had.
struct RuleCounters {
    uint64_t events = 0;      // looked at
    uint64_t looked_at = 0;   // rules, one by one, in those
    uint64_t unfiltered = 0;  // events whose values had a hole
    uint64_t findings = 0;
    uint64_t undecidable = 0;
    detect::Correlator::Counters correlations;
    uint64_t missed_telemetry = 0, missed_refused = 0, untold_findings = 0;
    uint64_t loads = 0, broken_loads = 0;
    // Now:
    size_t rules = 0, waiting = 0, groups = 0, group_events = 0;
};

// What a rule found, and what it asks for.
struct RuleFinding {
    v1::Event event;             // the finding: sandbox, policy and process of the event that completed it
    bool told = true;            // false: too many like it, only the response counts
    uint64_t event_boot_ns = 0;  // of that event
    detect::ResponseAction action = detect::ResponseAction::kAlert;
    std::string once_per;
    uint64_t throttle_ns = 0;
    bool scope_group = false;
    std::map<std::string, std::string>
        deny;  // operation -> what is denied; empty where it was redacted or absent
};

class RuleEngine {
  public:
    struct Options {
        RulesConfig config;
        uint64_t look_ns = 1'000'000'000;  // between two looks at the files
    };
    // Events that wait. At about 2 KB: 32 MB each. Beyond it telemetry is left out; what was refused, and the steps
    // of a sandbox's life, have the second part for themselves.
    static constexpr size_t kMaxTelemetry = 16'384;
    static constexpr size_t kMaxKept = 16'384;
    // Of the telemetry those of one sandbox, so that others wait for its flood no longer than this takes: a tenth of a
    // second of the dearest events, a few milliseconds of usual ones.
    static constexpr size_t kMaxOfOne = 4'096;
    // How long the reader of the rings waits for room for a refused operation. The rings hold seconds.
    static constexpr uint64_t kMaxWaitNs = 20'000'000;
    // Findings of one rule and sandbox: so many at once, then one a second. The rest is counted: a sandbox must not
    // fill the spool by repeating itself.
    static constexpr uint64_t kFindingBurst = 20;
    static constexpr uint64_t kFindingEveryNs = 1'000'000'000;
    // Findings that wait for the agent's thread, which does nothing that takes long.
    static constexpr size_t kMaxFindings = 8'192;
    // Places beyond these for findings that stop something, which is not to be lost among alerts.
    static constexpr size_t kMaxStops = 1'024;

    struct Missed {
        uint64_t events = 0;    // telemetry that no rule has seen
        uint64_t refused = 0;   // refused operations that no rule has seen
        uint64_t findings = 0;  // that were not told one by one
    };
    struct Notice {
        bool broken = false;  // the rules could not be used as they are written
        std::string text;
    };
    struct Taken {
        std::vector<RuleFinding> findings;
        std::vector<Notice> notices;
        std::map<std::string, Missed> missed;  // by sandbox
        uint64_t handled = 0;  // events whose findings have been taken, as pushed() counts them
    };

    explicit RuleEngine(Options options);
    ~RuleEngine();
    Status Start();
    void Stop();

    void Push(const std::shared_ptr<const v1::Event>& event);
    uint64_t pushed() const { return pushed_; }
    // event_fd() becomes readable once so many have been handled.
    void Await(uint64_t handled);
    // Events of this sandbox that no rule has seen yet.
    size_t Waiting(const std::string& sandbox);
    int event_fd() const { return event_.get(); }  // borrowed
    Taken Take();
    // event_fd() is readable once more: not all that was taken is done.
    void Wake();
    RuleCounters counters();

  private:
    using EventPtr = std::shared_ptr<const v1::Event>;
    struct Loaded {
        std::unique_ptr<detect::Detector> detector;
        std::set<std::string> disabled;
    };
    struct Bucket {
        uint64_t full_at_ns = 0;  // when all of kFindingBurst are there again
        uint64_t held = 0;
    };

    bool Admit(const v1::Event& event, std::unique_lock<std::mutex>& lock);
    void Load(Broken broken);
    void Match();
    void Watch();
    void Handle(const v1::Event& event);
    RuleFinding MakeFinding(const v1::Event& event, const detect::DetectedFinding& found);
    void Swap(std::unique_ptr<Loaded> next);
    void CountInto(RuleCounters* out) const;
    bool Tell(const std::string& sandbox, const detect::Rule& rule, v1::Finding* finding);

    const Options options_;
    Fd event_;
    std::mutex mutex_;
    std::condition_variable more_;  // for the matching thread
    std::condition_variable room_;  // for who pushes
    std::condition_variable look_;  // for the watching thread
    bool stop_ = false;
    std::atomic<bool> idle_{false};  // there are no rules: nothing is queued
    std::deque<EventPtr> queue_;
    size_t kept_ = 0;  // of those in queue_ and in work that are no telemetry
    absl::flat_hash_map<std::string, size_t> of_one_;  // the same, by sandbox
    size_t telemetry_ = 0;
    bool stalled_ = false;  // a wait has ended without room, and none was made since
    std::unique_ptr<Loaded> next_;
    std::vector<RuleFinding> findings_;
    std::vector<Notice> notices_;
    std::map<std::string, Missed> missed_;
    std::atomic<uint64_t> pushed_{0};
    uint64_t handled_ = 0;
    uint64_t awaited_ = 0;  // 0 = nobody waits
    RuleCounters counters_;
    uint64_t started_ns_ = 0;  // boot; of earlier events an earlier agent may have told what they show
    // Of the matching thread alone.
    Loaded current_;
    RuleCounters before_;  // of the sets that were there before
    absl::flat_hash_map<std::string, Bucket> buckets_;
    // Of whoever loads: first the matching thread, then the watching one.
    std::string signature_;
    std::thread matcher_;
    std::thread watcher_;
};

}  // namespace stockade::cmd
