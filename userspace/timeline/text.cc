// The story on a terminal.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/model/text.h"
#include "userspace/timeline/story.h"

namespace stockade::timeline {
namespace {

// A file may hold what no agent wrote: nothing of it reaches the terminal as it is.
std::string Safe(absl::string_view text) {
    std::string out;
    (void)model::AppendEscaped(text, &out);  // whether anything changed does not matter here
    return out;
}

const char* ColorOf(Tone tone) {
    switch (tone) {
        case Tone::kStep: return "\x1b[2m";
        case Tone::kWork: return "";
        case Tone::kRefused: return "\x1b[31m";
        case Tone::kFinding: return "\x1b[35m";
        case Tone::kEnd: return "\x1b[1;31m";
        case Tone::kLost: return "\x1b[33m";
        case Tone::kSpan: return "\x1b[36m";
    }
    return "";
}

void AppendSandbox(const Told& told, size_t number, std::string* out) {
    absl::StrAppend(out, "  [", number + 1, "] ", Safe(told.id), " on ", Safe(told.node), "\n");
    absl::StrAppend(out, "      tool ", told.tool.empty() ? "-" : Safe(told.tool), ", policy ",
                    told.policy.empty() ? "-" : Safe(told.policy), ", runtime ", told.runtime.empty() ? "-" : Safe(told.runtime), "\n");
    for (const auto& [key, value] : told.labels) absl::StrAppend(out, "      ", Safe(key), ": ", Safe(value), "\n");
    if (!told.trace.empty()) absl::StrAppend(out, "      trace ", Safe(told.trace), "\n");
    if (!told.command.empty()) absl::StrAppend(out, "      ran ", Safe(told.command), "\n");
    absl::StrAppend(out, "      ", told.events, " events, ", told.refused, " refused, ", told.findings, " findings; ", told.Fate(), "\n");
}

void AppendRow(const Row& row, uint64_t zero_ns, const TextOptions& options, std::string* out) {
    const std::string at = absl::StrCat("+", Duration(row.wall_ns - std::min(row.wall_ns, zero_ns)));
    const std::string who = absl::StrCat("[", row.sandbox + 1, "]");
    std::string line = absl::StrFormat("%10s %-4s %-9s ", at, who, std::string(ToneName(row.tone)));
    absl::StrAppend(&line, Safe(row.text), row.Times());
    std::vector<std::string> rest;
    if (!row.process.empty()) rest.push_back(Safe(row.process));
    if (!row.detail.empty()) rest.push_back(Safe(row.detail));
    if (options.color) line = absl::StrCat(ColorOf(row.tone), line, "\x1b[0m");
    if (!rest.empty()) absl::StrAppend(&line, options.color ? "  \x1b[2m" : "  ", "- ", absl::StrJoin(rest, "; "), options.color ? "\x1b[0m" : "");
    absl::StrAppend(out, line, "\n");
    if (!options.all || row.items.size() < 2) return;
    for (const std::string& item : row.items) absl::StrAppend(out, std::string(28, ' '), Safe(item), "\n");
}

}  // namespace

std::string ToText(const Story& story, const TextOptions& options) {
    std::string out = absl::StrCat("Session ", Safe(story.session), ": ", story.sandboxes.size(),
                                   story.sandboxes.size() == 1 ? " sandbox" : " sandboxes");
    if (!story.sandboxes.empty()) absl::StrAppend(&out, ", ", WallTime(story.first_ns), ", ", Duration(story.last_ns - story.first_ns));
    out += "\n";
    for (size_t i = 0; i < story.sandboxes.size(); ++i) AppendSandbox(story.sandboxes[i], i, &out);
    out += "\n";
    for (const Row& row : story.rows) AppendRow(row, story.first_ns, options, &out);
    if (story.left_out > 0) absl::StrAppend(&out, "\n", story.left_out, " further events are left out: more than ", kMaxEvents, "\n");
    return out;
}

}  // namespace stockade::timeline
