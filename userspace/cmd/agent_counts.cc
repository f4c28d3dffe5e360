#include "userspace/cmd/agent_counts.h"

#include "userspace/base/clock.h"

namespace stockade::cmd {
namespace {

// Six sections by five locks and some room; beyond it something is wrong with the names, and Prometheus must not pay for it.
constexpr size_t kMaxRefusalRows = 64;

}  // namespace

void KernelCounts::Add(const sk_state& state) {
    for (size_t i = 0; i < SK_SECTION_COUNT; ++i) {
        allowed[i] += state.allowed[i];
        violations[i] += state.violations[i];
    }
    records += state.seq;
    lost += state.lost;
    suppressed += state.suppressed;
}

void RefusalCounts::Count(const v1::Event& event) {
    if (event.kernel_seq() == 0) return;
    handed_on_.ObserveSince(event.boot_ns(), BootNow());
    if (event.lock().empty()) return;
    // One record stands for many beyond the rate.
    const uint64_t count = event.has_repeat() ? event.repeat().count() : 1;
    std::lock_guard lock(mutex_);
    std::pair<std::string, std::string> key(event.section(), event.lock());
    if (counts_.size() >= kMaxRefusalRows && counts_.find(key) == counts_.end()) key = {"other", "other"};
    counts_[std::move(key)] += count;
}

std::map<std::pair<std::string, std::string>, uint64_t> RefusalCounts::Read() const {
    std::lock_guard lock(mutex_);
    return counts_;
}

}  // namespace stockade::cmd
