// run.*: from the fork of the tool to the first instruction of the command, and from its end until nothing is left.
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/bench/bench.h"
#include "tests/bench/rivals.h"
#include "tests/bench/session.h"

namespace stockade::bench {
namespace {

constexpr int kColdStarts = 3;  // each loads and verifies all programs
// Between two runs of an agent's tool calls: the next sandbox stands by then (ADR 9).
constexpr useconds_t kApartUs = 300'000;

struct Samples {
    std::vector<double> start_ms;  // fork -> first instruction
    std::vector<double> end_ms;    // first instruction -> the tool's own end
};

double Ms(uint64_t from_ns, uint64_t to_ns) {
    return (static_cast<double>(to_ns) - static_cast<double>(from_ns)) / 1e6;
}

// That the program ran, and when: between the fork and the end of who ran it.
Status Keep(const std::string& name, const Ran& ran, Samples* samples) {
    uint64_t first_ns = 0;
    if (ran.status != 0 || !absl::SimpleAtoi(ran.out, &first_ns) || first_ns < ran.forked_ns ||
        first_ns > ran.ended_ns) {
        return absl::UnavailableError(
            absl::StrCat(name, " did not run the program: status ", ran.status, " ", ran.err));
    }
    samples->start_ms.push_back(Ms(ran.forked_ns, first_ns));
    samples->end_ms.push_back(Ms(first_ns, ran.ended_ns));
    return absl::OkStatus();
}

struct Contender {
    Rival rival;
    Samples samples;
    Status status;
};

std::vector<Contender> Contenders(const Stage& stage) {
    std::vector<Contender> contenders;
    const std::pair<const char*, StatusOr<Rival>> all[] = {{"bwrap", Bubblewrap(stage)},
                                                           {"runc", Runc(stage)}};
    for (const auto& [name, rival] : all) {
        contenders.push_back({.rival = rival.ok() ? *rival : Rival{.name = name, .args = {}},
                              .samples = {},
                              .status = rival.status()});
    }
    return contenders;
}

Figure Of(const std::string& name, const std::vector<double>& samples, const Status& status) {
    Figure figure{.name = name, .unit = "ms"};
    if (!status.ok()) {
        figure.skipped = std::string(status.message());
        return figure;
    }
    figure.with = QuantilesOf(samples);
    return figure;
}

Status MeasureCold(Session& session, std::vector<Figure>* figures) {
    Samples cold;
    for (int i = 0; i < kColdStarts; i++) {
        SK_RETURN_IF_ERROR(session.StopAgent());
        SK_ASSIGN_OR_RETURN(const Session::Sandboxed run, session.Run({"now"}));
        SK_RETURN_IF_ERROR(Keep("stockade run", run.ran, &cold));
    }
    figures->push_back(Of("run.start_to_first_instruction.cold", cold.start_ms, absl::OkStatus()));
    figures->back().note = "with the agent's own start";
    return absl::OkStatus();
}

void Report(const Samples& ours, const Samples& at_once, const std::vector<double>& removed_ms,
            const std::vector<Contender>& contenders, std::vector<Figure>* figures) {
    Figure start = Of("run.start_to_first_instruction", ours.start_ms, absl::OkStatus());
    start.target = {.of = Target::Of::kMedian, .limit = 10, .text = "p50 at most 10 ms"};
    start.note = "0.3 s after the one before";
    figures->push_back(std::move(start));
    figures->push_back(Of("run.start_to_first_instruction.at_once", at_once.start_ms, absl::OkStatus()));
    figures->back().note = "right after another, for which the next sandbox is not made yet";
    for (const Contender& other : contenders) {
        figures->push_back(Of(absl::StrCat("run.start_to_first_instruction.", other.rival.name),
                              other.samples.start_ms, other.status));
    }
    Figure removed = Of("run.exit_to_removed", removed_ms, absl::OkStatus());
    removed.target = {.of = Target::Of::kP99, .limit = 100, .text = "p99 at most 100 ms"};
    removed.note = "end of the command -> removed and verified, evidence included";
    figures->push_back(std::move(removed));
    figures->push_back(Of("run.first_instruction_to_end", ours.end_ms, absl::OkStatus()));
    figures->back().note = "until the tool itself has ended";
    for (const Contender& other : contenders) {
        figures->push_back(Of(absl::StrCat("run.first_instruction_to_end.", other.rival.name),
                              other.samples.end_ms, other.status));
    }
}

}  // namespace

Status RunStart(const Settings& settings, std::vector<Figure>* figures) {
    SK_ASSIGN_OR_RETURN(const auto session, Session::Open(settings));
    SK_RETURN_IF_ERROR(MeasureCold(*session, figures));
    std::vector<Contender> contenders = Contenders(session->stage());
    Samples ours, at_once;
    std::vector<double> removed_ms;
    for (int i = 0; i < settings.runs; i++) {
        (void)usleep(kApartUs);
        SK_ASSIGN_OR_RETURN(const Session::Sandboxed run, session->Run({"now"}));
        SK_RETURN_IF_ERROR(Keep("stockade run", run.ran, &ours));
        const auto ended = run.times.find("ended"), removed = run.times.find("removed");
        if (ended == run.times.end() || removed == run.times.end())
            return absl::InternalError("--result does not say when it was removed");
        removed_ms.push_back(Ms(ended->second, removed->second));
        SK_ASSIGN_OR_RETURN(const Session::Sandboxed next, session->Run({"now"}));
        SK_RETURN_IF_ERROR(Keep("stockade run", next.ran, &at_once));
        for (Contender& other : contenders) {
            if (!other.status.ok()) continue;
            auto ran = RunProcess(other.rival.args);
            other.status = ran.ok() ? Keep(other.rival.name, *ran, &other.samples) : ran.status();
        }
    }
    Report(ours, at_once, removed_ms, contenders, figures);
    return absl::OkStatus();
}

}  // namespace stockade::bench
