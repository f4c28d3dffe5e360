#include "userspace/model/json.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "userspace/model/event_testing.h"
#include "userspace/model/text.h"

namespace stockade::model {
namespace {

using google::protobuf::util::MessageDifferencer;

// Valid UTF-8, one line, nothing that a terminal would act on.
void ExpectClean(absl::string_view line) {
    EXPECT_TRUE(IsPrintable(line)) << line;
}

TEST(Json, IsWhatProtobufReadsBack) {
    for (uint32_t seed = 0; seed < 2000; ++seed) {
        v1::Event event;
        Filler(seed).Fill(&event);
        const std::string line = ToJsonLine(event);
        ExpectClean(line);
        auto back = FromJsonLine(line);
        ASSERT_TRUE(back.ok()) << back.status() << "\n" << line;
        ASSERT_TRUE(MessageDifferencer::Equals(event, *back)) << line;
    }
}

TEST(Json, HasTheValuesOfProtobufsOwnWriter) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    for (uint32_t seed = 0; seed < 200; ++seed) {
        v1::Event event, ours, theirs;
        Filler(seed).Fill(&event);
        std::string line;
        ASSERT_TRUE(google::protobuf::util::MessageToJsonString(event, &line, options).ok());
        ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &theirs).ok());
        ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(ToJsonLine(event), &ours).ok());
        ASSERT_TRUE(MessageDifferencer::Equals(ours, theirs)) << line;
    }
}

TEST(Json, FixedForm) {
    v1::Event event;
    event.set_id("sbx_X.7");
    event.mutable_time()->set_seconds(1);
    event.set_boot_ns(18446744073709551615ULL);
    event.mutable_exit()->set_code(0);
    event.mutable_sandbox()->mutable_labels()->insert({"b", "2"});
    event.mutable_sandbox()->mutable_labels()->insert({"a", "1"});
    EXPECT_EQ(ToJsonLine(event),
              R"({"id":"sbx_X.7","time":"1970-01-01T00:00:01.000000000Z",)"
              R"("boot_ns":"18446744073709551615","sandbox":{"labels":{"a":"1","b":"2"}},)"
              R"("exit":{"code":0}})");
    EXPECT_EQ(ToJsonLine({}), "{}");
}

TEST(Json, InvalidUtf8IsReplaced) {
    v1::Event event;
    event.set_node("a\xff\xc3" "b\xed\xa0\x80");
    EXPECT_EQ(ToJsonLine(event), R"({"node":"a\ufffd\ufffdb\ufffd\ufffd\ufffd"})");
}

TEST(Json, BadLinesAreErrors) {
    EXPECT_FALSE(FromJsonLine("{").ok());
    EXPECT_FALSE(FromJsonLine(R"({"nobody":1})").ok());
    EXPECT_TRUE(FromJsonLine("{}").ok());
}

TEST(Text, PrintableIsCopied) {
    for (const char* text : {"", "/etc/passwd", "a\\b", "héé 😀", "\"quoted\""}) {
        std::string out;
        EXPECT_FALSE(AppendEscaped(text, &out));
        EXPECT_EQ(out, text);
    }
}

TEST(Text, TheRestIsEscapedAndUnambiguous) {
    const std::pair<std::string, const char*> rows[] = {
        {"a\nb", "a\\x0ab"},           {"\x1b[2J", "\\x1b[2J"},  {"\\x0a\n", "\\\\x0a\\x0a"},
        {"\xff", "\\xff"},             {"\xc0\xaf", "\\xc0\\xaf"}, {"\u202e", "\\xe2\\x80\\xae"},
        {std::string(1, '\0'), "\\x00"}, {"é\x80", "é\\x80"},      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, {"\xe2\x80", "\\xe2\\x80"},
    };
    for (const auto& [bytes, want] : rows) {
        std::string out;
        EXPECT_TRUE(AppendEscaped(bytes, &out)) << want;
        EXPECT_EQ(out, want);
        EXPECT_TRUE(IsPrintable(out));
    }
}

}  // namespace
}  // namespace stockade::model
