// What a worker does on order. It opens nothing but what is measured: its policy allows nothing else.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <vector>

#include "tests/bench/query.h"
#include "tests/bench/worker.h"

namespace stockade::bench {

inline constexpr size_t kMaxSamples = 4096;  // beyond it a slice ends early

struct Order {
    Op op;
    uint32_t keep;  // 0 = no samples
    uint64_t wall_ns;
    uint64_t per_second;  // 0 = as many as there can be
};

struct Answer {
    int32_t error;  // errno of the first call that did not do what it should; 0 = none
    uint32_t samples;
    uint64_t calls;
};

// What the operations work on.
struct Place {
    Place(const char* file, const char* step, uint16_t closed_port, uint16_t udp_port);
    const char* file;
    const char* step;
    sockaddr_in closed;
    sockaddr_in udp;
    sockaddr_in resolver;
    mutable std::vector<Query> usual = UsualQueries();
    mutable Query fresh = NewQuery(), deepest = DeepestQuery(), longest = LongestQuery();
    mutable uint32_t asked = 0;  // queries so far
    // Made at the first use, so that they are sockets of the sandbox.
    mutable int udp_fd = -1;
    mutable int connect_fd = -1;
};

// Writes nanoseconds per call of each batch.
Answer Carry(const Place& place, const Order& order, double* samples);

}  // namespace stockade::bench
