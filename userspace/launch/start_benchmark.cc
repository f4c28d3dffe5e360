// Start and end of a native sandbox: run.start_to_first_instruction and run.exit_to_removed.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "userspace/launch/start_measure.h"

namespace stockade::launch {
namespace {

void BM_StartToFirstInstruction(benchmark::State& state) {
    auto probe = OwnProbe();
    if (!probe.ok()) return state.SkipWithError(std::string(probe.status().message()).c_str());
    std::vector<double> start_ms, destroy_ms;
    for (auto _ : state) {
        auto figures = MeasureStart(*probe);
        if (!figures.ok()) return state.SkipWithError(std::string(figures.status().message()).c_str());
        state.SetIterationTime(figures->start_ns * 1e-9);
        start_ms.push_back(figures->start_ns * 1e-6);
        destroy_ms.push_back(figures->removed_ns * 1e-6);
    }
    std::sort(start_ms.begin(), start_ms.end());
    std::sort(destroy_ms.begin(), destroy_ms.end());
    state.counters["start_p50_ms"] = start_ms[start_ms.size() / 2];
    state.counters["start_p99_ms"] = start_ms[start_ms.size() * 99 / 100];
    state.counters["removed_p50_ms"] = destroy_ms[destroy_ms.size() / 2];
    state.counters["removed_p99_ms"] = destroy_ms[destroy_ms.size() * 99 / 100];
}
BENCHMARK(BM_StartToFirstInstruction)->UseManualTime()->Iterations(200)->Unit(benchmark::kMillisecond);

void BM_CompileSeccomp(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(CompileSeccomp(0));
}
BENCHMARK(BM_CompileSeccomp)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace stockade::launch
