#include "userspace/model/json.h"

#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "userspace/model/utf8.h"

namespace stockade::model {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// What is known of a message type before the first message: bound once, read for each event.
struct Plan {
    struct Field {
        const FieldDescriptor* descriptor;
        std::string key;   // "name":
        const Plan* plan;  // of a message field; null else
    };
    std::vector<Field> fields;
    bool timestamp = false;
};

// Plans live for ever: there are as many as message types in the binary.
const Plan* PlanOf(const Descriptor* type) {
    static std::recursive_mutex mutex;
    static auto* plans = new std::map<const Descriptor*, std::unique_ptr<Plan>>;
    std::lock_guard lock(mutex);
    std::unique_ptr<Plan>& slot = (*plans)[type];
    if (slot) return slot.get();
    slot = std::make_unique<Plan>();
    Plan* plan = slot.get();  // in the map before its fields: types may contain themselves
    plan->timestamp = type == google::protobuf::Timestamp::descriptor();
    for (int i = 0; i < type->field_count(); ++i) {
        const FieldDescriptor* field = type->field(i);
        plan->fields.push_back({field, absl::StrCat("\"", field->name(), "\":"),
                                field->message_type() ? PlanOf(field->message_type()) : nullptr});
    }
    return plan;
}

void AppendUnicode(uint32_t code, std::string* out) {
    char text[16];
    const auto unit = [&](uint32_t value) {
        out->append(text, static_cast<size_t>(snprintf(text, sizeof(text), "\\u%04x", value)));
    };
    if (code < 0x10000) return unit(code);
    unit(0xd800 + ((code - 0x10000) >> 10));
    unit(0xdc00 + ((code - 0x10000) & 0x3ff));
}

}  // namespace

void AppendJsonString(absl::string_view text, std::string* out) {
    out->push_back('"');
    size_t copied = 0, at = 0;
    while (at < text.size()) {
        const auto byte = static_cast<uint8_t>(text[at]);
        if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\') {
            ++at;
            continue;
        }
        const Utf8Char c = NextChar(text.substr(at));
        if (c.valid && c.code > 0x7f && IsPrintableChar(c.code)) {
            at += c.bytes;
            continue;
        }
        out->append(text.data() + copied, at - copied);
        if (!c.valid) {
            out->append("\\ufffd");
        } else if (byte == '"' || byte == '\\') {
            out->push_back('\\');
            out->push_back(text[at]);
        } else {
            AppendUnicode(c.code, out);
        }
        copied = at += c.bytes;
    }
    out->append(text.data() + copied, at - copied);
    out->push_back('"');
}

