// Correlations: rules that fire together, often, or with many values, within a time. Bounded state.
//
// Time is that of the events. An event that is older than the newest of its group by more than the
// timespan is late: counted and left out. A group that has fired starts anew, so that a flood of N times
// the threshold gives N findings and not one per event.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/detect/rule.h"
#include "userspace/detect/view.h"

namespace stockade::detect {

// Each is a pointer in the rule and a comparison per event of its rules.
inline constexpr size_t kMaxCorrelatedRules = 64;
// Of one group: 24 bytes each. A threshold above it is an error of the rule.
inline constexpr size_t kMaxGroupEvents = 10'000;
// Of one correlation: as many sandboxes as a node has, several times over.
inline constexpr size_t kMaxGroups = 4096;
// Of all correlations together, so that no set of rules takes more than some 100 MB.
inline constexpr size_t kMaxStateEvents = 2'000'000;
inline constexpr int64_t kMaxTimespanSeconds = 30 * 86400;
// Events that a finding names; the last ones.
inline constexpr size_t kMaxEvidence = 16;

struct CorrelatorOptions {
    size_t max_groups = kMaxGroups;
    size_t max_events = kMaxStateEvents;
};

struct CorrelationHit {
    size_t rule = 0;      // place of the correlation in the list of rules
    std::string group{};  // values of group-by, joined by a comma
    std::vector<std::string> evidence{};
    uint64_t count = 0;  // what was compared, as a whole number
};

class Correlator {
  public:
    struct Counters {
        uint64_t late = 0;            // older than the window
        uint64_t ungrouped = 0;       // no value for a field of group-by, or of the condition
        uint64_t undecidable = 0;     // its value was redacted or cut
        uint64_t evicted_groups = 0;  // too many groups: the longest untouched one went
        uint64_t evicted_events = 0;  // too many in a group or in all: the oldest went
    };
    // `rules`: all of them, linked; kept. Correlations refer to others by id or name.
    explicit Correlator(const std::vector<Rule>& rules, const CorrelatorOptions& options = {});
    ~Correlator();

    // A rule (by its place) has matched the event. Appends what that completes, chained ones too.
    void OnMatch(size_t rule, EventView& view, std::vector<CorrelationHit>* hits);
    // Whether correlations want it, and whether it is a finding of its own all the same.
    bool IsBase(size_t rule) const { return !users_[rule].empty(); }
    bool IsSilent(size_t rule) const { return silent_[rule]; }

    const Counters& counters() const { return counters_; }
    size_t groups() const;
    size_t events() const { return events_; }
    // State of correlations whose documents did not change is taken over.
    void Adopt(Correlator& before);

  private:
    struct Entry;
    struct Group;
    struct State;

    void Feed(size_t correlation, size_t base, EventView& view, std::vector<CorrelationHit>* hits);
    bool KeyOf(const State& state, size_t base, EventView& view, std::string* key, std::string* shown);
    bool ValueOf(const State& state, size_t base, EventView& view, Entry* entry);
    Group& GroupOf(State& state, const std::string& key);
    bool Insert(State& state, Group& group, const Entry& entry);
    void DropOldest(Group& group);
    void EvictGroup(State& state);
    bool Fires(const State& state, const Group& group, uint64_t* count) const;

    const std::vector<Rule>& rules_;
    const CorrelatorOptions options_;
    std::vector<std::vector<size_t>> users_;  // rule -> correlations over it
    std::vector<bool> silent_;
    std::vector<std::unique_ptr<State>> states_;  // by rule; null for plain ones
    Counters counters_;
    size_t events_ = 0;
};

}  // namespace stockade::detect
