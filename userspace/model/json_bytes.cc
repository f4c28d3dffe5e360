// JSON of a serialised event: the fields go from one form into the other, and no message is made in between.
#include <google/protobuf/timestamp.pb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "userspace/model/json.h"
#include "userspace/model/utf8.h"
#include "userspace/model/wire.h"

namespace stockade::model {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

// Of one message type; the largest of ours has half of it.
constexpr size_t kMaxFields = 64;
// Numbers of fields go into a table by themselves.
constexpr int kMaxNumber = 255;
constexpr size_t kNumberBytes = 24;     // of any integer, with its quotes
constexpr size_t kTimestampBytes = 32;  // quotes and Z included

// What is known of a message type before the first message.
struct BytesPlan {
    enum Kind { kOther, kText, kMessage, kMap, kBool, kInt32, kUInt32, kInt64, kUInt64, kEnum };
    struct Field {
        Kind kind = kOther;
        std::string key;                       // ,"name":
        const BytesPlan* plan = nullptr;       // of a message or of a map's entries
        const EnumDescriptor* words = nullptr;
        bool repeated = false;
        bool presence = false;  // it is said even where it is 0
        int oneof = -1;
    };
    std::vector<Field> fields;                 // in the order of event.proto
    uint8_t by_number[kMaxNumber + 1] = {};    // place in fields, from 1; 0 = none
    bool timestamp = false;
    bool good = true;  // false: a type that is not written here
};

BytesPlan::Kind KindOf(const FieldDescriptor& field) {
    switch (field.type()) {
        case FieldDescriptor::TYPE_STRING: return BytesPlan::kText;
        case FieldDescriptor::TYPE_MESSAGE: return field.is_map() ? BytesPlan::kMap : BytesPlan::kMessage;
        case FieldDescriptor::TYPE_BOOL: return BytesPlan::kBool;
        case FieldDescriptor::TYPE_INT32: return BytesPlan::kInt32;
        case FieldDescriptor::TYPE_UINT32: return BytesPlan::kUInt32;
        case FieldDescriptor::TYPE_INT64: return BytesPlan::kInt64;
        case FieldDescriptor::TYPE_UINT64: return BytesPlan::kUInt64;
        case FieldDescriptor::TYPE_ENUM: return BytesPlan::kEnum;
        default: return BytesPlan::kOther;
    }
}

bool IsNumber(BytesPlan::Kind kind) { return kind >= BytesPlan::kBool; }

// Plans live for ever: there are as many as message types in the binary.
const BytesPlan* PlanOf(const Descriptor* type, std::map<const Descriptor*, std::unique_ptr<BytesPlan>>* plans) {
    std::unique_ptr<BytesPlan>& slot = (*plans)[type];
    if (slot) return slot.get();
    slot = std::make_unique<BytesPlan>();
    BytesPlan* plan = slot.get();  // in the map before its fields: types may contain themselves
    plan->timestamp = type == google::protobuf::Timestamp::descriptor();
    plan->good = static_cast<size_t>(type->field_count()) <= kMaxFields;
    for (int i = 0; i < type->field_count() && plan->good; ++i) {
        const FieldDescriptor& field = *type->field(i);
        BytesPlan::Field& out = plan->fields.emplace_back();
        out.kind = KindOf(field);
        out.key = absl::StrCat(",\"", field.name(), "\":");
        if (field.message_type()) out.plan = PlanOf(field.message_type(), plans);
        out.words = field.enum_type();
        out.repeated = field.is_repeated();
        out.presence = field.has_presence();
        if (const auto* oneof = field.real_containing_oneof()) out.oneof = oneof->index();
        // Numbers that are repeated are packed.
        if (field.number() > kMaxNumber || out.kind == BytesPlan::kOther || (out.repeated && IsNumber(out.kind)))
            plan->good = false;
        else
            plan->by_number[field.number()] = static_cast<uint8_t>(i + 1);
    }
    return plan;
}

const BytesPlan& EventPlan() {
    static auto* const plans = new std::map<const Descriptor*, std::unique_ptr<BytesPlan>>;
    static const BytesPlan* const plan = PlanOf(v1::Event::descriptor(), plans);
    return *plan;
}

// Appends to a string by the pointer: looked after once a field, not once a byte.
class Out {
  public:
    explicit Out(std::string* out) : out_(*out), before_(out->size()), used_(before_) {}
    char* Room(size_t bytes) {
        if (out_.size() - used_ < bytes) out_.resize(used_ + bytes + kStep);
        return out_.data() + used_;
    }
    void Used(size_t bytes) { used_ += bytes; }
    void Byte(char byte) { *Room(1) = byte, ++used_; }
    void Text(absl::string_view text) {
        memcpy(Room(text.size()), text.data(), text.size());
        used_ += text.size();
    }
    bool End(bool good) {
        out_.resize(good ? used_ : before_);
        return good;
    }

