#include "userspace/base/sha256.h"

#include <gtest/gtest.h>

namespace stockade {
namespace {

TEST(Sha256, AnswersTheStandardsExamples) {
    EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameOnEveryCpu) {
    std::string text;
    for (int i = 0; i < 300; ++i) {
        EXPECT_EQ(Sha256(text), Sha256Portable(text)) << i;
        text.push_back(static_cast<char>(i * 7));
    }
}

TEST(Sha256Stream, PartsOfAnySizeGiveWhatTheWholeGives) {
    std::string text;
    for (int i = 0; i < 400; ++i) text.push_back(static_cast<char>(i * 7));
    for (size_t whole : {0u, 1u, 55u, 56u, 63u, 64u, 65u, 128u, 400u}) {
        for (size_t part : {1u, 3u, 63u, 64u, 65u, 400u}) {
            Sha256Stream stream;
            for (size_t at = 0; at < whole; at += part) stream.Add(absl::string_view(text).substr(at, std::min(part, whole - at)));
            EXPECT_EQ(stream.Hex(), Sha256Hex(absl::string_view(text).substr(0, whole))) << whole << " by " << part;
        }
    }
}

}  // namespace
}  // namespace stockade
