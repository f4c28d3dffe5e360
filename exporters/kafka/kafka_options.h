// The options of exporters/kafka/kafka.h, checked.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "exporters/exporter.h"
#include "exporters/format/format.h"

namespace stockade::exporters {

struct KafkaOptions {
    std::map<std::string, std::string, std::less<>> topics;  // by class
    Format format = Format::kNative;
    std::string hostport;
    std::vector<std::pair<std::string, std::string>> settings;  // librdkafka's own
};

StatusOr<KafkaOptions> ParseKafkaOptions(const ExporterOptions& options);
// In order, also the names of single topics.
std::vector<std::string> KafkaOptionNames();

}  // namespace stockade::exporters
