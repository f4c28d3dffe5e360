#include "userspace/dns/address_scope.h"

#include "bpf/wire/dns_scope.h"

namespace stockade::dns {

bool IsPublicAddress(const StubAddress& address) {
    const auto& b = address.bytes;
    const uint32_t word = uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
    if (address.family == 4) return sk_dns_public4(word);
    const uint32_t next = uint32_t{b[4]} << 24 | uint32_t{b[5]} << 16 | uint32_t{b[6]} << 8 | b[7];
    return address.family == 6 && sk_dns_public6(uint64_t{word} << 32 | next);
}

}  // namespace stockade::dns
