#include "userspace/dns/address_scope.h"

namespace stockade::dns {
namespace {

struct Prefix4 {
    uint32_t address;
    int bits;
};

// What the registry of RFC 6890 does not call globally reachable.
constexpr Prefix4 kNotPublic[] = {
    {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16}, {0xac100000, 12},
    {0xc0000000, 24}, {0xc0586300, 24}, {0xc0a80000, 16}, {0xc6120000, 15}, {0xe0000000, 3},
};

}  // namespace

bool IsPublicAddress(const StubAddress& address) {
    const auto& b = address.bytes;
    if (address.family == 4) {
        const uint32_t word = uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
        for (const Prefix4& prefix : kNotPublic) {
            if ((word ^ prefix.address) >> (32 - prefix.bits) == 0) return false;
        }
        return true;
    }
    if (address.family != 6 || (b[0] & 0xe0) != 0x20) return false;  // global unicast is 2000::/3
    const bool teredo = b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0;
    const bool six_to_four = b[0] == 0x20 && b[1] == 0x02;
    return !teredo && !six_to_four;
}

}  // namespace stockade::dns