  private:
    static constexpr size_t kStep = 2048;  // most lines are shorter

    std::string& out_;
    const size_t before_;
    size_t used_;
};

// No byte of them that JSON writes otherwise, or that may be no character.
bool IsPlain(absl::string_view text) {
    constexpr uint64_t kOnes = 0x0101010101010101, kHigh = 0x8080808080808080;
    const auto below = [](uint64_t word, uint64_t limit) { return (word - kOnes * limit) & ~word & kHigh; };
    size_t at = 0;
    uint64_t odd = 0;
    for (; at + 8 <= text.size(); at += 8) {
        uint64_t word;
        memcpy(&word, text.data() + at, 8);
        odd |= (word & kHigh) | below(word, 0x20) | below(word ^ (kOnes * '"'), 1) | below(word ^ (kOnes * '\\'), 1) |
               below(word ^ (kOnes * 0x7f), 1);
    }
    if (odd != 0) return false;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (c < 0x20 || c == 0x7f || c == '"' || c == '\\') return false;
    }
    return true;
}

// False where it is not UTF-8, which protobuf does not read.
bool AppendText(absl::string_view text, Out* out) {
    if (IsPlain(text)) {
        char* to = out->Room(text.size() + 2);
        *to = '"';
        memcpy(to + 1, text.data(), text.size());
        to[text.size() + 1] = '"';
        out->Used(text.size() + 2);
        return true;
    }
    for (absl::string_view rest = text; !rest.empty();) {
        const Utf8Char c = NextChar(rest);
        if (!c.valid) return false;
        rest.remove_prefix(c.bytes);
    }
    std::string written;
    AppendJsonString(text, &written);
    out->Text(written);
    return true;
}

template <typename T>
void AppendInteger(T value, bool quoted, Out* out) {
    char* const start = out->Room(kNumberBytes);
    char* to = start;
    if (quoted) *to++ = '"';
    to = std::to_chars(to, start + kNumberBytes, value).ptr;
    if (quoted) *to++ = '"';
    out->Used(static_cast<size_t>(to - start));
}

void Digits(uint32_t value, int digits, char* to) {
    for (int i = digits; i-- > 0; value /= 10) to[i] = static_cast<char>('0' + value % 10);
}

