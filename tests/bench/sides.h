// Two or three states of the machine, each measured in each round, and what comes of it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/bench/stats.h"
#include "tests/bench/worker.h"

namespace stockade::bench {

// Samples of one operation in one state.
struct Series {
    std::vector<double> samples;  // all of them
    std::vector<double> medians;  // one a round
    void Add(const std::vector<double>& round);
};

// Key: operation.
using Side = std::map<Op, Series>;

// Measures each operation for `wall_ns` and keeps the samples.
Status MeasureAll(Worker& worker, const std::vector<Op>& ops, uint64_t wall_ns, Side* side);

Figure Compare(const std::string& name, const Series& baseline, const std::string& baseline_is,
               const Series& with);

}  // namespace stockade::bench
