#include "userspace/respond/breaker.h"

namespace stockade::respond {

bool Breaker::Allow(const std::string& policy, uint64_t now_ns) {
    if (options_.kills == 0) return true;
    const uint64_t oldest = now_ns > options_.window_ns ? now_ns - options_.window_ns : 0;
    if (kills_.find(policy) == kills_.end()) {
        std::erase_if(kills_, [&](const auto& entry) { return entry.second.back() < oldest; });
    }
    std::deque<uint64_t>& times = kills_[policy];
    while (!times.empty() && times.front() < oldest) times.pop_front();
    if (times.size() >= options_.kills) return false;
    times.push_back(now_ns);
    return true;
}

}  // namespace stockade::respond
