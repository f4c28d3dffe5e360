#include "userspace/detect/view.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "userspace/detect/text.h"
#include "userspace/model/options.pb.h"

namespace stockade::detect {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// What the redactor leaves in the place of a secret (decode/redact.h).
constexpr absl::string_view kRedacted = "[redacted]";
// A path whose upper part is not known starts so.
constexpr absl::string_view kNoTop = ".../";

bool IsAscii(absl::string_view text) {
    // Eight at a time: most texts are, and all are looked at.
    constexpr uint64_t kHigh = 0x8080808080808080;
    uint64_t any = 0;
    size_t at = 0;
    for (; at + sizeof(any) <= text.size(); at += sizeof(any)) {
        uint64_t word;
        std::memcpy(&word, text.data() + at, sizeof(word));
        any |= word;
    }
    for (; at < text.size(); ++at) any |= static_cast<uint64_t>(static_cast<unsigned char>(text[at]));
    return (any & kHigh) == 0;
}

// What else is said of the text in `raw`.
void Finish(bool ascii, Text* text, FieldValue* out) {
    out->state = FieldValue::State::kPresent;
    if (!ascii) {
        text->folded.clear();
        AppendFolded(text->raw, &text->folded);
        text->hole = absl::StrContains(text->raw, kHole);
        return;
    }
    text->hole = false;
    text->folded = text->raw;
    for (char& c : text->folded) c = static_cast<char>(c | (c >= 'A' && c <= 'Z' ? 0x20 : 0));
}

void AddText(absl::string_view raw, FieldValue* out) {
    Text& text = out->AddText();
    text.raw.assign(raw.data(), raw.size());
    Finish(IsAscii(raw), &text, out);
}

void AddNumber(long double number, absl::string_view text, FieldValue* out) {
    out->numbers.push_back(number);
    AddText(text, out);
}

bool Flag(const Message& message, const FieldDescriptor* field) {
    return field != nullptr && message.GetReflection()->GetBool(message, field);
}

// The original bytes of a text of an event, made valid, with holes where the redactor was at work.
std::string Normalised(absl::string_view text, bool escaped, bool redacted) {
    std::string out;
    size_t from = 0;
    while (true) {
        const size_t found = redacted ? text.find(kRedacted, from) : text.npos;
        const absl::string_view part = text.substr(from, found == text.npos ? text.npos : found - from);
        out += ToValidUtf8(escaped ? Unescape(part) : std::string(part));
        if (found == text.npos) return out;
        out += kHole;
        from = found + kRedacted.size();
    }
}

struct Cut {
    bool back = false;
    bool escaped = false;
    bool redacted = false;
    bool None() const { return !back && !escaped && !redacted; }
};

// What stands beside a field about it.
Cut CutOf(const v1::Event& event, const Message& holder, const Field& field) {
    Cut cut;
    cut.escaped = Flag(holder, field.escaped);
    cut.back = Flag(holder, field.truncated);
    cut.redacted = event.redactions_size() > 0 || Flag(holder, field.redacted);
    if (field.detail == nullptr || !holder.GetReflection()->HasField(holder, field.detail)) return cut;
    const auto& detail =
        static_cast<const v1::PathDetail&>(holder.GetReflection()->GetMessage(holder, field.detail));
    cut.escaped = detail.escaped();
    cut.back = detail.truncated();
    return cut;
}

// Of a text whose `raw` is as the event has it.
void Settle(const Cut& cut, Text* text, FieldValue* out) {
    const bool as_it_is = cut.None() && !absl::StartsWith(text->raw, kNoTop);
    if (as_it_is && IsAscii(text->raw)) return Finish(true, text, out);  // nearly all of them
    std::string whole = Normalised(text->raw, cut.escaped, cut.redacted);
    if (absl::StartsWith(whole, kNoTop)) whole.replace(0, kNoTop.size() - 1, 1, kHole);
    if (cut.back) whole += kHole;
    text->raw = std::move(whole);
    Finish(false, text, out);
}

void AddCut(const std::string& raw, const Cut& cut, FieldValue* out) {
    Text& text = out->AddText();
    text.raw = raw;
    Settle(cut, &text, out);
}

void AddTime(const Message& message, FieldValue* out) {
    const auto& stamp = static_cast<const google::protobuf::Timestamp&>(message);
    const absl::Time time = absl::FromUnixSeconds(stamp.seconds()) + absl::Nanoseconds(stamp.nanos());
    AddNumber(static_cast<long double>(absl::ToUnixMillis(time)) / 1000,
              absl::FormatTime("%Y-%m-%d %H:%M:%E3S", time, absl::UTCTimeZone()), out);
}

long double NumberOf(const Message& message, const FieldDescriptor* field) {
    const auto* reflection = message.GetReflection();
    switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
            return reflection->GetInt32(message, field);
        case FieldDescriptor::CPPTYPE_INT64:
            return static_cast<long double>(reflection->GetInt64(message, field));
        case FieldDescriptor::CPPTYPE_UINT32:
            return reflection->GetUInt32(message, field);
        case FieldDescriptor::CPPTYPE_UINT64:
            return static_cast<long double>(reflection->GetUInt64(message, field));
        default:
            return 0;
    }
}

