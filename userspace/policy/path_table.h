// The path rules of a policy as states, names and globs of its table.
#pragma once

#include "bpf/wire/policy.h"
#include "userspace/base/status.h"
#include "userspace/policy/expand.h"
#include "userspace/policy/glob_rows.h"
#include "userspace/policy/table.h"

namespace stockade::policy {

struct PathTable {
    std::array<uint8_t, 256> classes{};
    std::vector<GlobRow> rows;
    uint32_t states = 0;
};

// Adds states and any-names to `table`; sets start_meta, anyglob_row and flags of the head.
// kResourceExhausted names the patterns that make the automaton grow.
StatusOr<PathTable> AddPathEntries(const ResolvedPolicy& policy, const std::vector<ExpandedRule>& rules,
                                   const sk_hash_keys& keys, TableBuilder& table, sk_policy_head& head);

}  // namespace stockade::policy
