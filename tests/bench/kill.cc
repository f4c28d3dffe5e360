// kill.*: from the violation in the kernel until the sandbox's cgroup is empty, by the real agent, evidence on.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/bench/bench.h"
#include "tests/bench/session.h"

namespace stockade::bench {
namespace {

// Each process of a large sandbox takes time to start as well.
constexpr int kLargeRuns = 30;

double Ms(uint64_t from_ns, uint64_t to_ns) {
    return (static_cast<double>(to_ns) - static_cast<double>(from_ns)) / 1e6;
}

// Boot time of a step; 0 = it did not happen.
uint64_t Step(const Session::Sandboxed& run, const char* name) {
    const auto found = run.times.find(name);
    return found == run.times.end() ? 0 : found->second;
}

Status MeasureKill(Session& session, int processes, int runs, std::vector<Figure>* figures) {
    std::vector<double> empty_ms, asked_ms;
    int untold = 0;
    for (int i = 0; i < runs; i++) {
        // The one that violates is one of them.
        SK_ASSIGN_OR_RETURN(const Session::Sandboxed run, session.Run({"kill", absl::StrCat(processes - 1)}));
        const uint64_t condemned = Step(run, "condemned"), asked = Step(run, "kill_asked");
        // One process that is stopped in the kernel is gone before there is anything left to kill.
        const uint64_t empty = Step(run, "empty") != 0 ? Step(run, "empty") : Step(run, "ended");
        if (run.ran.status != 137) {
            return absl::InternalError(
                absl::StrCat("the sandbox was not killed: status ", run.ran.status, " ", run.ran.err));
        }
        if (condemned == 0 || empty < condemned) {
            untold++;
            continue;
        }
        empty_ms.push_back(Ms(condemned, empty));
        if (asked != 0) asked_ms.push_back(Ms(condemned, asked));
    }
    Figure figure{.name = absl::StrCat("kill.violation_to_empty.", processes), .unit = "ms"};
    if (empty_ms.empty()) return absl::InternalError("--result never says when it was condemned and empty");
    figure.with = QuantilesOf(empty_ms);
    if (processes == 100) figure.target = {.of = Target::Of::kP99, .limit = 10, .text = "p99 at most 10 ms"};
    figure.note = absl::StrCat(
        "of it until cgroup.kill is written: ", static_cast<int>(Median(asked_ms) * 1000), " us");
    if (untold > 0) absl::StrAppend(&figure.note, "; ", untold, " of ", runs, " results do not say when");
    figures->push_back(std::move(figure));
    return absl::OkStatus();
}

}  // namespace

Status RunKill(const Settings& settings, std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const auto session, Session::Open(settings));
    SK_RETURN_IF_ERROR(session->Run({"exit"}).status());  // the agent is up
    SK_RETURN_IF_ERROR(MeasureKill(*session, 1, settings.runs, figures));
    SK_RETURN_IF_ERROR(MeasureKill(*session, 100, settings.runs, figures));
    return MeasureKill(*session, 400, std::min(settings.runs, kLargeRuns), figures);
}

}  // namespace stockade::bench
