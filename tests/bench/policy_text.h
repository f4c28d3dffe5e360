// Policies of any number of patterns, as people write them.
#pragma once

#include <string>

#include "tests/bench/stage.h"

namespace stockade::bench {

struct PolicyShape {
    int patterns = 10;  // those that the worker needs included
    uint16_t port = 0;  // of the loopback, for connect
    bool record_files = false;
    uint64_t seed = 1;
};

// Named "bench". Nothing of the built-in base is added, so that the count is what it says.
std::string PolicyText(const Stage& stage, const PolicyShape& shape);

}  // namespace stockade::bench