// "YYYY-MM-DDTHH:MM:SS.nnnnnnnnnZ". False for a time that has another length.
bool AppendTimestamp(absl::string_view bytes, Out* out) {
    int64_t seconds = 0;
    int32_t nanos = 0;
    WireReader reader(bytes);
    for (WireField field; reader.Next(&field);) {
        if (field.type != WireType::kVarint || field.number > 2) return false;
        if (field.number == 1) seconds = static_cast<int64_t>(field.value);
        if (field.number == 2) nanos = static_cast<int32_t>(field.value);
    }
    constexpr int64_t kFirst = -62135596800, kLast = 253402300799;  // 0001-01-01 and the end of 9999
    if (!reader.ok() || seconds < kFirst || seconds > kLast || nanos < 0 || nanos > 999'999'999) return false;
    // Events come in bursts: the text of the last second is mostly that of this one.
    struct Second {
        int64_t seconds = kFirst - 1;
        char text[21];
    };
    static thread_local Second last;
    if (last.seconds != seconds) {
        const absl::CivilSecond civil = absl::CivilSecond(1970, 1, 1) + seconds;
        memcpy(last.text, "\"0000-00-00T00:00:00.", sizeof(last.text));
        Digits(static_cast<uint32_t>(civil.year()), 4, last.text + 1);
        Digits(static_cast<uint32_t>(civil.month()), 2, last.text + 6);
        Digits(static_cast<uint32_t>(civil.day()), 2, last.text + 9);
        Digits(static_cast<uint32_t>(civil.hour()), 2, last.text + 12);
        Digits(static_cast<uint32_t>(civil.minute()), 2, last.text + 15);
        Digits(static_cast<uint32_t>(civil.second()), 2, last.text + 18);
        last.seconds = seconds;
    }
    char* const to = out->Room(kTimestampBytes);
    memcpy(to, last.text, sizeof(last.text));
    Digits(static_cast<uint32_t>(nanos), 9, to + 21);
    memcpy(to + 30, "Z\"", 2);
    out->Used(kTimestampBytes);
    return true;
}

bool AppendMessage(absl::string_view bytes, const BytesPlan& plan, Out* out);

bool AppendValue(const WireField& wire, const BytesPlan::Field& field, Out* out) {
    switch (field.kind) {
        case BytesPlan::kText: return AppendText(wire.bytes, out);
        case BytesPlan::kMessage:
            return field.plan->timestamp ? AppendTimestamp(wire.bytes, out) : AppendMessage(wire.bytes, *field.plan, out);
        case BytesPlan::kBool: return out->Text(wire.value != 0 ? "true" : "false"), true;
        case BytesPlan::kInt32: return AppendInteger(static_cast<int32_t>(wire.value), false, out), true;
        case BytesPlan::kUInt32: return AppendInteger(static_cast<uint32_t>(wire.value), false, out), true;
        case BytesPlan::kInt64: return AppendInteger(static_cast<int64_t>(wire.value), true, out), true;
        case BytesPlan::kUInt64: return AppendInteger(wire.value, true, out), true;
        case BytesPlan::kEnum: {
            const auto number = static_cast<int32_t>(wire.value);
            const auto* word = field.words->FindValueByNumber(number);
            if (!word) return AppendInteger(number, false, out), true;
            return AppendText(word->name(), out);
        }
        case BytesPlan::kMap:
        case BytesPlan::kOther: break;
    }
    return false;
}

// Unset, as proto3 has it, where nothing but the value could say that it is there.
bool IsUnset(const WireField& wire, const BytesPlan::Field& field) {
    switch (field.kind) {
        case BytesPlan::kText: return wire.bytes.empty();
        case BytesPlan::kInt32:
        case BytesPlan::kUInt32:
        case BytesPlan::kEnum: return static_cast<uint32_t>(wire.value) == 0;
        case BytesPlan::kBool:
        case BytesPlan::kInt64:
        case BytesPlan::kUInt64: return wire.value == 0;
        default: return false;
    }
}

// Where each field starts, by its place in event.proto: what is written is in that order, whatever the bytes' is. False for what
// needs protobuf's own rules: unknown fields, one that is there twice, two of a oneof.
bool Find(absl::string_view bytes, const BytesPlan& plan, const char** starts) {
    std::fill_n(starts, plan.fields.size(), nullptr);
    WireReader reader(bytes);
    const char* start = reader.at();
    size_t last = kMaxFields;
    uint64_t oneofs = 0;
    for (WireField wire; reader.Next(&wire); start = reader.at()) {
        const size_t place = wire.number <= kMaxNumber ? plan.by_number[wire.number] : 0;
        if (place == 0) return false;
        const BytesPlan::Field& field = plan.fields[place - 1];
        if (wire.type != (IsNumber(field.kind) ? WireType::kVarint : WireType::kBytes)) return false;
        if (starts[place - 1] != nullptr) {
            if (!field.repeated || last != place) return false;
            continue;
        }
        starts[place - 1] = start;
        last = place;
        if (field.oneof < 0) continue;
        const uint64_t bit = uint64_t{1} << (field.oneof & 63);
        if ((oneofs & bit) != 0) return false;
        oneofs |= bit;
    }
    return reader.ok();
}

