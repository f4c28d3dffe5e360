// What the agent counts of its own doing, beside the counters of the parts it is made of.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "bpf/wire/policy.h"
#include "bpf/wire/slot.h"
#include "userspace/base/histogram.h"
#include "userspace/model/event.pb.h"

namespace stockade::cmd {

// What the kernel has counted of sandboxes.
struct KernelCounts {
    std::array<uint64_t, SK_SECTION_COUNT> allowed{};
    std::array<uint64_t, SK_SECTION_COUNT> violations{};
    uint64_t records = 0;
    uint64_t lost = 0;
    uint64_t suppressed = 0;

    void Add(const sk_state& state);
};

// Of the agent's own thread.
struct AgentCounts {
    KernelCounts ended;  // of sandboxes that are gone
    uint64_t started = 0;
    std::map<std::string, uint64_t> ends;  // by RunResult.end
    uint64_t kills_policy = 0, kills_request = 0, kills_pending = 0, kills_held_back = 0;
    Histogram kill;  // from the violation to the empty cgroup
    std::map<std::pair<std::string, std::string>, uint64_t> actions;  // (action, result): words of ours
    Histogram response;  // from the event to the end of the action that a rule asked for
    Histogram removal;  // from the end of the command to removal, and to the end of its evidence
    uint64_t removals_over_budget = 0;
    uint64_t leftovers_found = 0;
    uint64_t refused_clients = 0, refused_requests = 0;
    uint64_t client_events_lost = 0;  // the bound of those that wait for the agent's own thread
};

// Refusals by who refused, as their events tell: what the kernel's counts do not have. Any thread.
class RefusalCounts {
  public:
    void Count(const v1::Event& event);
    // (section, lock) -> how many.
    std::map<std::pair<std::string, std::string>, uint64_t> Read() const;
    // From the operation to whoever takes its event: spool and clients.
    const Histogram& handed_on() const { return handed_on_; }

  private:
    mutable std::mutex mutex_;
    std::map<std::pair<std::string, std::string>, uint64_t> counts_;  // bound: names of our tables, see Count
    Histogram handed_on_;
};

}  // namespace stockade::cmd
