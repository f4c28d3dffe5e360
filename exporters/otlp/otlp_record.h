// An event as a log record of OTLP. Pure.
#pragma once

#include "exporters/format/format.h"
#include "exporters/otlp/otlp.pb.h"
#include "userspace/base/status.h"
#include "userspace/model/event_bytes.h"

namespace stockade::exporters {

// kInvalidArgument: the bytes are no event that this version reads.
StatusOr<otlp::LogRecord> ToLogRecord(const model::EventBytes& bytes, Format format, uint64_t observed_ns);
// The node whose events they are: service.name stockade, host.name.
otlp::Resource ToResource(const std::string& node);
// That the receiver may have it already.
void MarkAgain(otlp::LogRecord* record);

}  // namespace stockade::exporters
