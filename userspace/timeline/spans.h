// Spans of OpenTelemetry, as OTLP writes them in JSON (opentelemetry-proto, trace.proto; ids in hexadecimal).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::timeline {

// A session has a few hundred spans of some KiB at most.
inline constexpr size_t kMaxSpanBytes = 64 << 20;

struct Span {
    std::string trace, id, name;
    uint64_t start_ns = 0, end_ns = 0;  // since 1970
};

// One request ({"resourceSpans": ...}), or one a line, as the collector's file exporter writes them. kInvalidArgument
// names the line.
StatusOr<std::vector<Span>> ParseSpans(absl::string_view text);

}  // namespace stockade::timeline
