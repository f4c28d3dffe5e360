// What an exporter writes, and under which names. Pure.
//
//   SK_ASSIGN_OR_RETURN(Format format, FormatNamed("ocsf"));
//   std::string body;
//   SK_RETURN_IF_ERROR(AppendAs(format, event, &body));
//   for (auto& [name, value] : CloudEventHeaders(event, format)) ...
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/model/event_bytes.h"

namespace stockade::exporters {

enum class Format { kNative, kOcsf };

// "json" or "ocsf"; kInvalidArgument lists them.
StatusOr<Format> FormatNamed(absl::string_view name);
// kInvalidArgument, and nothing appended: the bytes are no event that this version reads.
Status AppendAs(Format format, const model::EventBytes& event, std::string* out);

// What an event is about: process, file, network, dns, findings, lifecycle or audit. Topics are named by it.
absl::string_view ClassOf(const model::EventBytes& event);
std::vector<absl::string_view> Classes();

// What events are kept in order by: the session, where there is none the sandbox, else the node.
absl::string_view KeyOf(const model::EventBytes& event);

// CloudEvents 1.0, binary mode, as the Kafka binding spells it: ce_id, ce_source, ce_type and so on, and
// the content type of the body.
using Headers = std::vector<std::pair<absl::string_view, std::string>>;
Headers CloudEventHeaders(const model::EventBytes& event, Format format);

}  // namespace stockade::exporters