namespace {

// RFC 3339 with all nine digits, so that lines sort as text.
void AppendTimestamp(const google::protobuf::Timestamp& time, std::string* out) {
    const absl::CivilSecond civil = absl::CivilSecond(1970, 1, 1) + time.seconds();
    char text[64];
    const int bytes = snprintf(text, sizeof(text), "\"%04d-%02d-%02dT%02d:%02d:%02d.%09dZ\"",
                               static_cast<int>(civil.year()), civil.month(), civil.day(),
                               civil.hour(), civil.minute(), civil.second(), time.nanos());
    out->append(text, static_cast<size_t>(bytes));
}

void AppendDouble(double value, std::string* out) {
    if (value != value) return out->append("\"NaN\""), void();
    if (value - value != 0) return out->append(value > 0 ? "\"Infinity\"" : "\"-Infinity\""), void();
    char text[32];
    out->append(text, static_cast<size_t>(snprintf(text, sizeof(text), "%.17g", value)));
}

void AppendMessage(const Message& message, const Plan& plan, std::string* out);

// One value: of a singular field with index < 0, else element `index` of a repeated one.
void AppendValue(const Message& message, const Plan::Field& field, int index, std::string* out) {
    const Reflection& r = *message.GetReflection();
    const FieldDescriptor* f = field.descriptor;
#define GET(Type) \
    (index < 0 ? r.Get##Type(message, f) : r.GetRepeated##Type(message, f, index))
    switch (f->cpp_type()) {
        case FieldDescriptor::CPPTYPE_STRING: {
            std::string scratch;
            const std::string& text = index < 0
                                          ? r.GetStringReference(message, f, &scratch)
                                          : r.GetRepeatedStringReference(message, f, index, &scratch);
            if (f->type() == FieldDescriptor::TYPE_BYTES) {
                absl::StrAppend(out, "\"", absl::Base64Escape(text), "\"");
            } else {
                AppendJsonString(text, out);
            }
            break;
        }
        case FieldDescriptor::CPPTYPE_MESSAGE: AppendMessage(GET(Message), *field.plan, out); break;
        case FieldDescriptor::CPPTYPE_BOOL: out->append(GET(Bool) ? "true" : "false"); break;
        case FieldDescriptor::CPPTYPE_INT32: absl::StrAppend(out, GET(Int32)); break;
        case FieldDescriptor::CPPTYPE_UINT32: absl::StrAppend(out, GET(UInt32)); break;
        case FieldDescriptor::CPPTYPE_INT64: absl::StrAppend(out, "\"", GET(Int64), "\""); break;
        case FieldDescriptor::CPPTYPE_UINT64: absl::StrAppend(out, "\"", GET(UInt64), "\""); break;
        case FieldDescriptor::CPPTYPE_DOUBLE: AppendDouble(GET(Double), out); break;
        case FieldDescriptor::CPPTYPE_FLOAT: AppendDouble(GET(Float), out); break;
        case FieldDescriptor::CPPTYPE_ENUM: {
            const int number = GET(EnumValue);
            const auto* value = f->enum_type()->FindValueByNumber(number);
            if (value) AppendJsonString(value->name(), out);
            else absl::StrAppend(out, number);
            break;
        }
    }
#undef GET
}

// Sorted by key, so that the same event is always the same line.
void AppendMap(const Message& message, const Plan::Field& field, std::string* out) {
    const Reflection& r = *message.GetReflection();
    std::map<std::string, std::string> sorted;
    for (int i = 0; i < r.FieldSize(message, field.descriptor); ++i) {
        const Message& entry = r.GetRepeatedMessage(message, field.descriptor, i);
        std::string key, value;
        AppendValue(entry, field.plan->fields[0], -1, &key);
        if (key[0] != '"') key = absl::StrCat("\"", key, "\"");
        AppendValue(entry, field.plan->fields[1], -1, &value);
        sorted[std::move(key)] = std::move(value);
    }
    char before = '{';
    for (const auto& [key, value] : sorted) {
        out->push_back(before);
        absl::StrAppend(out, key, ":", value);
        before = ',';
    }
    out->push_back('}');
}

void AppendRepeated(const Message& message, const Plan::Field& field, int count,
                    std::string* out) {
    for (int i = 0; i < count; ++i) {
        out->push_back(i == 0 ? '[' : ',');
        AppendValue(message, field, i, out);
    }
    out->push_back(']');
}

void AppendMessage(const Message& message, const Plan& plan, std::string* out) {
    if (plan.timestamp) {
        return AppendTimestamp(static_cast<const google::protobuf::Timestamp&>(message), out);
    }
    const Reflection& r = *message.GetReflection();
    char before = '{';
    for (const Plan::Field& field : plan.fields) {
        const bool repeated = field.descriptor->is_repeated();
        const int count = repeated ? r.FieldSize(message, field.descriptor) : 0;
        if (repeated ? count == 0 : !r.HasField(message, field.descriptor)) continue;
        out->push_back(before);
        before = ',';
        out->append(field.key);
        if (field.descriptor->is_map()) {
            AppendMap(message, field, out);
        } else if (repeated) {
            AppendRepeated(message, field, count, out);
        } else {
            AppendValue(message, field, -1, out);
        }
    }
    out->append(before == '{' ? "{}" : "}");
}

}  // namespace

void AppendJson(const Message& message, std::string* out) {
    static const Plan* const event_plan = PlanOf(v1::Event::descriptor());
    const Descriptor* type = message.GetDescriptor();
    AppendMessage(message, type == v1::Event::descriptor() ? *event_plan : *PlanOf(type), out);
}

std::string ToJsonLine(const v1::Event& event) {
    std::string line;
    line.reserve(1024);
    AppendJson(event, &line);
    return line;
}

StatusOr<v1::Event> FromJsonLine(absl::string_view line) {
    v1::Event event;
    const auto status = google::protobuf::util::JsonStringToMessage(
        google::protobuf::StringPiece(line.data(), line.size()), &event);
    if (!status.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("read an event from JSON: ", std::string(status.message())));
    }
    return event;
}

}  // namespace stockade::model
