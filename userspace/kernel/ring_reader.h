// The three rings, read by one thread.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "userspace/kernel/sensor.h"

struct ring_buffer;

namespace stockade::kernel {

// Hands each record on as it lies in the ring; its position is released when the callback is back.
// Poll may be called from one thread that is not the one of the other Sensor calls.
class RingReader {
  public:
    // Map descriptors are borrowed and duplicated by libbpf's mapping.
    static StatusOr<std::unique_ptr<RingReader>> Create(const std::vector<std::pair<Ring, int>>& maps);
    ~RingReader();

    StatusOr<int> Poll(int timeout_ms, const Sensor::RecordFn& fn);

  private:
    struct Source {
        RingReader* reader;
        Ring ring;
    };
    static int OnRecord(void* source, void* data, size_t size);

    ring_buffer* rings_ = nullptr;
    std::vector<std::unique_ptr<Source>> sources_;
    const Sensor::RecordFn* fn_ = nullptr;  // not owned; set inside Poll only
};

}  // namespace stockade::kernel
