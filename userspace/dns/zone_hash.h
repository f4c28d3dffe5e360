// How the kernel knows a zone: bpf/wire/dns_zone.h.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "bpf/wire/hash.h"

namespace stockade::dns {

// Of a host name without a final dot, whatever its case; empty for the root.
uint64_t ZoneHash(const sk_hash_keys& keys, absl::string_view name);

}  // namespace stockade::dns