// All elements from `at` on.
bool AppendRepeated(absl::string_view bytes, const BytesPlan::Field& field, const char* at, Out* out) {
    WireReader reader({at, static_cast<size_t>(bytes.data() + bytes.size() - at)});
    WireField wire;
    uint32_t number = 0;
    char before = '[';
    while (reader.Next(&wire) && (number == 0 || wire.number == number)) {
        number = wire.number;
        out->Byte(std::exchange(before, ','));
        if (!AppendValue(wire, field, out)) return false;
    }
    out->Byte(']');
    return true;
}

// Sorted by key as it is written; of two with one key the last stands.
bool AppendMap(absl::string_view bytes, const BytesPlan::Field& field, const char* at, Out* out) {
    WireReader reader({at, static_cast<size_t>(bytes.data() + bytes.size() - at)});
    std::map<std::string, std::string> sorted;
    WireField wire;
    uint32_t number = 0;
    while (reader.Next(&wire) && (number == 0 || wire.number == number)) {
        number = wire.number;
        const char* starts[kMaxFields];
        if (field.plan->fields.size() != 2 || !Find(wire.bytes, *field.plan, starts)) return false;
        std::string texts[2];
        for (int i = 0; i < 2; ++i) {
            const BytesPlan::Field& part = field.plan->fields[static_cast<size_t>(i)];
            if (part.kind != BytesPlan::kText) return false;
            WireField value;
            if (starts[i] != nullptr) {
                WireReader one({starts[i], static_cast<size_t>(wire.bytes.data() + wire.bytes.size() - starts[i])});
                if (!one.Next(&value)) return false;
            }
            Out text(&texts[i]);
            if (!text.End(AppendText(value.bytes, &text))) return false;
        }
        sorted[std::move(texts[0])] = std::move(texts[1]);
    }
    char before = '{';
    for (const auto& [key, value] : sorted) {
        out->Byte(std::exchange(before, ','));
        out->Text(key);
        out->Byte(':');
        out->Text(value);
    }
    out->Byte('}');
    return true;
}

bool AppendMessage(absl::string_view bytes, const BytesPlan& plan, Out* out) {
    const char* starts[kMaxFields];
    if (!plan.good || !Find(bytes, plan, starts)) return false;
    bool first = true;
    for (size_t i = 0; i < plan.fields.size(); ++i) {
        if (starts[i] == nullptr) continue;
        const BytesPlan::Field& field = plan.fields[i];
        WireReader reader({starts[i], static_cast<size_t>(bytes.data() + bytes.size() - starts[i])});
        WireField wire;
        if (!reader.Next(&wire)) return false;
        if (!field.presence && !field.repeated && IsUnset(wire, field)) continue;
        char* const key = out->Room(field.key.size());
        memcpy(key, field.key.data(), field.key.size());
        if (first) *key = '{';
        first = false;
        out->Used(field.key.size());
        const bool good = field.kind == BytesPlan::kMap ? AppendMap(bytes, field, starts[i], out)
                          : field.repeated              ? AppendRepeated(bytes, field, starts[i], out)
                                                        : AppendValue(wire, field, out);
        if (!good) return false;
    }
    out->Text(first ? "{}" : "}");
    return true;
}

}  // namespace

bool AppendJsonOf(absl::string_view event, std::string* out) {
    Out to(out);
    return to.End(AppendMessage(event, EventPlan(), &to));
}

}  // namespace stockade::model
