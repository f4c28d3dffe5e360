// What the spool costs for each event: number, chain, checksum, file; and the way back.
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "userspace/pipeline/spool.h"

namespace stockade::pipeline {
namespace {

v1::Event Event(uint64_t seq) {
    v1::Event event;
    event.set_id(absl::StrCat("sbx_01ARZ3NDEKTSV4RRFFQ69G5FAV.", seq));
    event.set_node("node-1.example.org");
    event.set_kind("file");
    event.set_kernel_seq(seq);
    event.set_verdict("allow");
    event.set_outcome("done");
    event.mutable_sandbox()->set_id("sbx_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    event.mutable_sandbox()->set_session("session-4711");
    event.mutable_process()->set_exe("/usr/bin/python3.11");
    event.mutable_process()->add_argv("python3");
    event.mutable_process()->add_argv("/in/tool.py");
    event.mutable_file()->set_op("open-read");
    event.mutable_file()->set_path("/usr/lib/python3.11/site-packages/requests/adapters.py");
    return event;
}

// A pass of a hundred events, as the thread behind the rings makes them; then they are taken away.
void AppendFlushTake(benchmark::State& state) {
    const std::string dir = absl::StrCat("/tmp/spool_benchmark_", getpid());
    {
        auto spool = Spool::Open({.dir = dir, .node = "n1", .readers = {"r"}}).value();
        uint64_t seq = 0;
        int64_t bytes = 0;
        for (auto _ : state) {
            for (int i = 0; i < 100; ++i) {
                v1::Event event = Event(++seq);
                benchmark::DoNotOptimize(spool->Append(&event).ok());
            }
            benchmark::DoNotOptimize(spool->Flush().ok());
            for (int i = 0; i < 100; ++i) {
                const auto record = spool->Next("r");
                bytes += static_cast<int64_t>(record->payload.size());
                spool->Ack("r", record->position);
            }
        }
        state.SetItemsProcessed(state.iterations() * 100);
        state.SetBytesProcessed(bytes);
    }
    std::filesystem::remove_all(dir);
}
BENCHMARK(AppendFlushTake);

}  // namespace
}  // namespace stockade::pipeline
