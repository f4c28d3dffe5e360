// What a query is charged after the refund, and the shape of names that look up addresses.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "bpf/wire/dns_budget.h"

namespace stockade::dns {

// These classes share one sum with the worst-case charges of bpf/wire/dns_budget.h.
inline constexpr uint32_t kChargeModel = 28;    // a new name by the model: 1.75 bits, its type and its labels
inline constexpr uint32_t kChargeSibling = 64;  // AAAA after A of the same name, or A after AAAA
inline constexpr uint32_t kChargeRetype =
    80;  // another type for a name seen before: the type, and which name
inline constexpr uint32_t kChargeNewZone = 32;  // that a zone is new; its name by the model

inline uint32_t ChargeRetype(uint32_t names, uint32_t type) {
    return kChargeRetype + sk_dns_charge_type(type) + sk_dns_ceil_log2(names) * SK_DNS_BIT;
}

// One bit for each type that is remembered with a name: A is 1, AAAA 2. 0 for one that is not.
uint16_t TypeBit(uint32_t type);

// Whether a query of `type` right after one of `last_type` (1 A, 2 AAAA) is its other half.
inline bool IsSibling(uint32_t last_type, uint32_t type) {
    return (last_type == 1 && type == SK_DNS_TYPE_AAAA) || (last_type == 2 && type == SK_DNS_TYPE_A);
}

// Names under in-addr.arpa and ip6.arpa.
bool IsReverseName(absl::string_view name);
// "in-addr.arpa" or "ip6.arpa", as part of the name.
absl::string_view ReverseRoot(absl::string_view name);
// 32 or 128 for the name of one address, 0 for any other name.
uint32_t ReverseBits(absl::string_view name);

}  // namespace stockade::dns
