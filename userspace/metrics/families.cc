#include "userspace/metrics/families.h"

namespace stockade::metrics {

Sample& Families::Row(absl::string_view name, absl::string_view help, Kind kind, Labels labels) {
    if (families_.empty() || families_.back().name != name) {
        families_.push_back(
            {.name = std::string(name), .help = std::string(help), .kind = kind, .samples = {}});
    }
    Sample& sample = families_.back().samples.emplace_back();
    sample.labels = std::move(labels);
    return sample;
}

void Families::Counter(absl::string_view name, absl::string_view help, double value, Labels labels) {
    Row(name, help, Kind::kCounter, std::move(labels)).value = value;
}

void Families::Gauge(absl::string_view name, absl::string_view help, double value, Labels labels) {
    Row(name, help, Kind::kGauge, std::move(labels)).value = value;
}

void Families::Add(absl::string_view name, absl::string_view help, const Histogram::Counts& counts,
                   Labels labels) {
    Row(name, help, Kind::kHistogram, std::move(labels)).histogram = counts;
}

}  // namespace stockade::metrics
