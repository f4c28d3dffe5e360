#include "exporters/format/format.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporters/format/ocsf.h"
#include "userspace/model/json.h"

namespace stockade::exporters {
namespace {

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

void AppendAs(Format format, const v1::Event& event, std::string* out) {
    switch (format) {
        case Format::kNative:
            model::AppendJson(event, out);
            break;
        case Format::kOcsf:
            AppendOcsf(event, out);
            break;
    }
}

absl::string_view ClassOf(const v1::Event& event) {
    switch (event.payload_case()) {
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
        case v1::Event::kFinding:
        case v1::Event::kAction:
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

const std::string& KeyOf(const v1::Event& event) {
    if (!event.sandbox().session().empty()) return event.sandbox().session();
    return event.sandbox().id().empty() ? event.node() : event.sandbox().id();
}

Headers CloudEventHeaders(const v1::Event& event, Format format) {
    Headers headers = {
        {"ce_specversion", "1.0"},
        {"ce_id", event.id()},
        {"ce_source", absl::StrCat("/stockade/node/", Segment(event.node()))},
        {"ce_type",
         absl::StrCat("dev.stockade.event.", event.kind().empty() ? "unknown" : event.kind(), ".v1")},
        {"content-type", "application/json"},
        {"ce_partitionkey", KeyOf(event)},
    };
    if (event.has_time()) {
        std::string time;
        model::AppendJson(event.time(), &time);
        headers.emplace_back("ce_time", time.substr(1, time.size() - 2));
    }
    if (!event.sandbox().id().empty()) headers.emplace_back("ce_subject", event.sandbox().id());
    // The extension for distributed tracing: the sandbox's own trace.
    if (!event.sandbox().trace().empty()) headers.emplace_back("ce_traceparent", event.sandbox().trace());
    if (format == Format::kOcsf) {
        headers.emplace_back("ce_dataschema", absl::StrCat("https://schema.ocsf.io/", kOcsfVersion));
    }
    return headers;
}

}  // namespace stockade::exporters
