// stockade-bench: figures of what Stockade costs. They are printed and never asserted; that the measured path is the real one is.
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/bench.h"
#include "userspace/base/fd.h"

namespace stockade::bench {
namespace {

constexpr Bench kBenches[] = {
    {"programs", "steps of the verifier for each program", RunPrograms},
    {"outside", "getppid, open_close, exec, connect, udp_sendto of a task in no sandbox, while one exists",
     RunOutside},
    {"inside", "open_close, exec, connect that are allowed: 10 and 1,000 patterns, 4,096 sandboxes",
     RunInside},
    {"dns", "a query that is sent and judged, usual and of the longest name; the meter in user space; memory", RunDns},
    {"ring", "records read and decoded in a second without loss", RunRing},
    {"events", "events a second from the kernel to JSON lines and to Kafka without loss, CPU, latency, memory; auditd beside it", RunEvents},
    {"run", "start and end of stockade run, beside bwrap and runc", RunStart},
    {"lifecycle", "start and end of stockade run with evidence on disk, beside those without", RunLifecycle},
    {"kill", "violation to empty sandbox, of 1, 100 and 400 sleeping processes", RunKill},
};

constexpr char kHelp[] =
    "stockade-bench [NAME...]: measure what Stockade costs, against interleaved baselines\n\n"
    "  NAME            a bench (inside) or the beginning of its figures (inside.exec); all without one\n"
    "  --json FILE     write the figures to FILE as well (- for standard output, in place of the table)\n"
    "  --seconds S     how long each operation is measured (3)\n"
    "  --rounds N      how often the two sides take turns (11)\n"
    "  --runs N        how many sandboxes run.* and kill.* start (100)\n"
    "  --backend B     auto, signal or lsm (auto)\n"
    "  --list          what there is\n";

struct Flags {
    Settings settings;
    std::vector<std::string> names;
    std::string json;
    bool list = false;
};

int Fail(absl::string_view what) {
    std::cerr << "stockade-bench: " << what << "\n";
    return 2;
}

bool SetBackend(const std::string& name, kernel::Backend* backend) {
    *backend = name == "lsm"      ? kernel::Backend::kLsm
               : name == "signal" ? kernel::Backend::kSignal
                                  : kernel::Backend::kAuto;
    return name == "lsm" || name == "signal" || name == "auto";
}

bool SetFlag(int flag, const std::string& value, Flags* flags) {
    Settings& settings = flags->settings;
    switch (flag) {
        case 'j':
            flags->json = value;
            return !value.empty();
        case 's':
            return absl::SimpleAtod(value, &settings.seconds) && settings.seconds > 0;
        case 'r':
            return absl::SimpleAtoi(value, &settings.rounds) && settings.rounds > 0;
        case 'n':
            return absl::SimpleAtoi(value, &settings.runs) && settings.runs > 0;
        case 'b':
            return SetBackend(value, &settings.backend);
        case 'l':
            flags->list = true;
            return true;
        default:
            return false;
    }
}

// -1 = go on, else the exit status.
int ReadFlags(int argc, char** argv, Flags* flags) {
    const option options[] = {
        {"json", required_argument, nullptr, 'j'},    {"seconds", required_argument, nullptr, 's'},
        {"rounds", required_argument, nullptr, 'r'},  {"runs", required_argument, nullptr, 'n'},
        {"backend", required_argument, nullptr, 'b'}, {"list", no_argument, nullptr, 'l'},
        {"help", no_argument, nullptr, 'h'},          {nullptr, 0, nullptr, 0}};
    for (int flag; (flag = getopt_long(argc, argv, "h", options, nullptr)) != -1;) {
        if (flag == 'h') return fputs(kHelp, stdout), 0;
        if (flag == '?') return 2;
        if (!SetFlag(flag, optarg ? optarg : "", flags)) return Fail(absl::StrCat("not a value: ", optarg));
    }
    flags->names.assign(argv + optind, argv + argc);
    return -1;
}

// "inside" and "inside.exec" both want the bench "inside".
bool Wanted(const Bench& bench, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        if (name == bench.name || absl::StartsWith(name, absl::StrCat(bench.name, "."))) return true;
    }
    return names.empty();
}

bool Shown(const Figure& figure, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        if (absl::StartsWith(figure.name, name)) return true;
    }
    return names.empty();
}

