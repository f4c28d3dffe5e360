// How long something took, counted by ranges. Any thread observes, any thread reads; neither waits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stockade {

class Histogram {
  public:
    // Upper bounds in ns, the same for all, so that they can be laid over each other: from a verdict's neighbourhood to a
    // broker that was away for five minutes.
    static constexpr std::array<uint64_t, 17> kBounds = {
        100'000,       250'000,       1'000'000,      2'500'000,      5'000'000,      10'000'000,
        25'000'000,    50'000'000,    100'000'000,    250'000'000,    500'000'000,    1'000'000'000,
        2'500'000'000, 5'000'000'000, 10'000'000'000, 60'000'000'000, 300'000'000'000};

    struct Counts {
        std::array<uint64_t, kBounds.size() + 1> buckets{};  // not cumulative; the last is beyond all bounds
        uint64_t sum_ns = 0;

        uint64_t count() const {
            uint64_t all = 0;
            for (const uint64_t bucket : buckets) all += bucket;
            return all;
        }
    };

    void Observe(uint64_t ns) {
        size_t i = 0;
        while (i < kBounds.size() && ns > kBounds[i]) ++i;
        buckets_[i].fetch_add(1, std::memory_order_relaxed);
        sum_ns_.fetch_add(ns, std::memory_order_relaxed);
    }
    // Between two boot times; nothing where they are not in order (one is of an earlier boot) or the first is 0.
    void ObserveSince(uint64_t from_ns, uint64_t to_ns) {
        if (from_ns != 0 && from_ns <= to_ns) Observe(to_ns - from_ns);
    }

    Counts Read() const {
        Counts counts;
        for (size_t i = 0; i < buckets_.size(); ++i)
            counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
        counts.sum_ns = sum_ns_.load(std::memory_order_relaxed);
        return counts;
    }

  private:
    std::array<std::atomic<uint64_t>, kBounds.size() + 1> buckets_{};
    std::atomic<uint64_t> sum_ns_{0};
};

}  // namespace stockade
