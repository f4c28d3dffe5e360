// lifecycle.*: what evidence on disk adds to a run: its start, and from the end of the command until it is removed and its folder closed.
#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/bench.h"
#include "tests/bench/session.h"

namespace stockade::bench {
namespace {

// Between two runs: the next sandbox stands by then (ADR 9).
constexpr useconds_t kApartUs = 300'000;

struct Side {
    const char* name;
    std::unique_ptr<Session> session;
    std::vector<double> start_ms, removed_ms, kept_ms;
};

double Ms(uint64_t from_ns, uint64_t to_ns) { return (static_cast<double>(to_ns) - static_cast<double>(from_ns)) / 1e6; }

Status RunOne(Side* side) {
    SK_ASSIGN_OR_RETURN(const Session::Sandboxed run, side->session->Run({"now"}));
    uint64_t first_ns = 0;
    if (run.ran.status != 0 || !absl::SimpleAtoi(run.ran.out, &first_ns)) return absl::UnavailableError(absl::StrCat("stockade run did not run the program: ", run.ran.err));
    const auto ended = run.times.find("ended"), removed = run.times.find("removed"), kept = run.times.find("evidence_kept");
    if (ended == run.times.end() || removed == run.times.end()) return absl::InternalError("--result does not say when it was removed");
    side->start_ms.push_back(Ms(run.ran.forked_ns, first_ns));
    side->removed_ms.push_back(Ms(ended->second, removed->second));
    if (kept != run.times.end()) side->kept_ms.push_back(Ms(ended->second, std::max(removed->second, kept->second)));
    return absl::OkStatus();
}

Figure Of(const std::string& name, const std::vector<double>& samples) {
    Figure figure{.name = name, .unit = "ms"};
    figure.with = QuantilesOf(samples);
    return figure;
}

}  // namespace

Status RunLifecycle(const Settings& settings, std::vector<Figure>* figures) {
    Side sides[2] = {{.name = "plain", .session = nullptr, .start_ms = {}, .removed_ms = {}, .kept_ms = {}}, {.name = "evidence", .session = nullptr, .start_ms = {}, .removed_ms = {}, .kept_ms = {}}};
    SK_ASSIGN_OR_RETURN(sides[0].session, Session::Open(settings));
    SK_ASSIGN_OR_RETURN(sides[1].session, Session::Open(settings, true));
    for (int i = -1; i < settings.runs; ++i) {
        (void)usleep(kApartUs);
        for (Side& side : sides) SK_RETURN_IF_ERROR(RunOne(&side));
        if (i >= 0) continue;
        for (Side& side : sides) side.start_ms = side.removed_ms = side.kept_ms = {};  // of the agents' own start
    }
    if (sides[1].kept_ms.size() != static_cast<size_t>(settings.runs)) return absl::InternalError("evidence was not kept of each run");
    for (const Side& side : sides) {
        figures->push_back(Of(absl::StrCat("lifecycle.start_to_first_instruction.", side.name), side.start_ms));
        figures->push_back(Of(absl::StrCat("lifecycle.exit_to_removed.", side.name), side.removed_ms));
    }
    Figure kept = Of("lifecycle.exit_to_evidence_kept", sides[1].kept_ms);
    kept.target = {.of = Target::Of::kP99, .limit = 100, .text = "p99 at most 100 ms"};
    kept.note = "end of the command -> removed, and its evidence closed";
    figures->push_back(std::move(kept));
    return absl::OkStatus();
}

}  // namespace stockade::bench
