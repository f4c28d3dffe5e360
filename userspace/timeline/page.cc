// The story as a page: one file that opens from disk, works by keyboard, in light and dark.
#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/base/sha256.h"
#include "userspace/model/text.h"
#include "userspace/timeline/page_style.h"
#include "userspace/timeline/story.h"

namespace stockade::timeline {
namespace {

std::string Html(absl::string_view text) {
    std::string safe, out;
    (void)model::AppendEscaped(text, &safe);  // whether anything changed does not matter here
    for (const char c : safe) {
        switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            case '\'': out += "&#39;"; break;
            default: out += c;
        }
    }
    return out;
}

// Where `at` lies in the story, in percent of its time.
double Percent(const Story& story, uint64_t at) {
    if (story.last_ns <= story.first_ns || at <= story.first_ns) return 0;
    return std::min(100.0, 100.0 * static_cast<double>(at - story.first_ns) / static_cast<double>(story.last_ns - story.first_ns));
}

void AppendTerm(absl::string_view name, absl::string_view value, std::string* out) {
    if (!value.empty()) absl::StrAppend(out, "<div><dt>", Html(name), "</dt><dd>", Html(value), "</dd></div>");
}

// A bar over the session's whole time, with a mark for each row that is not plain work.
void AppendLane(const Story& story, size_t number, std::string* out) {
    const Told& told = story.sandboxes[number];
    const double left = Percent(story, told.first_ns);
    absl::StrAppendFormat(out, "<div class=lane aria-hidden=true><i class=bar style=\"left:%.2f%%;width:%.2f%%\"></i>", left,
                          std::max(0.5, Percent(story, told.last_ns) - left));
    for (const Row& row : story.rows) {
        if (row.sandbox != number || row.tone == Tone::kWork || row.tone == Tone::kStep || row.tone == Tone::kSpan) continue;
        absl::StrAppendFormat(out, "<i class=\"mark %s\" style=\"left:%.2f%%\"></i>", std::string(ToneName(row.tone)), Percent(story, row.wall_ns));
    }
    *out += "</div>";
}

void AppendSandbox(const Story& story, size_t number, std::string* out) {
    const Told& told = story.sandboxes[number];
    absl::StrAppend(out, "<section class=box><h2><span class=who>", number + 1, "</span> ", Html(told.tool.empty() ? "sandbox" : told.tool),
                    told.command.empty() ? "" : absl::StrCat(": <code>", Html(told.command), "</code>"), "</h2><p class=fate>", Html(told.Fate()), "</p>");
    AppendLane(story, number, out);
    *out += "<dl>";
    AppendTerm("sandbox", told.id, out);
    AppendTerm("node", told.node, out);
    AppendTerm("policy", told.policy, out);
    AppendTerm("runtime", told.runtime, out);
    AppendTerm("trace", told.trace, out);
    for (const auto& [key, value] : told.labels) AppendTerm(key, value, out);
    AppendTerm("events", absl::StrCat(told.events, ", ", told.refused, " refused, ", told.findings, " findings"), out);
    AppendTerm("chain", told.sealed ? "sealed; check it with stockade verify" : "", out);
    *out += "</dl></section>\n";
}

void AppendRow(const Row& row, uint64_t zero_ns, std::string* out) {
    const std::string tone(ToneName(row.tone));
    absl::StrAppend(out, "<li class=\"row ", tone, "\" data-tone=", tone, "><time datetime=\"", WallTime(row.wall_ns), "\">+",
                    Duration(row.wall_ns - std::min(row.wall_ns, zero_ns)), "</time>");
    absl::StrAppend(out, "<span class=who>", row.sandbox + 1, "</span>");
    absl::StrAppend(out, "<span class=tone>", tone, "</span><div><p>", Html(row.text), row.Times(), "</p>");
    std::vector<std::string> rest;
    if (!row.process.empty()) rest.push_back(Html(row.process));
    if (!row.detail.empty()) rest.push_back(Html(row.detail));
    if (!rest.empty()) absl::StrAppend(out, "<p class=rest>", absl::StrJoin(rest, " · "), "</p>");
    if (row.items.size() > 1) {
        *out += "<details><summary>which</summary><ul>";
        for (const std::string& item : row.items) absl::StrAppend(out, "<li><code>", Html(item), "</code></li>");
        *out += "</ul></details>";
    }
    *out += "</div></li>\n";
}

uint64_t CountOf(const Story& story, Tone tone) {
    uint64_t count = 0;
    for (const Row& row : story.rows) count += row.tone == tone;
    return count;
}

void AppendFilters(const Story& story, std::string* out) {
    *out += "<fieldset class=filters><legend>Show</legend>";
    for (const Tone tone : kTones) {
        const uint64_t count = CountOf(story, tone);
        if (count == 0) continue;
        const std::string name(ToneName(tone));
        absl::StrAppend(out, "<label class=", name, "><input type=checkbox checked value=", name, "> ", name, " (", count, ")</label>");
    }
    *out += "</fieldset>";
}

}  // namespace

std::string ToPage(const Story& story) {
    const std::array<uint8_t, 32> digest = Sha256(kPageScript);
    const std::string script = absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
    std::string out = absl::StrCat("<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
                                   "<meta name=viewport content=\"width=device-width,initial-scale=1\">"
                                   // Data of others stands on this page: nothing is fetched, and no script runs but ours.
                                   "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-",
                                   script, "'\"><title>Session ", Html(story.session), "</title><style>", kPageStyle, "</style></head><body>\n");
    absl::StrAppend(&out, "<header><h1>Session ", Html(story.session), "</h1><p>", story.sandboxes.size(),
                    story.sandboxes.size() == 1 ? " sandbox" : " sandboxes");
    if (!story.sandboxes.empty()) absl::StrAppend(&out, ", ", WallTime(story.first_ns), ", ", Duration(story.last_ns - story.first_ns));
    out += "</p></header>\n<main>";
    for (size_t i = 0; i < story.sandboxes.size(); ++i) AppendSandbox(story, i, &out);
    AppendFilters(story, &out);
    out += "<ol class=rows>\n";
    for (const Row& row : story.rows) AppendRow(row, story.first_ns, &out);
    out += "</ol>";
    if (story.left_out > 0) absl::StrAppend(&out, "<p>", story.left_out, " further events are left out: more than ", kMaxEvents, ".</p>");
    absl::StrAppend(&out, "</main><script>", kPageScript, "</script></body></html>\n");
    return out;
}

}  // namespace stockade::timeline