StatusOr<std::string> OwnDirectory() {
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self));
    if (n <= 0) return absl::InternalError("cannot read /proc/self/exe");
    const std::string path(self, static_cast<size_t>(n));
    return path.substr(0, path.rfind('/'));
}

std::string Load() {
    const auto text = ReadFile("/proc/loadavg", 256);
    return text.ok() ? text->substr(0, text->find('\n')) : "unknown";
}

std::vector<std::pair<std::string, std::string>> About(const std::string& load_before) {
    utsname names{};
    (void)uname(&names);
    return {{"kernel", names.release},
            {"machine", names.machine},
            {"cpus", absl::StrCat(sysconf(_SC_NPROCESSORS_ONLN))},
            {"load_before", load_before},
            {"load_after", Load()}};
}

// Figures of one bench at least, or why there are none.
bool RunOne(const Bench& bench, const Flags& flags, std::vector<Figure>* figures) {
    std::cerr << "stockade-bench: " << bench.name << ": " << bench.what << "\n";
    std::vector<Figure> found;
    const Status status = bench.run(flags.settings, &found);
    for (Figure& figure : found) {
        if (Shown(figure, flags.names)) figures->push_back(std::move(figure));
    }
    if (status.ok()) return true;
    std::cerr << "stockade-bench: " << bench.name << ": " << status.message() << "\n";
    figures->push_back({.name = bench.name, .skipped = std::string(status.message())});
    return false;
}

int WriteOut(const Flags& flags, const std::vector<Figure>& figures, const std::string& load_before) {
    const auto about = About(load_before);
    if (flags.json != "-") {
        for (const auto& [key, value] : about) std::cout << key << ": " << value << "\n";
        std::cout << ToTable(figures);
    }
    if (flags.json.empty()) return 0;
    const std::string json = ToJson(figures, about);
    if (flags.json == "-") return std::cout << json << std::flush ? 0 : 1;
    auto file = Fd::Open(flags.json, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const Status status = file.ok() ? WriteAll(file->get(), json) : file.status();
    return status.ok() ? 0 : Fail(status.message());
}

int Main(int argc, char** argv) {
    Flags flags;
    const int early = ReadFlags(argc, argv, &flags);
    if (early >= 0) return early;
    if (flags.list) {
        for (const Bench& bench : kBenches) std::cout << bench.name << "\t" << bench.what << "\n";
        return 0;
    }
    for (const std::string& name : flags.names) {
        bool known = false;
        for (const Bench& bench : kBenches) known |= Wanted(bench, {name});
        if (!known) return Fail(absl::StrCat("no bench ", name, "; --list shows what there is"));
    }
    if (geteuid() != 0) return Fail("loads programs into the kernel and needs root");
    const auto directory = OwnDirectory();
    if (!directory.ok()) return Fail(directory.status().message());
    const char* bin_dir = getenv("STOCKADE_BIN_DIR");
    flags.settings.bin_dir = bin_dir ? bin_dir : *directory;
    flags.settings.step = *directory + "/tests/bench_step";
    (void)signal(SIGPIPE, SIG_IGN);
    flags.settings.names = flags.names;
    const std::string load_before = Load();
    std::vector<Figure> figures;
    bool complete = true;
    for (const Bench& bench : kBenches) {
        if (Wanted(bench, flags.names)) complete &= RunOne(bench, flags, &figures);
    }
    const int written = WriteOut(flags, figures, load_before);
    return written != 0 ? written : complete ? 0 : 1;
}

}  // namespace
}  // namespace stockade::bench

int main(int argc, char** argv) { return stockade::bench::Main(argc, argv); }
