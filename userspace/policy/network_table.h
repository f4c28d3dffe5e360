// The network sections of a policy as entries of its hash table.
#pragma once

#include <vector>

#include "bpf/wire/policy.h"
#include "userspace/base/status.h"
#include "userspace/policy/document.h"
#include "userspace/policy/table.h"

namespace stockade::policy {

// Port ranges are expanded to one entry a port; beyond it the table would grow out of cache.
inline constexpr size_t kMaxNetworkEntries = 4096;

// Adds all entries and fills prefix[], prefixes and the SK_POLICY_HAS_UIDS flag of the head.
// kInvalidArgument, with the position, for too many prefix lengths or ports.
Status AddNetworkEntries(const ResolvedPolicy& policy, const sk_hash_keys& keys, TableBuilder& table,
                         sk_policy_head& head, std::vector<Diagnostic>& warnings);

}  // namespace stockade::policy
