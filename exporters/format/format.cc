#include "exporters/format/format.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/timestamp.pb.h>

#include "absl/strings/str_cat.h"
#include "exporters/format/ocsf.h"
#include "userspace/model/json.h"

namespace stockade::exporters {
namespace {

constexpr size_t kMostHeaders = 10;

// A URI path segment (RFC 3986): what else a node may be called is percent-encoded.
std::string Segment(absl::string_view text) {
    static constexpr char kHex[] = "0123456789ABCDEF";
    std::string out;
    for (const unsigned char c : text) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           c == '-' || c == '.' || c == '_' || c == '~';
        if (plain)
            out.push_back(static_cast<char>(c));
        else
            out.append({'%', kHex[c >> 4], kHex[c & 15]});
    }
    return out;
}

}  // namespace

StatusOr<Format> FormatNamed(absl::string_view name) {
    if (name == "json") return Format::kNative;
    if (name == "ocsf") return Format::kOcsf;
    return absl::InvalidArgumentError(absl::StrCat("no format \"", name, "\"; there are json and ocsf"));
}

Status AppendAs(Format format, const model::EventBytes& event, std::string* out) {
    if (format == Format::kNative && model::AppendJsonOf(event.bytes, out)) return absl::OkStatus();
    // One block of memory for all of its messages.
    google::protobuf::Arena arena;
    v1::Event& parsed = *google::protobuf::Arena::CreateMessage<v1::Event>(&arena);
    SK_RETURN_IF_ERROR(event.Parse(&parsed));
    if (format == Format::kNative)
        model::AppendJson(parsed, out);
    else
        AppendOcsf(parsed, out);
    return absl::OkStatus();
}

absl::string_view ClassOf(const model::EventBytes& event) {
    switch (event.payload) {
        case v1::Event::kExec:
        case v1::Event::kExit:
        case v1::Event::kFork:
        case v1::Event::kEscape:
            return "process";
        case v1::Event::kFile:
            return "file";
        case v1::Event::kNet:
            return "network";
        case v1::Event::kDns:
            return "dns";
        case v1::Event::kAction:
            // What a person asked for is looked up by who it was.
            return event.by_person ? "audit" : "findings";
        case v1::Event::kFinding:
            return "findings";
        case v1::Event::kAgent:
            return "audit";
        // What stands for records of any class, and what closes the books, is read with the sandbox's life.
        case v1::Event::kLifecycle:
        case v1::Event::kRepeat:
        case v1::Event::kLost:
        case v1::Event::kSummary:
        case v1::Event::kSeal:
        case v1::Event::PAYLOAD_NOT_SET:
            break;
    }
    return "lifecycle";
}

std::vector<absl::string_view> Classes() {
    return {"process", "file", "network", "dns", "findings", "lifecycle", "audit"};
}

absl::string_view KeyOf(const model::EventBytes& event) {
    if (!event.session.empty()) return event.session;
    return event.sandbox.empty() ? event.node : event.sandbox;
}

Headers CloudEventHeaders(const model::EventBytes& event, Format format) {
    Headers headers;
    headers.reserve(kMostHeaders);
    headers.emplace_back("ce_specversion", "1.0");
    headers.emplace_back("ce_id", event.id);
    headers.emplace_back("ce_source", absl::StrCat("/stockade/node/", Segment(event.node)));
    headers.emplace_back("ce_type", absl::StrCat("dev.stockade.event.", event.kind.empty() ? "unknown" : event.kind, ".v1"));
    headers.emplace_back("content-type", "application/json");
    headers.emplace_back("ce_partitionkey", KeyOf(event));
    google::protobuf::Timestamp time;
    // What cannot be read is not said: the body is refused for it.
    if (event.has_time && time.ParseFromArray(event.time.data(), static_cast<int>(event.time.size()))) {
        std::string text;
        model::AppendJson(time, &text);
        headers.emplace_back("ce_time", text.substr(1, text.size() - 2));
    }
    if (!event.sandbox.empty()) headers.emplace_back("ce_subject", event.sandbox);
    // The extension for distributed tracing: the sandbox's own trace.
    if (!event.trace.empty()) headers.emplace_back("ce_traceparent", event.trace);
    if (format == Format::kOcsf)
        headers.emplace_back("ce_dataschema", absl::StrCat("https://schema.ocsf.io/", kOcsfVersion));
    return headers;
}

}  // namespace stockade::exporters
