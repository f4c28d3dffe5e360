// What the lists say of zones, in the form in which the kernel looks them up: map `dns_known`.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "userspace/dns/meter.h"

namespace stockade::dns {

// (zone hash, SK_DNS_SUFFIX_* and tier). Zones of more than SK_DNS_ZONE_LABELS labels are left out: the kernel
// does not look so deep, and charges them as what lies above them.
std::vector<std::pair<uint64_t, uint32_t>> KernelZones(const Knowledge& knowledge, const sk_hash_keys& keys);

}  // namespace stockade::dns
