// The options of exporters/otlp/otlp.h, checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exporters/exporter.h"
#include "exporters/format/format.h"

namespace stockade::exporters {

struct OtlpOptions {
    std::string endpoint;
    Format format = Format::kNative;
    std::vector<std::string> headers{};  // "Name: value"; secrets among them
    std::string cacertfile{}, certfile{}, keyfile{};
    int timeout_ms = 10'000;
    size_t batch_bytes = 1 << 20;
};

StatusOr<OtlpOptions> ParseOtlpOptions(const ExporterOptions& options);
std::vector<std::string> OtlpOptionNames();

}  // namespace stockade::exporters
