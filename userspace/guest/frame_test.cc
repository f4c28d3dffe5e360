#include "userspace/guest/frame.h"

#include <gtest/gtest.h>

namespace stockade::guest {
namespace {

using absl::StatusCode;

TEST(FrameTest, ComesBackInAnyCut) {
    const std::string big(kMaxDataBytes, 'x');
    const std::string stream = EncodeFrame(Kind::kStdout, "hello") + EncodeFrame(Kind::kStarted, "") +
                               EncodeFrame(Kind::kStderr, big);
    for (size_t cut : {size_t{1}, size_t{3}, size_t{8}, size_t{4096}, stream.size()}) {
        FrameReader reader;
        std::vector<std::pair<Kind, std::string>> got;
        for (size_t at = 0; at < stream.size(); at += cut) {
            reader.Add(absl::string_view(stream).substr(at, cut));
            while (true) {
                auto frame = reader.Next();
                ASSERT_TRUE(frame.ok()) << frame.status();
                if (!frame->has_value()) break;
                got.emplace_back((*frame)->kind, std::string((*frame)->body));
            }
        }
        ASSERT_EQ(got.size(), 3u) << cut;
        EXPECT_EQ(got[0], std::make_pair(Kind::kStdout, std::string("hello")));
        EXPECT_EQ(got[1], std::make_pair(Kind::kStarted, std::string()));
        EXPECT_EQ(got[2], std::make_pair(Kind::kStderr, big));
        EXPECT_EQ(reader.buffered_bytes(), 0u);
    }
}

TEST(FrameTest, ATornFrameIsWaitedFor) {
    const std::string frame = EncodeFrame(Kind::kStdout, "hello");
    FrameReader reader;
    reader.Add(absl::string_view(frame).substr(0, frame.size() - 1));
    auto next = reader.Next();
    ASSERT_TRUE(next.ok());
    EXPECT_FALSE(next->has_value());
    EXPECT_EQ(reader.buffered_bytes(), frame.size() - 1);
}

TEST(FrameTest, AHugeLengthIsRefusedByItsHeader) {
    std::string header = EncodeFrame(Kind::kStdout, "").substr(0, kHeaderBytes);
    header[6] = 2;  // 128 KiB
    FrameReader reader;
    reader.Add(header);
    EXPECT_EQ(reader.Next().status().code(), StatusCode::kResourceExhausted);
    // And it stays refused, holding nothing that comes after.
    reader.Add(std::string(1 << 20, 'x'));
    EXPECT_EQ(reader.Next().status().code(), StatusCode::kResourceExhausted);
    EXPECT_LE(reader.buffered_bytes(), kHeaderBytes);
}

TEST(FrameTest, EachKindHasItsOwnBound) {
    for (int kind = 0; kind < 256; ++kind) {
        const std::optional<size_t> most = MaxBodyBytes(static_cast<uint8_t>(kind));
        std::string header("SG\x01\x01\0\0\0\0", 8);
        header[3] = static_cast<char>(kind);
        const uint32_t over = static_cast<uint32_t>(most.value_or(0)) + 1;
        for (int i = 0; i < 4; ++i) header[static_cast<size_t>(4 + i)] = static_cast<char>(over >> (8 * i));
        FrameReader reader;
        reader.Add(header);
        EXPECT_FALSE(reader.Next().ok()) << kind;
    }
}

TEST(FrameTest, OtherBytesAreRefused) {
    std::string magic = EncodeFrame(Kind::kStarted, ""), version = magic, kind = magic;
    magic[0] = 'X';
    version[2] = 2;
    kind[3] = 99;
    for (const std::string& bytes : {magic, version, kind}) {
        FrameReader reader;
        reader.Add(bytes);
        EXPECT_EQ(reader.Next().status().code(), StatusCode::kInvalidArgument);
    }
}

TEST(FrameTest, AMessageOverItsBoundIsNotEncoded) {
    RunOrder run;
    run.add_argv(std::string(kMaxRunBytes, 'x'));
    EXPECT_EQ(EncodeMessage(Kind::kRun, run).status().code(), StatusCode::kResourceExhausted);
    run.set_argv(0, "true");
    auto encoded = EncodeMessage(Kind::kRun, run);
    ASSERT_TRUE(encoded.ok());
    FrameReader reader;
    reader.Add(*encoded);
    auto frame = reader.Next();
    ASSERT_TRUE(frame.ok() && frame->has_value());
    auto again = ParseMessage<RunOrder>((*frame)->body);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->argv(0), "true");
    EXPECT_FALSE(ParseMessage<RunOrder>("\xff\xff\xff").ok());
}

}  // namespace
}  // namespace stockade::guest
