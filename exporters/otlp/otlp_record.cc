#include "exporters/otlp/otlp_record.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stockade::exporters {
namespace {

// Of OTLP's data model: the lowest number of each range.
struct Severity {
    int number;
    const char* text;
};
constexpr Severity kInfo{9, "INFO"}, kWarn{13, "WARN"}, kError{17, "ERROR"}, kFatal{21, "FATAL"};

Severity SeverityOf(const v1::Event& event) {
    if (event.has_finding()) {
        const std::string& word = event.finding().severity();
        if (word == "critical") return kFatal;
        if (word == "high") return kError;
        return word == "medium" ? kWarn : kInfo;
    }
    if (event.has_lost()) return kError;
    const std::string& verdict = event.verdict();
    if (verdict == "kill-sandbox" || verdict == "kill-process") return event.dry_run() ? kWarn : kError;
    if (verdict == "deny") return kWarn;
    return event.has_action() ? kWarn : kInfo;
}

void Add(google::protobuf::RepeatedPtrField<otlp::KeyValue>* to, const char* key, const std::string& text) {
    if (text.empty()) return;
    otlp::KeyValue* entry = to->Add();
    entry->set_key(key);
    entry->mutable_value()->set_text(text);
}

void AddNumber(google::protobuf::RepeatedPtrField<otlp::KeyValue>* to, const char* key, uint64_t number) {
    if (number == 0) return;
    otlp::KeyValue* entry = to->Add();
    entry->set_key(key);
    entry->mutable_value()->set_number(static_cast<int64_t>(number));
}

// 00-<32 hex>-<16 hex>-<2 hex>, checked when the sandbox was made. An event of another agent's spool may hold anything.
void AddTrace(const std::string& traceparent, otlp::LogRecord* record) {
    constexpr size_t kSize = 55, kTraceAt = 3, kSpanAt = 36, kFlagsAt = 53;
    if (traceparent.size() != kSize) return;
    for (const size_t i : {size_t{2}, kSpanAt - 1, kFlagsAt - 1})
        if (traceparent[i] != '-') return;
    const auto hex = [](absl::string_view text) {
        return text.find_first_not_of("0123456789abcdef") == text.npos;
    };
    const absl::string_view all = traceparent;
    const absl::string_view trace = all.substr(kTraceAt, 32), span = all.substr(kSpanAt, 16),
                            flags = all.substr(kFlagsAt);
    if (!hex(trace) || !hex(span) || !hex(flags)) return;
    record->set_trace_id(absl::HexStringToBytes(trace));
    record->set_span_id(absl::HexStringToBytes(span));
    record->set_flags(static_cast<uint8_t>(absl::HexStringToBytes(flags)[0]));
}

}  // namespace

StatusOr<otlp::LogRecord> ToLogRecord(const model::EventBytes& bytes, Format format, uint64_t observed_ns) {
    v1::Event event;
    SK_RETURN_IF_ERROR(bytes.Parse(&event));
    otlp::LogRecord record;
    record.set_time_unix_nano(static_cast<uint64_t>(event.time().seconds()) * 1'000'000'000 +
                              static_cast<uint64_t>(event.time().nanos()));
    record.set_observed_time_unix_nano(observed_ns);
    const Severity severity = SeverityOf(event);
    record.set_severity_number(severity.number);
    record.set_severity_text(severity.text);
    SK_RETURN_IF_ERROR(AppendAs(format, bytes, record.mutable_body()->mutable_text()));
    record.set_event_name(
        absl::StrCat("dev.stockade.event.", event.kind().empty() ? "unknown" : event.kind(), ".v1"));
    AddTrace(event.sandbox().trace(), &record);
    auto* attributes = record.mutable_attributes();
    Add(attributes, "log.record.uid", event.id());
    Add(attributes, "session.id", event.sandbox().session());
    Add(attributes, "stockade.sandbox.id", event.sandbox().id());
    Add(attributes, "stockade.tool", event.sandbox().tool());
    Add(attributes, "stockade.kind", event.kind());
    Add(attributes, "stockade.class", std::string(ClassOf(bytes)));
    Add(attributes, "stockade.policy", event.policy().name());
    Add(attributes, "stockade.verdict", event.verdict());
    Add(attributes, "stockade.code", event.code());
    AddNumber(attributes, "stockade.export_seq", event.export_seq());
    return record;
}

otlp::Resource ToResource(const std::string& node) {
    otlp::Resource resource;
    Add(resource.mutable_attributes(), "service.name", "stockade");
    Add(resource.mutable_attributes(), "host.name", node);
    return resource;
}

void MarkAgain(otlp::LogRecord* record) {
    for (const otlp::KeyValue& entry : record->attributes())
        if (entry.key() == "stockade.again") return;
    otlp::KeyValue* entry = record->add_attributes();
    entry->set_key("stockade.again");
    entry->mutable_value()->set_flag(true);
}

}  // namespace stockade::exporters
