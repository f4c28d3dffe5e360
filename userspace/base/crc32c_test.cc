#include "userspace/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace stockade {
namespace {

// RFC 3720, appendix B.4, and the check value of the catalogue of parametrised CRC algorithms.
TEST(Crc32c, IsThatOfTheRfc) {
    EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
    EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
    EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
    EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32c, IsTheSameOnEveryCpu) {
    std::string text;
    for (int i = 0; i < 300; ++i) {
        EXPECT_EQ(Crc32c(text), Crc32cByTables(text)) << i;
        text.push_back(static_cast<char>(i * 7));
    }
}

TEST(Crc32c, EveryFlippedBitShows) {
    const std::string text = "a record of some thirty-odd bytes in a spool";
    for (size_t bit = 0; bit < text.size() * 8; ++bit) {
        std::string flipped = text;
        flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
        EXPECT_NE(Crc32c(flipped), Crc32c(text)) << bit;
    }
}

}  // namespace
}  // namespace stockade
