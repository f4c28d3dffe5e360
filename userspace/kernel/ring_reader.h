// The three rings, read by one thread.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/kernel/sensor.h"

namespace stockade::kernel {

// Hands each record on as it lies in the ring, once. Its place stays the ring's until it is released:
// what a reader had in hand when it died, the next one reads again.
class RingReader {
  public:
    // Map descriptors are borrowed, needed inside the call and in Poll; the order is that of Ring.
    static StatusOr<std::unique_ptr<RingReader>> Create(const std::array<int, kRings>& maps);
    ~RingReader();

    // As Sensor::PollRings. The kernel wakes a reader only where nothing waits to be released: elsewhere
    // new records are looked for each kUnreleasedPollMs.
    StatusOr<int> Poll(int timeout_ms, const Sensor::RecordFn& fn);
    // As Sensor::WakeRings.
    void Wake();
    RingPosition Handed() const;
    // Never beyond what was handed on, never back.
    void Release(const RingPosition& upto);
    // True once what is not released fills half of a ring: the rest is what a burst finds.
    bool HalfHeld() const;

    static constexpr int kUnreleasedPollMs = 1;

  private:
    struct Source {
        Ring ring;
        int fd = -1;                    // not owned
        unsigned long* consumer = nullptr;  // the page that we write
        const unsigned long* producer = nullptr;
        const uint8_t* data = nullptr;  // mapped twice in a row, so that no record is cut
        uint64_t bytes = 0;             // a power of 2
        uint64_t handed = 0;            // all before it was handed on
        uint64_t released = 0;          // what *consumer says
    };
    RingReader() = default;
    static StatusOr<Source> Map(Ring ring, int fd);
    StatusOr<int> Read(Source& source, const Sensor::RecordFn& fn);

    std::array<Source, kRings> sources_;
    Fd wake_;  // an eventfd
};

}  // namespace stockade::kernel
