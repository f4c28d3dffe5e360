// Names, budgets and what a policy means for the DNS of its sandboxes.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

// In lower case, without a final dot.
bool IsHostName(absl::string_view name);
// A host name, or "*." and one.
bool IsDnsName(absl::string_view name);
// "*.pypi.org" covers what is below pypi.org, at any depth, and not pypi.org itself.
bool CoversName(absl::string_view pattern, absl::string_view name);
// A zone that a budget can be granted to: a host name below a top-level domain, of at most SK_DNS_ZONE_LABELS labels.
bool IsDnsZone(absl::string_view name);
// "256B", "4KiB", "none"; at most 1 GiB.
StatusOr<uint32_t> ParseDnsBudget(absl::string_view text);

// The policy asks for DNS: by `dns:`, or by rules with a name, for which names have to be resolved.
bool NeedsDns(const ResolvedPolicy& policy);
sk_dns_mode DnsModeOf(const ResolvedPolicy& policy);
// The most specific grant that covers the name, or null. Lives as long as the policy.
const DnsGrant* DnsGrantOf(const ResolvedPolicy& policy, absl::string_view name);
// dns.allow, and the names of network rules. Sorted, each once.
std::vector<std::string> ResolvableNames(const ResolvedPolicy& policy);

}  // namespace stockade::policy
