// Which of a sandbox's kernel_seq a client has had: the next agent reads again what a killed one had in hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace stockade::cmd {

class SeenNumbers {
  public:
    // A number takes part of a range, and suppressed ones leave holes between ranges. Beyond it the lowest is
    // forgotten: a second copy is better than a loss, and what is read again is recent.
    static constexpr size_t kMaxRanges = 1024;

    // False where it was there. 0 is no number, and always new.
    bool Add(uint64_t seq);

  private:
    std::map<uint64_t, uint64_t> ranges_;  // first -> last; they neither overlap nor touch
};

}  // namespace stockade::cmd
