#include "userspace/dns/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "userspace/dns/knowledge.h"
#include "userspace/dns/packet.h"
#include "userspace/dns/replay.h"
#include "userspace/dns/tcp_stream.h"
#include "userspace/dns/zeek_log.h"

namespace stockade::dns {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Word(uint32_t value, bool big) {
    if (big) value = __builtin_bswap32(value);
    return std::string(reinterpret_cast<const char*>(&value), 4);
}
std::string Half(uint16_t value, bool big) {
    if (big) value = __builtin_bswap16(value);
    return std::string(reinterpret_cast<const char*>(&value), 2);
}

std::string Pcap(bool big, uint32_t magic, const std::string& packet, uint32_t fraction) {
    const auto w = [big](uint32_t v) { return Word(v, big); };
    return absl::StrCat(w(magic), Half(2, big), Half(4, big), w(0), w(0), w(65535), w(101), w(7), w(fraction),
                        w(static_cast<uint32_t>(packet.size())), w(static_cast<uint32_t>(packet.size())),
                        packet);
}

std::string Block(bool big, uint32_t type, const std::string& body) {
    const std::string padded = body + std::string((4 - body.size() % 4) % 4, '\0');
    const auto length = static_cast<uint32_t>(padded.size() + 12);
    return absl::StrCat(Word(type, big), Word(length, big), padded, Word(length, big));
}

std::string Pcapng(bool big, const std::string& packet) {
    const auto w = [big](uint32_t v) { return Word(v, big); };
    const auto size = static_cast<uint32_t>(packet.size());
    // Nanoseconds, by the option if_tsresol.
    const std::string options = absl::StrCat(Half(9, big), Half(1, big), std::string("\x09\0\0\0", 4), w(0));
    return absl::StrCat(
        Block(big, 0x0a0d0d0a, absl::StrCat(w(0x1a2b3c4d), Half(1, big), Half(0, big), w(~0u), w(~0u))),
        Block(big, 1, absl::StrCat(Half(101, big), Half(0, big), w(65535), options)), Block(big, 5, "stat"),
        Block(big, 6, absl::StrCat(w(0), w(1), w(705032704), w(size), w(size), packet)));
}

StatusOr<Packet> First(const std::string& file, std::string* bytes) {
    MemorySource source(file);
    ByteReader reader(source);
    CaptureReader capture(reader);
    Packet packet;
    SK_ASSIGN_OR_RETURN(const bool more, capture.Next(&packet));
    if (!more) return absl::NotFoundError("no packet");
    *bytes = std::string(packet.bytes);
    Packet next;
    SK_ASSIGN_OR_RETURN(const bool another, capture.Next(&next));
    if (another) return absl::InternalError("a packet too many");
    return packet;
}

TEST(Capture, AllFormsAndByteOrdersAreRead) {
    std::string bytes;
    for (const bool big : {false, true}) {
        StatusOr<Packet> packet = First(Pcap(big, 0xa1b2c3d4, "packet", 5), &bytes);
        ASSERT_TRUE(packet.ok()) << packet.status();
        EXPECT_EQ(bytes, "packet");
        EXPECT_EQ(packet->time_ns, 7'000'005'000u);
        EXPECT_EQ(packet->link, 101u);
        EXPECT_EQ(First(Pcap(big, 0xa1b23c4d, "packet", 5), &bytes)->time_ns, 7'000'000'005u);
        packet = First(Pcapng(big, "packet"), &bytes);
        ASSERT_TRUE(packet.ok()) << packet.status();
        EXPECT_EQ(bytes, "packet");
        EXPECT_EQ(packet->time_ns, 5'000'000'000u);
    }
}

TEST(Capture, EveryCutAndEveryFlippedByteEndsInOrder) {
    for (const std::string& file : {Pcap(false, 0xa1b2c3d4, "packet", 5), Pcapng(true, "packet")}) {
        std::string bytes;
        for (size_t i = 0; i < file.size(); ++i) {
            const Status cut = First(file.substr(0, i), &bytes).status();
            EXPECT_THAT(cut.message(), testing::AnyOf("", "no packet", HasSubstr("byte ")));
            for (int bit = 0; bit < 8; ++bit) {
                std::string flipped = file;
                flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
                (void)First(flipped, &bytes);
            }
        }
    }
}

TEST(Packet, AddressesAndFragments) {
    std::string ip = std::string("\x45\0\0\x21\0\0\0\0\x40\x11\0\0\x0a\0\0\1\x0a\0\0\2", 20) +
                     std::string("\x30\x39\0\x35\0\x0d\0\0", 8) + "hello";
    Segment segment;
    ASSERT_EQ(ReadFrame(101, ip, &segment), FrameKind::kSegment);
    EXPECT_EQ(segment.payload, "hello");
    EXPECT_EQ(segment.to_port, 53);
    EXPECT_EQ(AddressText(segment.from), "10.0.0.1");
    EXPECT_FALSE(segment.length_fault);
    ip[25] = 12;
    ASSERT_EQ(ReadFrame(101, ip, &segment), FrameKind::kSegment);
    EXPECT_TRUE(segment.length_fault);
    ip[6] = 0x20;
    EXPECT_EQ(ReadFrame(101, ip, &segment), FrameKind::kFragment);
    EXPECT_EQ(ReadFrame(101, ip.substr(0, 19), &segment), FrameKind::kOther);
    EXPECT_EQ(ReadFrame(9999, ip, &segment), FrameKind::kOther);
}

TEST(TcpStreams, SegmentsAreJoinedInAnyOrder) {
    const std::string stream = std::string("\0\5hello\0\5world", 14);
    std::mt19937 random(1);
    for (int round = 0; round < 100; ++round) {
        TcpStreams streams;
        std::vector<std::string> messages;
        const auto add = [&](uint32_t at, size_t size, uint8_t flags) {
            Segment segment;
            segment.is_tcp = true;
            segment.tcp_seq = 0xfffffffa + at;  // wraps
            segment.tcp_flags = flags;
            segment.payload = absl::string_view(stream).substr(at ? at - 1 : 0, size);
            streams.Add(segment, [&](absl::string_view message) { messages.emplace_back(message); });
        };
        add(0, 0, 2);
        std::vector<uint32_t> order = {0, 3, 6, 9, 12};
        std::shuffle(order.begin(), order.end(), random);
        // Each overlaps the next by a byte, and comes twice.
        for (const uint32_t at : order) add(1 + at, 4, 0), add(1 + at, 4, 0);
        EXPECT_THAT(messages, ElementsAre("hello", "world"));
    }
}

constexpr char kZeekHead[] =
    "#separator "
    "\\x09\n#fields\tts\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\ttrans_"
    "id\trtt\tquery\tqclass\tqtype\tTTLs\n";

Status ReadLog(const std::string& rows, Replay* replay) {
    const std::string log = kZeekHead + rows;
    MemorySource source(log);
    return replay->Read(source);
}

TEST(Replay, ARowOfALogIsAQueryAndItsAnswer) {
    const Knowledge knowledge = *MakeKnowledge({});
    Replay replay(knowledge, {});
    const std::string row = "\t10.0.0.9\t4000\t10.0.0.1\t53\t7\t0.01\twww.shop.org\t1\t1\t60.0,30.0\n";
    ASSERT_TRUE(ReadLog(absl::StrCat("100.5", row, "100.500001", row, "110.0", row), &replay).ok());
    const ReplayRow& pair = replay.rows().at({"10.0.0.9", "shop.org"});
    EXPECT_EQ(replay.counts().copies, 1u);  // the same packet, logged twice
    EXPECT_EQ(pair.queries, 2u);
    const uint32_t spent = pair.spent;
    ASSERT_TRUE(
        ReadLog(absl::StrCat("120.0", absl::StrReplaceAll(row, {{"60.0,30.0", "50.0,20.0"}})), &replay).ok());
    EXPECT_EQ(pair.spent, spent);  // still in the cache
    ASSERT_TRUE(ReadLog(absl::StrCat("200.0", row), &replay).ok());
    EXPECT_GT(pair.spent, spent);
}

TEST(Replay, BrokenRowsAreNamedByTheirByte) {
    const Knowledge knowledge = *MakeKnowledge({});
    const auto error = [&](const std::string& rows) {
        Replay replay(knowledge, {});
        return std::string(ReadLog(rows, &replay).message());
    };
    const size_t at = sizeof(kZeekHead) - 1;
    EXPECT_THAT(error("1\t2\n"), HasSubstr(absl::StrCat("byte ", at, ": a row of 2 fields, 11 expected")));
    const std::string good = "1\ta\t1\tb\t53\t7\t-\tx.org\t1\t1\t-\n";
    EXPECT_EQ(error(good), "");
    EXPECT_THAT(error(good + "x" + good),
                HasSubstr(absl::StrCat("byte ", at + good.size(), ": bad value in field 'ts'")));
    EXPECT_THAT(error("1\ta\t1\tb\t53\t7\t-\tx.org\t1\t99999\t-\n"), testing::AnyOf("", HasSubstr("qtype")));
    EXPECT_THAT(error("-1\ta\t1\tb\t53\t7\t-\tx.org\t1\t1\t-\n"), HasSubstr("'ts'"));
    EXPECT_THAT(error("nan\ta\t1\tb\t53\t7\t-\tx.org\t1\t1\t-\n"), HasSubstr("'ts'"));
    EXPECT_THAT(error("1\ta\t1\tb\t53\t7\t-\tx.org\t1\t1\t5,x\n"), HasSubstr("'TTLs'"));
    EXPECT_THAT(error(std::string(2 << 20, 'x')), HasSubstr("a line of more than"));
}

}  // namespace
}  // namespace stockade::dns
