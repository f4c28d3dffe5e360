#include "userspace/base/crc32c.h"

#include <array>
#include <cstring>

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

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
    uint32_t crc = ~0u;
    const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
    size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        uint32_t group[8];
        for (size_t i = 0; i < 8; ++i) group[i] = at[i] ^ (i < 4 ? (crc >> (8 * i)) & 0xff : 0);
        crc = 0;
        for (size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][group[i]];
    }
    for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xff];
    return ~crc;
}

}  // namespace stockade
