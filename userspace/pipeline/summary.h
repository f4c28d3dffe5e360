// Closing counts of each sandbox, as its events go by: what `stockade run` prints at the end and
// `--result` holds. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bpf/wire/slot.h"
#include "userspace/model/event.pb.h"

namespace stockade::pipeline {

class SummaryTracker {
  public:
    struct Options {
        // Distinct (code, object, lock) kept for each sandbox: what a person reads at the end.
        // One that killed takes the place of one that did not: it may be the reason of the end.
        size_t max_refusals = 32;
        // Distinct findings, by rule and severity.
        size_t max_findings = 32;
        // Sandboxes at once: slots, and as many that have ended and were not yet taken.
        size_t max_sandboxes = 2 * SK_MAX_SLOTS;
    };
    explicit SummaryTracker(Options options) : options_(options) {}

    void Add(const v1::Event& event);
    // Hands out the counts and forgets the sandbox.
    v1::Summary Take(const std::string& sandbox_id);
    uint64_t overflowed() const { return overflowed_; }

  private:
    struct Entry {
        std::map<std::string, uint64_t> kinds;
        std::map<std::tuple<std::string, std::string, std::string>, size_t> index;
        std::vector<v1::Refusal> refusals;
        std::vector<v1::FindingCount> findings;
        uint64_t findings_omitted = 0;
        uint64_t omitted = 0;
        uint64_t unrecorded = 0;
        uint64_t lost = 0;
        uint64_t suppressed = 0;
    };
    void AddRefusal(Entry& entry, const v1::Event& event);
    void AddFinding(Entry& entry, const v1::Event& event);
    static void AddAction(Entry& entry, const v1::Action& action);
    // The place of a row that killed nobody, taken from it; the size of `refusals` when all did.
    static size_t TakePlace(Entry& entry);
    static v1::Summary Make(const Entry& entry);

    const Options options_;
    uint64_t overflowed_ = 0;
    absl::flat_hash_map<std::string, std::unique_ptr<Entry>> entries_;
};

// Fills sections from the kernel's counters, which also count what made no event: how many refusals
// there were beyond those of `summary`.
void AddSections(const sk_state& state, v1::Summary* summary);

// What is printed on standard error at the end: one line for each refusal, with the policy line
// that would allow it, one for each finding, then what was left out and lost. Empty when there is nothing of these.
std::string SummaryText(const v1::Summary& summary);

}  // namespace stockade::pipeline
