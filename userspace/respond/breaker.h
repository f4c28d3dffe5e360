// Stops a wrong policy from killing everything at once: at most so many automatic kills per policy
// and minute. What is beyond stays condemned and refused, and asks again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace stockade::respond {

// One thread at a time.
class Breaker {
  public:
    struct Options {
        uint32_t kills = 60;  // per policy and window; 0 = no limit
        uint64_t window_ns = 60'000'000'000;
    };
    explicit Breaker(const Options& options) : options_(options) {}

    // True, and counted, when the kill may go on.
    bool Allow(const std::string& policy, uint64_t now_ns);

  private:
    Options options_;
    // Bound: one entry per policy name that killed within the window; older ones are removed
    // whenever a new name comes in.
    std::map<std::string, std::deque<uint64_t>> kills_;
};

}  // namespace stockade::respond
