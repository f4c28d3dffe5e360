#include "userspace/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace stockade {
namespace {

// The polynomial 0x1EDC6F41 with its bits reversed (RFC 3720, appendix B.4).
constexpr uint32_t kPolynomial = 0x82f63b78;

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// Table k: the effect of a byte that stands k bytes before the end of a group of eight.
constexpr Tables MakeTables() {
    Tables tables{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
        tables[0][i] = crc;
    }
    for (size_t k = 1; k < 8; ++k) {
        for (size_t i = 0; i < 256; ++i)
            tables[k][i] = (tables[k - 1][i] >> 8) ^ tables[0][tables[k - 1][i] & 0xff];
    }
    return tables;
}

constexpr Tables kTables = MakeTables();

// By tables, on any CPU. Takes and gives the register as it is between bytes.
uint32_t ByTables(uint32_t crc, absl::string_view bytes) {
    const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
    size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        uint32_t group[8];
        for (size_t i = 0; i < 8; ++i) group[i] = at[i] ^ (i < 4 ? (crc >> (8 * i)) & 0xff : 0);
        crc = 0;
        for (size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][group[i]];
    }
    for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xff];
    return crc;
}

#if defined(__x86_64__)
// SSE 4.2 has an instruction of this very polynomial.
__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc, absl::string_view bytes) {
    const char* at = bytes.data();
    size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t group;
        std::memcpy(&group, at, sizeof(group));
        crc = static_cast<uint32_t>(_mm_crc32_u64(crc, group));
    }
    for (; left > 0; --left, ++at) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*at));
    return crc;
}

bool HasInstruction() {
    static const bool has = __builtin_cpu_supports("sse4.2");
    return has;
}
#else
bool HasInstruction() { return false; }
uint32_t ByInstruction(uint32_t crc, absl::string_view bytes) { return ByTables(crc, bytes); }
#endif

}  // namespace

uint32_t Crc32c(absl::string_view bytes) { return ~(HasInstruction() ? ByInstruction(~0u, bytes) : ByTables(~0u, bytes)); }

uint32_t Crc32cByTables(absl::string_view bytes) { return ~ByTables(~0u, bytes); }

}  // namespace stockade
