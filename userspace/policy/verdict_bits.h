// Verdict bits of a set of patterns that match the same path: the one place that knows how
// allows of several layers and denies combine.
#pragma once

#include <cstdint>
#include <vector>

#include "bpf/wire/policy.h"

namespace stockade::policy {

// What all rules with the same pattern say together.
struct PatternBits {
    std::vector<uint32_t> allow;  // SK_OP_* by layer
    uint32_t deny = 0;            // SK_OP_*, any layer

    void Merge(const PatternBits& other) {
        if (allow.size() < other.allow.size()) allow.resize(other.allow.size(), 0);
        for (size_t layer = 0; layer < other.allow.size(); ++layer) allow[layer] |= other.allow[layer];
        deny |= other.deny;
    }
    // In the form of a meta word: an operation is allowed if every layer allows it.
    uint32_t ToVerdict() const {
        uint32_t all = allow.empty() ? 0 : SK_OP_MASK;
        for (uint32_t layer : allow) all &= layer;
        return all | deny << SK_DENY_SHIFT;
    }
};

}  // namespace stockade::policy
