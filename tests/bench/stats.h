// Samples to the few numbers that a figure is told by.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace stockade::bench {

// The median is the figure; p10 and p90 are its spread.
struct Quantiles {
    size_t samples = 0;
    double p10 = 0, p50 = 0, p90 = 0, p99 = 0;
};
// All 0 for no samples.
Quantiles QuantilesOf(std::vector<double> samples);

// What DESIGN.md section 11 asks for. Said beside the figure, never asserted: the machine's load decides too.
struct Target {
    enum class Of { kAddedMedian, kMedian, kP99, kRatio, kOverFloor, kWithAtLeast };
    Of of = Of::kAddedMedian;
    double limit = 0;  // in the unit of the figure
    std::string text = {};
};

struct Figure {
    std::string name = {};
    std::string unit = "ns";
    std::string baseline_is = {};            // what stood while the baseline was taken
    std::optional<Quantiles> baseline = {};  // over batches
    std::optional<Quantiles> with = {};
    // Over rounds: each round takes both, so a load that comes and goes falls out of the difference.
    std::optional<Quantiles> added = {};
    std::optional<double> floor = {};          // median under an empty program at the end of system calls
    std::optional<Quantiles> over_floor = {};  // over rounds, as `added`
    std::optional<Target> target = {};
    std::string note = {};
    std::string skipped = {};  // why there is no figure

    std::optional<double> ratio() const;
    // Difference of the 10th percentiles: of the batches that the rest of the machine disturbed least.
    std::optional<double> quiet() const;
    // Empty when there is no target or nothing to hold it to.
    std::optional<bool> met() const;
};

// Medians of each round, of both sides, to `added`.
Quantiles Differences(const std::vector<double>& baseline, const std::vector<double>& with);
double Median(std::vector<double> samples);

std::string ToTable(const std::vector<Figure>& figures);
// `about`: lines of what was measured on, as key and value.
std::string ToJson(const std::vector<Figure>& figures,
                   const std::vector<std::pair<std::string, std::string>>& about);

}  // namespace stockade::bench
