#include "userspace/cmd/timeline_command.h"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/base/log.h"
#include "userspace/cmd/client.h"
#include "userspace/cmd/event_file.h"
#include "userspace/cmd/json.h"
#include "userspace/policy/nearest.h"
#include "userspace/timeline/story.h"

namespace stockade::cmd {
namespace {

// Nothing of the session is in the files.
constexpr int kNothing = 1;
// Lines that are no event are shown up to this many; all are counted.
constexpr uint64_t kMaxLinesTold = 5;
// Sessions that are named where the one asked for is not there.
constexpr size_t kMaxSessionsNamed = 10;

struct TimelineFlags {
    std::string session;
    std::vector<std::string> files;
    std::string spans;
    std::string output = "text";
    bool all = false;
};

std::string SandboxJson(const timeline::Told& told) {
    JsonObject labels;
    for (const auto& [key, value] : told.labels) labels.Add(key, value);
    JsonObject out;
    out.Add("id", told.id).Add("node", told.node).Add("tool", told.tool).Add("policy", told.policy).Add("policy_hash", told.policy_hash);
    out.Add("runtime", told.runtime).Add("trace", told.trace).AddRaw("labels", labels.Done()).Add("command", told.command);
    out.Add("first", timeline::WallTime(told.first_ns)).Add("last", timeline::WallTime(told.last_ns));
    out.Add("events", told.events).Add("refused", told.refused).Add("findings", told.findings).Add("lost", told.lost);
    out.Add("end", told.end).Add("removed", told.removed).Add("sealed", told.sealed);
    if (told.has_status) out.Add("exit_status", told.exit_status);
    return out.Done();
}

std::string RowJson(const timeline::Story& story, const timeline::Row& row) {
    std::vector<std::string> items, ids;
    for (const std::string& item : row.items) items.push_back(JsonString(item));
    for (const std::string& id : row.ids) ids.push_back(JsonString(id));
    JsonObject out;
    out.Add("time", timeline::WallTime(row.wall_ns)).Add("time_ns", row.wall_ns);
    out.Add("sandbox", story.sandboxes[row.sandbox].id).Add("tone", std::string(timeline::ToneName(row.tone))).Add("kind", row.kind).Add("text", row.text).Add("detail", row.detail);
    out.Add("process", row.process).Add("count", row.count).AddRaw("items", JsonArray(items)).AddRaw("events", JsonArray(ids));
    return out.Done();
}

std::string ToJson(const timeline::Story& story) {
    std::vector<std::string> sandboxes, rows;
    for (const timeline::Told& told : story.sandboxes) sandboxes.push_back(SandboxJson(told));
    for (const timeline::Row& row : story.rows) rows.push_back(RowJson(story, row));
    return JsonObject()
               .Add("session", story.session)
               .Add("repeated", story.repeated)
               .Add("left_out", story.left_out)
               .AddRaw("sandboxes", JsonArray(sandboxes))
               .AddRaw("rows", JsonArray(rows))
               .Done() +
           "\n";
}

int Nothing(const TimelineFlags& flags, const timeline::StoryBuilder& builder) {
    std::vector<std::string> known;
    for (const auto& [session, events] : builder.sessions()) known.push_back(session);
    const std::string nearest = policy::NearestWord(flags.session, known);
    std::string hint = nearest.empty() ? "" : absl::StrCat("; did you mean ", JsonString(nearest), "?");
    for (size_t i = 0; i < known.size() && i < kMaxSessionsNamed; ++i) absl::StrAppend(&hint, i == 0 ? "; there are " : ", ", JsonString(known[i]));
    if (known.size() > kMaxSessionsNamed) absl::StrAppend(&hint, " and ", known.size() - kMaxSessionsNamed, " more");
    LogError("timeline: no event of session or sandbox ", JsonString(flags.session), hint);
    return kNothing;
}

Status AddSpans(const std::string& path, timeline::StoryBuilder* builder) {
    SK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, timeline::kMaxSpanBytes));
    StatusOr<std::vector<timeline::Span>> spans = timeline::ParseSpans(text);
    if (!spans.ok()) return Annotate(spans.status(), path);
    for (timeline::Span& span : *spans) builder->AddSpan(std::move(span));
    return absl::OkStatus();
}

int Timeline(const TimelineFlags& flags) {
    timeline::StoryBuilder builder(flags.session);
    uint64_t bad_lines = 0;
    for (const std::string& path : flags.files) {
        const Status status = ReadEvents(path, [&](v1::Event&& event) { builder.Add(event); }, [&](const std::string& why) {
            if (++bad_lines <= kMaxLinesTold) LogWarning("timeline: ", why);
        });
        if (!status.ok()) {
            LogError("timeline: ", status.message());
            return kOwnFailure;
        }
    }
    if (bad_lines > 0) LogWarning("timeline: ", bad_lines, " lines are no events");
    if (!flags.spans.empty()) {
        const Status status = AddSpans(flags.spans, &builder);
        if (!status.ok()) {
            LogError("timeline: ", status.message());
            return kOwnFailure;
        }
    }
    const timeline::Story story = builder.Finish();
    if (story.sandboxes.empty()) return Nothing(flags, builder);
    const bool color = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
    const std::string out = flags.output == "json"   ? ToJson(story)
                            : flags.output == "html" ? timeline::ToPage(story)
                                                     : timeline::ToText(story, {.color = color, .all = flags.all});
    const Status shown = WriteAll(STDOUT_FILENO, out);
    if (!shown.ok()) LogError("timeline: ", shown.message());
    return shown.ok() ? 0 : kOwnFailure;
}

}  // namespace

void AddTimelineCommand(CLI::App& app, int& exit_code) {
    auto flags = std::make_shared<TimelineFlags>();  // lives as long as the callback below
    CLI::App* command = app.add_subcommand("timeline", "One session as one story: what ran, what was refused and why, how it ended");
    command->footer("  stockade run --session s-42 --events s-42.jsonl -p policy.yaml -- python3 tool.py\n"
                    "  stockade timeline s-42 s-42.jsonl\n"
                    "  stockade timeline s-42 *.jsonl -o html >s-42.html     a page that needs nothing else\n\n"
                    "Exit status: 0 shown, 1 nothing of the session is in the files, 125 a file cannot be read.");
    command->add_option("SESSION", flags->session, "A session label, or the id of one sandbox")->required();
    command->add_option("FILE", flags->files, "JSON lines as they were exported, of any number of nodes and topics; - is standard input")->required();
    command->add_option("--spans", flags->spans, "Spans of its traces, as OTLP JSON: what called the sandboxes");
    command->add_option("-o,--output", flags->output, "text, json or html")->check(CLI::IsMember({"text", "json", "html"}));
    command->add_flag("--all", flags->all, "Names each file, address and query of a row of text");
    command->callback([flags, &exit_code] { exit_code = Timeline(*flags); });
}

}  // namespace stockade::cmd
