#include "userspace/dns/zone_hash.h"

#include <algorithm>
#include <cstring>

#include "bpf/wire/dns_zone.h"

namespace stockade::dns {

uint64_t ZoneHash(const sk_hash_keys& keys, absl::string_view name) {
    uint64_t hash = sk_dns_zone_start(&keys);
    while (!name.empty()) {
        const size_t dot = name.rfind('.');
        const absl::string_view label = name.substr(dot == name.npos ? 0 : dot + 1);
        uint8_t bytes[SK_DNS_LABEL_BYTES + 1] = {};
        const size_t len = std::min<size_t>(label.size(), SK_DNS_LABEL_BYTES);
        std::memcpy(bytes, label.data(), len);
        hash = sk_dns_zone_label(&keys, hash, bytes, static_cast<uint32_t>(len));
        name = dot == name.npos ? absl::string_view() : name.substr(0, dot);
    }
    return hash;
}

}  // namespace stockade::dns
