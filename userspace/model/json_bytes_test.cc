// The line of a serialised event is held to that of the message, whose writer json_test holds to protobuf's own.
#include <google/protobuf/timestamp.pb.h>
#include <gtest/gtest.h>

#include "userspace/model/event_bytes.h"
#include "userspace/model/event_testing.h"
#include "userspace/model/json.h"
#include "userspace/model/wire.h"

namespace stockade::model {
namespace {

// Empty: not written.
std::string LineOf(const std::string& bytes) {
    std::string line = "before ";
    const bool written = AppendJsonOf(bytes, &line);
    EXPECT_EQ(line.substr(0, 7), "before ") << "what stood there";
    EXPECT_TRUE(written || line == "before ") << "nothing is left of what failed";
    return written ? line.substr(7) : "";
}

// As the spool has it: the chain at the end, which event.proto has further up.
std::string Spooled(v1::Event event) {
    const std::string chain = event.chain();
    event.clear_chain();
    return event.SerializeAsString() + (chain.empty() ? "" : WireText(v1::Event::kChainFieldNumber, chain));
}

TEST(JsonOfBytes, IsTheLineOfTheMessage) {
    for (uint32_t seed = 0; seed < 3000; ++seed) {
        v1::Event event;
        Filler(seed).Fill(&event);
        ASSERT_EQ(LineOf(event.SerializeAsString()), ToJsonLine(event)) << seed;
        ASSERT_EQ(LineOf(Spooled(event)), ToJsonLine(event)) << seed;
    }
    EXPECT_EQ(LineOf(""), "{}");
}

// A kind or a field that the writer does not know would be slow, and nobody would see it.
TEST(JsonOfBytes, KnowsEveryKindAndField) {
    const auto* payload = v1::Event::descriptor()->FindOneofByName("payload");
    for (int i = 0; i < payload->field_count(); ++i) {
        for (uint32_t seed = 0; seed < 200; ++seed) {
            v1::Event event;
            Filler filler(seed, seed == 0 ? 1 : 2);
            filler.Fill(event.GetReflection()->MutableMessage(&event, payload->field(i)));
            event.set_kind(payload->field(i)->name());
            ASSERT_EQ(LineOf(event.SerializeAsString()), ToJsonLine(event)) << payload->field(i)->name();
        }
    }
}

TEST(JsonOfBytes, TimesOfAllYears) {
    for (const int64_t seconds : {int64_t{0}, int64_t{-1}, int64_t{-62135596800}, int64_t{253402300799},
                                  int64_t{951782400}, int64_t{4107542399}, int64_t{1700000000}}) {
        for (const int32_t nanos : {0, 1, 999999999}) {
            v1::Event event;
            event.mutable_time()->set_seconds(seconds);
            event.mutable_time()->set_nanos(nanos);
            EXPECT_EQ(LineOf(event.SerializeAsString()), ToJsonLine(event)) << seconds;
        }
    }
    // Beyond what a line has room for: by the message.
    for (const int64_t seconds : {int64_t{-62135596801}, int64_t{253402300800}}) {
        v1::Event event;
        event.mutable_time()->set_seconds(seconds);
        EXPECT_EQ(LineOf(event.SerializeAsString()), "") << seconds;
    }
}

TEST(JsonOfBytes, ZerosThatSomebodyWroteAreNoFields) {
    const std::string zeros =
        WireNumber(v1::Event::kBootNsFieldNumber, 0) + WireText(v1::Event::kNodeFieldNumber, "") +
        WireText(v1::Event::kExitFieldNumber, WireNumber(v1::Exit::kCodeFieldNumber, 0));
    EXPECT_EQ(LineOf(zeros), R"({"exit":{"code":0}})") << "but one that is optional is there";
}

TEST(JsonOfBytes, LeavesToProtobufWhatNeedsItsRules) {
    const std::string id = WireText(v1::Event::kIdFieldNumber, "a");
    EXPECT_EQ(LineOf(id), R"({"id":"a"})");
    EXPECT_EQ(LineOf(id + id), "") << "twice";
    EXPECT_EQ(LineOf(id + WireText(250, "x")), "") << "a field of another version";
    EXPECT_EQ(LineOf(WireNumber(v1::Event::kIdFieldNumber, 1)), "") << "of another type";
    EXPECT_EQ(LineOf(WireText(v1::Event::kExecFieldNumber, "") + WireText(v1::Event::kExitFieldNumber, "")),
              "")
        << "two payloads";
    EXPECT_EQ(LineOf(WireText(v1::Event::kIdFieldNumber, "\xff")), "") << "not UTF-8";
    EXPECT_EQ(LineOf(id.substr(0, 2)), "") << "cut";
    EXPECT_EQ(LineOf(std::string("\x0a\x81\x00", 3) + "a"), "") << "a length longer than it must be";
}

// Whatever the bytes are: the line that protobuf's reading of them has, or none.
TEST(JsonOfBytes, ChangedBytesAreReadAsProtobufReadsThemOrNotAtAll) {
    size_t written = 0, left = 0;
    for (uint32_t seed = 0; seed < 30'000; ++seed) {
        v1::Event event;
        Filler filler(seed);
        filler.Fill(&event);
        std::string bytes = Spooled(event);
        if (bytes.empty()) continue;
        for (uint32_t changes = 1 + filler.Random() % 3; changes > 0 && !bytes.empty(); --changes) {
            const size_t at = filler.Random() % bytes.size();
            switch (filler.Random() % 4) {
                case 0:
                    bytes[at] = static_cast<char>(filler.Random());
                    break;
                case 1:
                    bytes[at] = static_cast<char>(bytes[at] ^ (1 << filler.Random() % 8));
                    break;
                case 2:
                    bytes.erase(at, 1 + filler.Random() % 4);
                    break;
                default:
                    bytes.insert(at, bytes.substr(filler.Random() % bytes.size(), 1 + filler.Random() % 8));
                    break;
            }
        }
        const std::string line = LineOf(bytes);
        (void)EventBytes::Of(bytes);  // for the sanitizers
        ++(line.empty() ? left : written);
        if (line.empty()) continue;
        v1::Event parsed;
        ASSERT_TRUE(parsed.ParseFromString(bytes)) << seed;
        ASSERT_EQ(line, ToJsonLine(parsed)) << seed;
    }
    EXPECT_GT(written, 1000u);
    EXPECT_GT(left, 1000u);
}

TEST(EventBytes, HasWhatTheEventHas) {
    for (uint32_t seed = 0; seed < 1000; ++seed) {
        v1::Event event;
        Filler(seed).Fill(&event);
        const std::string text = Spooled(event);
        const auto bytes = EventBytes::Of(text);
        ASSERT_TRUE(bytes);
        EXPECT_EQ(bytes->id, event.id());
        EXPECT_EQ(bytes->node, event.node());
        EXPECT_EQ(bytes->kind, event.kind());
        EXPECT_EQ(bytes->verdict, event.verdict());
        EXPECT_EQ(bytes->chain, event.chain());
        EXPECT_EQ(bytes->sandbox, event.sandbox().id());
        EXPECT_EQ(bytes->session, event.sandbox().session());
        EXPECT_EQ(bytes->trace, event.sandbox().trace());
        EXPECT_EQ(bytes->boot_ns, event.boot_ns());
        EXPECT_EQ(bytes->kernel_seq, event.kernel_seq());
        EXPECT_EQ(bytes->export_seq, event.export_seq());
        EXPECT_EQ(bytes->payload, event.payload_case());
        EXPECT_EQ(bytes->has_time, event.has_time());
        EXPECT_EQ(bytes->time, event.has_time() ? event.time().SerializeAsString() : "");
        v1::Event parsed;
        ASSERT_TRUE(bytes->Parse(&parsed).ok());
        EXPECT_EQ(ToJsonLine(parsed), ToJsonLine(event));
    }
    EXPECT_FALSE(
        EventBytes::Of("\x0a\x05"
                       "ab"));
}

}  // namespace
}  // namespace stockade::model
