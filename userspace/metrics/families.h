// What the agent has counted, at one moment: values only, named as Prometheus wants it.
//
//   Families families;
//   families.Counter("stockade_sandboxes_started_total", "Sandboxes whose command ran.", 7);
//   families.Counter("stockade_sandboxes_ended_total", "Sandboxes that ended, by how.", 3, {{"end", "policy"}});
//
// A label's values come from tables of ours and never from a sandbox, so that their number is bounded.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/histogram.h"

namespace stockade::metrics {

using Labels = std::vector<std::pair<std::string, std::string>>;

enum class Kind { kCounter, kGauge, kHistogram };

struct Sample {
    Labels labels;
    double value = 0;
    Histogram::Counts histogram;  // of kHistogram, in place of value
};

struct Family {
    std::string name;
    std::string help;
    Kind kind = Kind::kCounter;
    std::vector<Sample> samples;
};

class Families {
  public:
    // Rows of one name stand together: all calls of a name follow each other.
    void Counter(absl::string_view name, absl::string_view help, double value, Labels labels = {});
    void Gauge(absl::string_view name, absl::string_view help, double value, Labels labels = {});
    void Add(absl::string_view name, absl::string_view help, const Histogram::Counts& counts,
             Labels labels = {});

    const std::vector<Family>& all() const { return families_; }

  private:
    Sample& Row(absl::string_view name, absl::string_view help, Kind kind, Labels labels);

    std::vector<Family> families_;
};

}  // namespace stockade::metrics
