// Verdicts on the host, from the cells alone, step by step as the kernel takes them. What
// `policy explain` and `policy test` answer is therefore what the kernel would.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bpf/wire/hash.h"
#include "bpf/wire/policy.h"

namespace stockade::policy {

// Cells and the keys that they were compiled with; both borrowed.
struct PolicyView {
    absl::Span<const sk_cell> cells;
    const sk_hash_keys* keys = nullptr;

    const sk_policy_head& head() const { return cells[SK_HEAD_CELL].head; }
};

struct PathVerdict {
    uint32_t bits = 0;        // allow and deny bits, as in a meta word
    bool deny_below = false;  // SK_META_DENY_BELOW of the state reached
    bool unknown = false;     // SK_PATH_SLOTS components or more, or a damaged table: denied
    bool Allows(uint32_t op) const {
        return !unknown && (bits & op) != 0 && ((bits >> SK_DENY_SHIFT) & op) == 0;
    }
};

// `path` is absolute and resolved; mount crossings, which take slots in the kernel, are not
// known here.
PathVerdict EvaluatePath(const PolicyView& policy, absl::string_view path);

// An address as sk_net_key() takes it: IPv4 as hi = 0, lo = address in host order.
struct Endpoint {
    uint8_t family = 4;
    uint64_t hi = 0;
    uint64_t lo = 0;
    uint16_t port = 0;
};
bool IsLoopback(const Endpoint& endpoint);

// A listed uid has the rules of its own list instead of the general ones; loopback ports hold
// for every uid.
bool EvaluateConnect(const PolicyView& policy, uint32_t uid, const Endpoint& endpoint);
bool EvaluateBind(const PolicyView& policy, const Endpoint& endpoint);
// The table of exact strings: all that `signal` has, and what abstract names have under both.
bool EvaluateUnixName(const PolicyView& policy, bool abstract, absl::string_view name);

}  // namespace stockade::policy
