#include "userspace/timeline/spans.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stockade::timeline {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

const Value* Find(const Struct& object, const std::string& key) {
    const auto it = object.fields().find(key);
    return it == object.fields().end() ? nullptr : &it->second;
}

std::string Text(const Struct& object, const std::string& key) {
    const Value* value = Find(object, key);
    return value != nullptr ? value->string_value() : "";
}

// 64-bit numbers are strings in OTLP; some writers send plain ones.
uint64_t Number(const Struct& object, const std::string& key) {
    const Value* value = Find(object, key);
    uint64_t number = 0;
    if (value == nullptr) return 0;
    if (value->kind_case() == Value::kNumberValue && value->number_value() > 0 && value->number_value() < 1.8e19)
        return static_cast<uint64_t>(value->number_value());
    return absl::SimpleAtoi(value->string_value(), &number) ? number : 0;
}

// Calls `each` for every object of the list `key`.
template <typename Each>
void ForEach(const Struct& object, const std::string& key, const Each& each) {
    const Value* list = Find(object, key);
    if (list == nullptr) return;
    for (const Value& value : list->list_value().values()) each(value.struct_value());
}

Status ParseOne(absl::string_view text, std::vector<Span>* spans) {
    Struct request;
    const auto status = google::protobuf::util::JsonStringToMessage(std::string(text), &request);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("no JSON: ", std::string(status.message())));
    if (Find(request, "resourceSpans") == nullptr) return absl::InvalidArgumentError("no resourceSpans: is it OTLP?");
    ForEach(request, "resourceSpans", [&](const Struct& resource) {
        ForEach(resource, "scopeSpans", [&](const Struct& scope) {
            ForEach(scope, "spans", [&](const Struct& span) {
                spans->push_back({absl::AsciiStrToLower(Text(span, "traceId")), absl::AsciiStrToLower(Text(span, "spanId")), Text(span, "name"),
                                  Number(span, "startTimeUnixNano"), Number(span, "endTimeUnixNano")});
            });
        });
    });
    return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<Span>> ParseSpans(absl::string_view text) {
    std::vector<Span> spans;
    if (ParseOne(text, &spans).ok()) return spans;
    spans.clear();
    size_t number = 0;
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
        ++number;
        if (absl::StripAsciiWhitespace(line).empty()) continue;
        const Status status = ParseOne(line, &spans);
        if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", status.message()));
    }
    return spans;
}

}  // namespace stockade::timeline
