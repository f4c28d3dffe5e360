// `rules replay` and `rules explain`: rules over events that were exported.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/cmd/capture_events.h"
#include "userspace/cmd/event_file.h"
#include "userspace/cmd/json.h"
#include "userspace/cmd/rules_run.h"
#include "userspace/detect/detector.h"
#include "userspace/detect/evaluate.h"
#include "userspace/detect/explain.h"
#include "userspace/model/json.h"
#include "userspace/policy/nearest.h"

namespace stockade::cmd {
namespace {

using detect::Rule;

// Findings are shown up to this many; all are counted.
constexpr size_t kMaxShown = 1000;
// Lines that are no event are told up to this many; all are counted.
constexpr uint64_t kMaxComplaints = 5;

// Calls `each` for every event of a file; false after an error of reading.
template <typename Each>
bool ForEachEvent(const std::string& path, uint64_t* bad, RulesOutput& io, const Each& each) {
    const Status status = ReadEvents(path, each, [&](const std::string& why) {
        if (++*bad <= kMaxComplaints) absl::StrAppend(&io.err, why, "\n");
    });
    if (!status.ok()) absl::StrAppend(&io.err, "stockade: rules: ", status.message(), "\n");
    return status.ok();
}

struct Tally {
    uint64_t findings = 0;
    uint64_t undecidable = 0;
    double micros = 0;
};

// What one rule costs by itself: together they share most of it.
void Measure(const std::vector<Rule>& rules, const v1::Event& event, std::vector<Tally>* tallies) {
    for (size_t i = 0; i < rules.size(); ++i) {
        if (rules[i].correlation || !detect::Belongs(rules[i].source, event)) continue;
        detect::EventView view(event);
        const auto start = std::chrono::steady_clock::now();
        (void)detect::Evaluate(rules[i].expr, rules[i].atoms, view);  // only its time matters
        (*tallies)[i].micros +=
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
    }
}

std::string Lines(const detect::Explanation& part, size_t depth) {
    std::string out = absl::StrFormat("%-11s %s%s", std::string(detect::TruthName(part.truth)),
                                      std::string(depth * 2, ' '), part.what);
    if (!part.value.empty()) absl::StrAppend(&out, "   <- ", JsonString(part.value));
    out += "\n";
    for (const detect::Explanation& each : part.parts) out += Lines(each, depth + 1);
    return out;
}

std::string Json(const detect::Explanation& part) {
    std::vector<std::string> parts;
    for (const detect::Explanation& each : part.parts) parts.push_back(Json(each));
    JsonObject object;
    object.Add("what", part.what).Add("truth", std::string(detect::TruthName(part.truth)));
    if (!part.value.empty()) object.Add("value", part.value);
    if (!parts.empty()) object.AddRaw("parts", JsonArray(parts));
    return object.Done();
}

const Rule* FindRule(const std::vector<Rule>& rules, const std::string& name, RulesOutput& io) {
    std::vector<std::string> known;
    for (const Rule& rule : rules) {
        if (rule.id == name || rule.name == name || rule.title == name) return &rule;
        known.push_back(rule.title);
        if (!rule.name.empty()) known.push_back(rule.name);
    }
    const std::string nearest = policy::NearestWord(name, known);
    absl::StrAppend(&io.err, "stockade: rules: no rule '", name, "'",
                    nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"), "\n");
    return nullptr;
}

struct Replay {
    std::vector<Tally> tallies;
    std::vector<std::string> shown;  // findings, as events
    uint64_t bad = 0;
    double micros = 0;
    CaptureEvents capture;  // unused where events are replayed
};

bool Read(const RulesArgs& args, Replay* replay, RulesOutput& io, const CaptureEvents::Each& each) {
    if (args.pcap.empty()) return ForEachEvent(args.events, &replay->bad, io, each);
    const Status status = Annotate(replay->capture.Read(args.pcap, each), args.pcap);
    // What was read before a broken place is still worth seeing.
    if (!status.ok()) absl::StrAppend(&io.err, "stockade: rules: ", status.message(), "\n");
    return status.ok();
}

bool Play(const RulesArgs& args, detect::Detector& detector, RulesOutput& io, Replay* replay) {
    const std::vector<Rule>& rules = detector.rules();
    replay->tallies.resize(rules.size());
    return Read(args, replay, io, [&](const v1::Event& event) {
        const auto start = std::chrono::steady_clock::now();
        const std::vector<detect::DetectedFinding> findings = detector.OnEvent(event);
        replay->micros +=
            std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
        for (const detect::DetectedFinding& finding : findings) {
            ++replay->tallies[static_cast<size_t>(finding.rule - rules.data())].findings;
            if (replay->shown.size() == kMaxShown) continue;
            v1::Event out;
            out.mutable_sandbox()->CopyFrom(event.sandbox());
            out.mutable_time()->CopyFrom(event.time());
            *out.mutable_finding() = finding.ToProto();
            replay->shown.push_back(model::ToJsonLine(out));
        }
        for (size_t rule : detector.undecided()) ++replay->tallies[rule].undecidable;
        if (args.timing) Measure(rules, event, &replay->tallies);
    });
}

std::string ReplayText(const detect::Detector& detector, const Replay& replay, bool timing) {
    std::string out;
    for (size_t i = 0; i < replay.tallies.size(); ++i) {
        const Tally& tally = replay.tallies[i];
        if (tally.findings == 0 && tally.undecidable == 0 && !timing) continue;
        absl::StrAppendFormat(&out, "%8d findings  %8d undecidable  ", tally.findings, tally.undecidable);
        if (timing) absl::StrAppendFormat(&out, "%12.1f us  ", tally.micros);
        absl::StrAppend(&out, detector.rules()[i].title, "\n");
    }
    const detect::Detector::Counters& counters = detector.counters();
    absl::StrAppendFormat(
        &out, "%d events, %d findings, %d undecidable, %d lines that are no event, %.1f us in all\n",
        counters.events, counters.findings, counters.undecidable, replay.bad, replay.micros);
    const CaptureEvents::Counters& capture = replay.capture.counters();
    if (capture.packets > 0) {
        absl::StrAppendFormat(
            &out,
            "%d packets, of which %d were neither TCP nor UDP and %d fragments; %d streams could "
            "not be joined, flows were forgotten %d times\n",
            capture.packets, capture.others, capture.fragments, capture.lost_streams, capture.forgotten);
    }
    return out;
}

std::string ReplayJson(const detect::Detector& detector, const Replay& replay, bool timing) {
    std::vector<std::string> rows;
    for (size_t i = 0; i < replay.tallies.size(); ++i) {
        const Tally& tally = replay.tallies[i];
        if (tally.findings == 0 && tally.undecidable == 0 && !timing) continue;
        JsonObject row;
        row.Add("rule", detector.rules()[i].Ident()).Add("title", detector.rules()[i].title);
        row.Add("findings", tally.findings).Add("undecidable", tally.undecidable);
        if (timing) row.AddRaw("microseconds", absl::StrFormat("%.1f", tally.micros));
        rows.push_back(row.Done());
    }
    const detect::Detector::Counters& counters = detector.counters();
    const CaptureEvents::Counters& capture = replay.capture.counters();
    JsonObject out;
    if (capture.packets > 0) {
        out.AddRaw("capture", JsonObject()
                                  .Add("packets", capture.packets)
                                  .Add("others", capture.others)
                                  .Add("fragments", capture.fragments)
                                  .Add("lost_streams", capture.lost_streams)
                                  .Add("forgotten", capture.forgotten)
                                  .Done());
    }
    return out.Add("events", counters.events)
               .Add("bad_lines", replay.bad)
               .Add("findings", counters.findings)
               .Add("undecidable", counters.undecidable)
               .AddRaw("microseconds", absl::StrFormat("%.1f", replay.micros))
               .AddRaw("rules", JsonArray(rows))
               .AddRaw("shown", JsonArray(replay.shown))
               .Done() +
           "\n";
}

}  // namespace

int RulesReplay(const RulesArgs& args, RulesOutput& io) {
    std::optional<std::vector<Rule>> usable = UsableRules(args, io);
    if (!usable) return kRulesUsage;
    detect::Detector detector(*std::move(usable));
    Replay replay;
    const bool whole = Play(args, detector, io, &replay);
    if (!whole && args.pcap.empty()) return kRulesUsage;
    io.out =
        args.json ? ReplayJson(detector, replay, args.timing) : ReplayText(detector, replay, args.timing);
    // No event at all is no answer.
    if (!whole || detector.counters().events == 0) return kRulesUsage;
    return detector.counters().findings > 0 ? kRulesFindings : kRulesOk;
}

int RulesExplain(const RulesArgs& args, RulesOutput& io) {
    const std::optional<std::vector<Rule>> rules = UsableRules(args, io);
    if (!rules) return kRulesUsage;
    const Rule* rule = FindRule(*rules, args.rule, io);
    if (rule == nullptr) return kRulesUsage;
    if (rule->correlation) {
        absl::StrAppend(&io.err, "stockade: rules: '", rule->title,
                        "' is about many events: explain one of its rules\n");
        return kRulesUsage;
    }
    uint64_t bad = 0, seen = 0;
    detect::Truth best = detect::Truth::kNo;
    std::vector<std::string> rows;
    const bool read = ForEachEvent(args.events, &bad, io, [&](const v1::Event& event) {
        const detect::Explanation explanation = detect::Explain(*rule, event);
        best = detect::Or(best, explanation.truth);
        ++seen;
        rows.push_back(args.json ? Json(explanation) : Lines(explanation, 0));
    });
    if (!read || seen == 0) return kRulesUsage;
    for (const std::string& row : rows) io.out += args.json ? row + "\n" : row;
    return best == detect::Truth::kYes ? kRulesOk : kRulesFindings;
}

}  // namespace stockade::cmd
