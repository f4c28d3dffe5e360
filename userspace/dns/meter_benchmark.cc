// What the meter costs a query: build/dev/bin/dns_meter_benchmark
#include <benchmark/benchmark.h>

#include "absl/strings/str_cat.h"
#include "userspace/dns/knowledge.h"

namespace stockade::dns {
namespace {

constexpr sk_hash_keys kKeys = {0x1234567890abcdef, 0xfedcba0987654321, 42};

// A session of some hundred names, each asked again and again.
void BM_Session(benchmark::State& state) {
    KnowledgeTexts texts;
    texts.budgets.total = texts.budgets.zone = Budgets::kUnlimited;
    const Knowledge knowledge = *MakeKnowledge(texts);
    std::vector<std::string> names;
    for (int i = 0; i < state.range(0); ++i)
        names.push_back(absl::StrCat(i % 3 ? "www" : "static-assets", ".shop", i / 3, ".co.uk"));
    Meter meter(knowledge, MeterState(kKeys));
    uint64_t number = 0;
    for (auto _ : state) {
        const std::string& name = names[number % names.size()];
        benchmark::DoNotOptimize(
            meter.Ask({.name = name, .sent = name, .type = 1, .time_ns = ++number * 1'000'000}));
    }
}
BENCHMARK(BM_Session)->Arg(10)->Arg(100)->Arg(700);

void BM_LabelCost(benchmark::State& state) {
    const Knowledge knowledge = *MakeKnowledge({});
    for (auto _ : state) benchmark::DoNotOptimize(knowledge.model.Name("static-assets.eu-west-1"));
}
BENCHMARK(BM_LabelCost);

void BM_LongestName(benchmark::State& state) {
    const Knowledge knowledge = *MakeKnowledge({});
    const std::string name = absl::StrCat(std::string(63, 'a'), ".", std::string(32, 'b'));
    for (auto _ : state) benchmark::DoNotOptimize(knowledge.model.Name(name));
}
BENCHMARK(BM_LongestName);

void BM_FindZone(benchmark::State& state) {
    const Knowledge knowledge = *MakeKnowledge({});
    for (auto _ : state) benchmark::DoNotOptimize(knowledge.suffixes.Find("a.b.example.co.uk"));
}
BENCHMARK(BM_FindZone);

}  // namespace
}  // namespace stockade::dns
