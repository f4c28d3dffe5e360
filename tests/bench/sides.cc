#include "tests/bench/sides.h"

namespace stockade::bench {
namespace {

// An exec takes a hundred times as long as the others.
uint64_t TimesAsLong(Op op) { return op == Op::kExec ? 4 : 1; }

}  // namespace

void Series::Add(const std::vector<double>& round) {
    samples.insert(samples.end(), round.begin(), round.end());
    medians.push_back(Median(round));
}

Status MeasureAll(Worker& worker, const std::vector<Op>& ops, uint64_t wall_ns, Side* side) {
    for (const Op op : ops) {
        SK_ASSIGN_OR_RETURN(const std::vector<double> samples, worker.Measure(op, wall_ns * TimesAsLong(op)));
        (*side)[op].Add(samples);
    }
    return absl::OkStatus();
}

Figure Compare(const std::string& name, const Series& baseline, const std::string& baseline_is,
               const Series& with) {
    Figure figure;
    figure.name = name;
    figure.baseline_is = baseline_is;
    figure.baseline = QuantilesOf(baseline.samples);
    figure.with = QuantilesOf(with.samples);
    figure.added = Differences(baseline.medians, with.medians);
    return figure;
}

}  // namespace stockade::bench
