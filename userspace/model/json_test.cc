#include "userspace/model/json.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <random>

#include "userspace/model/text.h"
#include "userspace/model/utf8.h"

namespace stockade::model {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;

// Fills each field with a chance of one half; strings get awkward characters.
class Filler {
  public:
    explicit Filler(uint32_t seed) : random_(seed) {}

    void Fill(Message* message) {
        if (message->GetDescriptor()->full_name() == "google.protobuf.Timestamp") {
            auto* time = static_cast<google::protobuf::Timestamp*>(message);
            time->set_seconds(static_cast<int64_t>(random_() % 253402300799ULL));
            time->set_nanos(static_cast<int32_t>(random_() % 1000000000));
            return;
        }
        const auto* type = message->GetDescriptor();
        for (int i = 0; i < type->field_count(); ++i) {
            if (random_() % 2) Set(message, type->field(i));
        }
    }

  private:
    std::string Text() {
        static const char* const kParts[] = {"a", "\"", "\\", "/", "\n", "\x01", "\x7f", "é",
                                             "\u2028", "\u202e", "😀", "<", "\u0085"};
        std::string text;
        for (size_t i = random_() % 6; i > 0; --i) text += kParts[random_() % std::size(kParts)];
        return text;
    }

    void Set(Message* m, const FieldDescriptor* f) {
        const auto* r = m->GetReflection();
        if (f->is_map()) {
            auto* event = static_cast<v1::Sandbox*>(m);
            (*event->mutable_labels())[Text()] = Text();
            (*event->mutable_labels())["zone"] = Text();
        } else if (f->is_repeated()) {
            for (int i = 0; i < 2; ++i) {
                if (f->message_type()) Fill(r->AddMessage(m, f));
                else r->AddString(m, f, Text());
            }
        } else {
            SetOne(m, f, *r);
        }
    }

    void SetOne(Message* m, const FieldDescriptor* f, const google::protobuf::Reflection& r) {
        switch (f->cpp_type()) {
            case FieldDescriptor::CPPTYPE_STRING: return r.SetString(m, f, Text());
            case FieldDescriptor::CPPTYPE_BOOL: return r.SetBool(m, f, random_() % 2);
            case FieldDescriptor::CPPTYPE_UINT32: return r.SetUInt32(m, f, random_());
            case FieldDescriptor::CPPTYPE_INT32: return r.SetInt32(m, f, int32_t(random_()));
            case FieldDescriptor::CPPTYPE_UINT64:
                return r.SetUInt64(m, f, uint64_t{random_()} << 32 | random_());
            case FieldDescriptor::CPPTYPE_MESSAGE: return Fill(r.MutableMessage(m, f));
            default: FAIL() << "a type that the test does not know: " << f->full_name();
        }
    }

    std::mt19937 random_;
};

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