void ReadNumber(const Message& holder, const Field& field, FieldValue* out) {
    const FieldDescriptor* leaf = field.steps.back();
    if (leaf->is_repeated()) return;  // there is none
    if (leaf->has_presence() && !holder.GetReflection()->HasField(holder, leaf)) return;
    const long double number = NumberOf(holder, leaf);
    if (number == 0 && field.zero_is_absent) return;
    const std::string text =
        number < 0 ? absl::StrCat(static_cast<int64_t>(number)) : absl::StrCat(static_cast<uint64_t>(number));
    AddNumber(number, text, out);
    if (field.user && number == 0) AddText("root", out);
}

void ReadText(const v1::Event& event, const Message& holder, const Field& field, FieldValue* out) {
    const FieldDescriptor* leaf = field.steps.back();
    const auto* reflection = holder.GetReflection();
    const Cut cut = CutOf(event, holder, field);
    if (!leaf->is_repeated()) {
        std::string scratch;
        const std::string& text = reflection->GetStringReference(holder, leaf, &scratch);
        if (!text.empty()) {
            AddCut(text, cut, out);
        } else if (cut.back) {
            out->state = FieldValue::State::kUnknown;
        }
        return;
    }
    const int size = reflection->FieldSize(holder, leaf);
    if (size == 0) {
        if (field.joined && cut.back) out->state = FieldValue::State::kUnknown;
        return;
    }
    std::string scratch;
    if (!field.joined) {
        for (int i = 0; i < size; ++i)
            AddCut(reflection->GetRepeatedStringReference(holder, leaf, i, &scratch), cut, out);
        return;
    }
    Text& joined = out->AddText();
    joined.raw.clear();
    for (int i = 0; i < size; ++i) {
        if (i > 0) joined.raw += ' ';
        joined.raw += reflection->GetRepeatedStringReference(holder, leaf, i, &scratch);
    }
    Settle(cut, &joined, out);
}

void ReadLabel(const v1::Event& event, const Field& field, FieldValue* out) {
    const auto it = event.sandbox().labels().find(field.map_key);
    if (it != event.sandbox().labels().end()) AddText(ToValidUtf8(it->second), out);
}

void ReadLeaf(const v1::Event& event, const Message& holder, const Field& field, FieldValue* out) {
    switch (field.kind) {
        case Field::Kind::kText:
            return ReadText(event, holder, field, out);
        case Field::Kind::kNumber:
            return ReadNumber(holder, field, out);
        case Field::Kind::kBool:
            return AddText(Flag(holder, field.steps.back()) ? "true" : "false", out);
        case Field::Kind::kTime:
            if (holder.GetReflection()->HasField(holder, field.steps.back()))
                AddTime(holder.GetReflection()->GetMessage(holder, field.steps.back()), out);
            return;
        case Field::Kind::kUnrecorded:
            return;
    }
}

