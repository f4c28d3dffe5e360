// What looking for secrets costs for an event that has none.
#include <benchmark/benchmark.h>

#include "userspace/decode/redact.h"

namespace stockade::decode {
namespace {

void InnocentFileEvent(benchmark::State& state) {
    v1::Event event;
    event.mutable_process()->set_exe("/usr/bin/python3.11");
    event.mutable_process()->set_comm("python3");
    event.mutable_process()->add_argv("python3");
    event.mutable_process()->add_argv("/in/tool.py");
    event.mutable_file()->set_path("/usr/lib/python3.11/site-packages/requests/adapters.py");
    for (auto _ : state) benchmark::DoNotOptimize(Redactor::Default().Redact(&event));
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(InnocentFileEvent);

void LongArguments(benchmark::State& state) {
    v1::Event event;
    std::string line;
    while (line.size() < 2000) line += "-I/usr/include/c++/12 -DNAME=value src/some/file.cc ";
    event.mutable_exec()->add_argv("sh");
    event.mutable_exec()->add_argv(line);
    for (auto _ : state) benchmark::DoNotOptimize(Redactor::Default().Redact(&event));
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(line.size()));
}
BENCHMARK(LongArguments);

}  // namespace
}  // namespace stockade::decode
