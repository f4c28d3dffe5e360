// What rules cost an event: build/dev/bin/detect_match_benchmark
//
// Generated in the shape of Sigma's rules for Linux: four of five about process_creation, most with an image
// and some texts of the command line, one of twelve with a regular expression. Events are one part programs,
// three parts files, one part connections, as a build in a sandbox has them.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <cstdlib>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/detect/detector.h"
#include "userspace/detect/parse.h"

namespace stockade::detect {
namespace {

// One word of four is a common one, so that rules find parts of what they look for.
std::string Word(std::mt19937& random) {
    static constexpr const char* kCommon[] = {"bin",     "usr",    "tmp",   "out",     "build",  "config",
                                              "install", "output", "file",  "cache",   "python", "node",
                                              "make",    "cmake",  "test",  "lib",     "run",    "exec",
                                              "log",     "local",  "share", "include", "debug",  "version"};
    if (random() % 4 == 0) return kCommon[random() % std::size(kCommon)];
    std::string word;
    for (int n = 3 + static_cast<int>(random() % 8); n > 0; --n)
        word += static_cast<char>('a' + random() % 26);
    return word;
}

std::string Detection(std::mt19937& random) {
    const auto list = [&](const char* before, int n) {
        std::string out = "[";
        for (int i = 0; i < n; ++i) absl::StrAppend(&out, i ? ", '" : "'", before, Word(random), "'");
        return out + "]";
    };
    switch (random() % 12) {
        case 0:
            return absl::StrCat("  s:\n    CommandLine|re: '", Word(random), "\\s+-[a-z]*", Word(random),
                                "\\b'\n  condition: s\n");
        case 1:
            return absl::StrCat("  s:\n    ParentImage|endswith: '/", Word(random),
                                "'\n    CommandLine|contains: ", list("", 2), "\n  condition: s\n");
        case 2:
            return absl::StrCat("  a:\n    Image|endswith: ", list("/", 3),
                                "\n  b:\n    CommandLine|contains: ", list(" -", 4),
                                "\n  f:\n    ParentImage|startswith: /opt/", Word(random),
                                "\n  condition: a and b and not f\n");
        case 3:
        case 4:
            return absl::StrCat("  s:\n    CommandLine|contains|all: ", list(" ", 3), "\n  condition: s\n");
        default:
            return absl::StrCat("  a:\n    Image|endswith: ", list("/", 2),
                                "\n  b:\n    CommandLine|contains: ", list(" --", 3),
                                "\n  condition: all of them\n");
    }
}

std::vector<Rule> Rules(int64_t count) {
    std::mt19937 random(7);
    std::string yaml;
    std::vector<policy::SourceFile> files;
    for (int64_t i = 0; i < count; ++i) {
        const bool file = random() % 6 == 0, net = !file && random() % 15 == 0;
        absl::StrAppend(&yaml, "---\ntitle: R", i, "\nlogsource: {product: linux, category: ",
                        file  ? "file_event"
                        : net ? "network_connection"
                              : "process_creation",
                        "}\ndetection:\n");
        if (file) {
            absl::StrAppend(&yaml, "  s:\n    TargetFilename|startswith: ['/etc/", Word(random), "', '/var/",
                            Word(random), "']\n  condition: s\n");
        } else if (net) {
            absl::StrAppend(&yaml, "  s:\n    DestinationPort: ", 1 + random() % 60000,
                            "\n    Image|endswith: /", Word(random), "\n  condition: s\n");
        } else {
            yaml += Detection(random);
        }
        // The reader takes half a megabyte a file.
        if (i % 500 == 499 || i + 1 == count)
            files.push_back({absl::StrCat(i, ".yaml"), std::exchange(yaml, "")});
    }
    ParsedRules parsed = ParseRules(files);
    if (policy::HasErrors(parsed.diagnostics)) std::abort();
    return std::move(parsed.rules);
}

std::vector<v1::Event> Events() {
    std::mt19937 random(11);
    std::vector<v1::Event> events;
    for (int i = 0; i < 500; ++i) {
        v1::Event event;
        event.set_id("e");
        event.mutable_time()->set_seconds(i);
        event.mutable_sandbox()->set_id("sbx_1");
        event.mutable_process()->set_exe(absl::StrCat("/usr/bin/", Word(random)));
        event.mutable_process()->add_ancestry()->set_exe("/usr/bin/make");
        if (i % 5 == 0) {
            event.mutable_exec()->set_role("program");
            event.mutable_exec()->set_path(absl::StrCat("/usr/lib/gcc/x86_64-linux-gnu/12/", Word(random)));
            for (int n = 0; n < 12; ++n)
                event.mutable_exec()->add_argv(absl::StrCat(n % 3 ? "" : "--", Word(random)));
        } else if (i % 5 == 1) {
            event.mutable_net()->set_op("connect");
            event.mutable_net()->set_address("10.0.0.1");
            event.mutable_net()->set_port(443);
        } else {
            event.mutable_file()->set_op(i % 5 == 2 ? "create" : "open-read");
            event.mutable_file()->set_path(
                absl::StrCat("/srv/build/", Word(random), "/", Word(random), "/", Word(random), ".o"));
        }
        events.push_back(std::move(event));
    }
    return events;
}

// What is held in the end; what reading the rules took is given back by then.
size_t HeldBytes() {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

void BM_Events(benchmark::State& state) {
    const std::vector<v1::Event> events = Events();
    const size_t before = HeldBytes();
    Detector detector(Rules(state.range(0)));
    state.counters["bytes"] = static_cast<double>(HeldBytes() - before);
    size_t next = 0;
    for (auto _ : state) {
        benchmark::DoNotOptimize(detector.OnEvent(events[next]));
        next = next + 1 == events.size() ? 0 : next + 1;
    }
    state.SetItemsProcessed(state.iterations());
    state.counters["looked_at"] =
        static_cast<double>(detector.match_counters().evaluated) / static_cast<double>(state.iterations());
    state.counters["scanner_bytes"] = static_cast<double>(detector.scanner_bytes());
}
BENCHMARK(BM_Events)->Arg(0)->Arg(60)->Arg(600)->Arg(6000);

void BM_Load(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(Detector(Rules(state.range(0))));
}
BENCHMARK(BM_Load)->Arg(600)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stockade::detect