void Descend(const v1::Event& event, const Message& message, const Field& field, size_t step,
             FieldValue* out) {
    if (step + 1 == field.steps.size()) return ReadLeaf(event, message, field, out);
    const FieldDescriptor* next = field.steps[step];
    const auto* reflection = message.GetReflection();
    if (!next->is_repeated()) {
        if (reflection->HasField(message, next))
            Descend(event, reflection->GetMessage(message, next), field, step + 1, out);
        return;
    }
    const int size = reflection->FieldSize(message, next);
    for (int i = 0; i < (field.first_only ? std::min(size, 1) : size); ++i)
        Descend(event, reflection->GetRepeatedMessage(message, next, i), field, step + 1, out);
}

// Texts chosen by somebody: what secrecy calls plain are words and numbers of ours.
void Collect(const v1::Event& event, const Message& message, FieldValue* out) {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    for (const FieldDescriptor* leaf : fields) {
        if (leaf->is_map()) continue;
        if (leaf->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
            if (!leaf->is_repeated()) {
                Collect(event, message.GetReflection()->GetMessage(message, leaf), out);
                continue;
            }
            for (int i = 0; i < message.GetReflection()->FieldSize(message, leaf); ++i)
                Collect(event, message.GetReflection()->GetRepeatedMessage(message, leaf, i), out);
        } else if (leaf->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
            Field field{.path = "", .kind = Field::Kind::kText, .steps = {leaf}};
            field.joined = leaf->is_repeated() &&
                           leaf->options().GetExtension(v1::field).secrecy() == v1::SECRET_BEARING;
            FindDetails(leaf, &field);
            ReadText(event, message, field, out);
        }
    }
}

}  // namespace

bool FieldValue::HasHole() const {
    if (state == State::kUnknown) return true;
    for (const Text& text : texts) {
        if (text.hole) return true;
    }
    return false;
}

void FieldValue::Clear() {
    state = State::kAbsent;
    numbers.clear();
    for (Text& text : texts) spare_.push_back(std::move(text));
    texts.clear();
}

Text& FieldValue::AddText() {
    if (spare_.empty()) return texts.emplace_back();
    texts.push_back(std::move(spare_.back()));
    spare_.pop_back();
    return texts.back();
}

void ReadField(const v1::Event& event, const Field& field, FieldValue* value) {
    if (field.kind == Field::Kind::kUnrecorded) {
        value->state = FieldValue::State::kUnknown;
    } else if (!field.constant.empty()) {
        AddText(field.constant, value);
    } else if (!field.map_key.empty()) {
        ReadLabel(event, field, value);
    } else {
        Descend(event, event, field, 0, value);
        if (field.empty_is_unknown && value->state == FieldValue::State::kAbsent)
            value->state = FieldValue::State::kUnknown;
    }
}

const FieldValue& EventView::Get(const Field& field) {
    if (field.number >= slots_.size()) slots_.resize(field.number + 1);
    std::unique_ptr<Slot>& slot = slots_[field.number];
    if (slot == nullptr) slot = std::make_unique<Slot>();
    if (slot->stamp != stamp_) {
        slot->stamp = stamp_;
        slot->value.Clear();
        ReadField(*event_, field, &slot->value);
    }
    return slot->value;
}

const FieldValue& EventView::Keywords() {
    if (keywords_.stamp != stamp_) {
        keywords_.stamp = stamp_;
        keywords_.value.Clear();
        Collect(*event_, *event_, &keywords_.value);
    }
    return keywords_.value;
}

}  // namespace stockade::detect
