#include "userspace/timeline/story.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "userspace/model/reason.h"
#include "userspace/timeline/describe.h"

namespace stockade::timeline {
namespace {

uint64_t WallOf(const v1::Event& event) {
    const int64_t seconds = std::max<int64_t>(event.time().seconds(), 0);
    return static_cast<uint64_t>(seconds) * 1'000'000'000 + static_cast<uint64_t>(std::max(event.time().nanos(), 0));
}

// Time is each node's own; within a sandbox the kernel's number is the order.
bool Before(const v1::Event& a, const v1::Event& b) {
    if (a.sandbox().id() == b.sandbox().id() && a.node() == b.node() && a.kernel_seq() != 0 && b.kernel_seq() != 0)
        return a.kernel_seq() < b.kernel_seq();
    if (WallOf(a) != WallOf(b)) return WallOf(a) < WallOf(b);
    return a.export_seq() < b.export_seq();
}

// What may stand in one row: allowed operations of one process, of one kind and verb.
struct Group {
    size_t row;
    std::string key;
};

class Teller {
  public:
    explicit Teller(Story* story) : story_(*story) {}

    void Tell(const v1::Event& event) {
        const size_t sandbox = SandboxOf(event);
        Account(event, &story_.sandboxes[sandbox]);
        if (event.has_repeat()) return Repeat(event, sandbox);
        Row row = Describe(event);
        row.sandbox = sandbox;
        if (row.text.empty()) {
            if (event.has_file() || event.has_net() || event.has_dns() || event.has_exec()) Gather(event, std::move(row));
            return;
        }
        if (row.tone == Tone::kRefused && MergeRefusal(row)) return;
        if (row.tone != Tone::kStep) groups_.erase(sandbox);  // what comes after it is another row
        if (row.tone == Tone::kRefused) last_refusal_[sandbox] = story_.rows.size();
        else last_refusal_.erase(sandbox);
        story_.rows.push_back(std::move(row));
    }

  private:
    size_t SandboxOf(const v1::Event& event) {
        const auto [it, fresh] = numbers_.try_emplace(absl::StrCat(event.node(), "\n", event.sandbox().id()), story_.sandboxes.size());
        if (fresh) {
            const v1::Sandbox& from = event.sandbox();
            Told& told = story_.sandboxes.emplace_back();
            told.id = from.id();
            told.node = event.node();
            told.tool = from.tool();
            told.runtime = from.runtime();
            told.trace = from.trace();
            told.labels = {from.labels().begin(), from.labels().end()};
            told.first_ns = WallOf(event);
        }
        return it->second;
    }

    static void Account(const v1::Event& event, Told* told) {
        ++told->events;
        told->last_ns = std::max(told->last_ns, WallOf(event));
        if (told->policy.empty()) {
            told->policy = event.policy().name();
            told->policy_hash = event.policy().hash();
        }
        if (event.has_repeat()) told->refused += event.repeat().count();
        else if (model::IsRefusal(event) || event.dry_run()) ++told->refused;
        if (event.has_finding()) ++told->findings;
        if (event.has_lost()) told->lost += event.lost().count();
        if (event.has_seal()) told->sealed = true;
        if (told->command.empty() && event.has_exec() && event.exec().role() == "program" && event.verdict() == "allow")
            told->command = event.exec().argv().empty() ? event.exec().path() : CommandLine(event.exec().argv());
        if (event.has_lifecycle()) AccountStep(event.lifecycle(), told);
    }

    static void AccountStep(const v1::Lifecycle& life, Told* told) {
        if (life.has_exit_status()) {
            told->has_status = true;
            told->exit_status = life.exit_status();
            if (told->end.empty()) told->end = "the command ended";
        }
        if (life.op() == "killed" || life.op() == "condemned") told->end = "killed";
        if (life.op() == "destroyed") told->removed = true;
    }

    // The records beyond the rate belong to the last refusal of that code.
    void Repeat(const v1::Event& event, size_t sandbox) {
        const auto last = last_refusal_.find(sandbox);
        if (last != last_refusal_.end()) {
            story_.rows[last->second].count += event.repeat().count();
            return;
        }
        Row row = Describe(event);
        row.sandbox = sandbox;
        row.tone = Tone::kRefused;
        row.text = event.reason().empty() ? event.code() : event.reason();
        row.detail = "beyond the rate: without an event of their own";
        row.count = event.repeat().count();
        story_.rows.push_back(std::move(row));
    }

    // Those of one kind that follow each other are one row: what was refused are its items.
    bool MergeRefusal(const Row& row) {
        const auto last = last_refusal_.find(row.sandbox);
        if (last == last_refusal_.end()) return false;
        Row& before = story_.rows[last->second];
        if (before.detail != row.detail || before.process != row.process) return false;
        if (before.items.empty()) before.items.push_back(before.text);
        AddItem(row.text, row.ids[0], &before);
        before.text = before.items[0];
        if (before.items.size() > 1) absl::StrAppend(&before.text, ", and ", before.items.size() - 1, " more of this kind");
        return true;
    }

    static void AddItem(const std::string& item, const std::string& id, Row* row) {
        ++row->count;
        const bool known = std::find(row->items.begin(), row->items.end(), item) != row->items.end();
        if (!known && row->items.size() < kMaxItems) row->items.push_back(item);
        if (row->ids.size() < kMaxItems) row->ids.push_back(id);
    }

    void Gather(const v1::Event& event, Row row) {
        std::string key = absl::StrCat(VerbOf(event), "\n", row.process);
        std::vector<Group>& groups = groups_[row.sandbox];
        const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.key == key; });
        if (same == groups.end()) {
            groups.push_back({story_.rows.size(), std::move(key)});
            row.items.push_back(model::ObjectOf(event));
            row.text = absl::StrCat(VerbOf(event), " ", row.items[0]);
            story_.rows.push_back(std::move(row));
            return;
        }
        Row& sum = story_.rows[same->row];
        AddItem(model::ObjectOf(event), event.id(), &sum);
        sum.text = sum.items.size() == 1 ? absl::StrCat(VerbOf(event), " ", sum.items[0])
                                         : absl::StrCat(VerbOf(event), " ", sum.items.size(), sum.items.size() == kMaxItems ? " or more " : " ",
                                                        ThingsOf(event));
    }

    Story& story_;
    absl::flat_hash_map<std::string, size_t> numbers_;
    absl::flat_hash_map<size_t, std::vector<Group>> groups_;
    absl::flat_hash_map<size_t, size_t> last_refusal_;
};

// The sandbox that a span belongs to by its trace: a traceparent is version-trace-parent-flags.
std::optional<size_t> SandboxOf(const Span& span, const Story& story) {
    for (size_t i = 0; i < story.sandboxes.size(); ++i) {
        const std::vector<absl::string_view> parts = absl::StrSplit(story.sandboxes[i].trace, '-');
        if (parts.size() >= 2 && parts[1] == span.trace) return i;
    }
    return std::nullopt;
}

void InsertSpans(const std::vector<Span>& spans, Story* story) {
    for (const Span& span : spans) {
        const std::optional<size_t> sandbox = SandboxOf(span, *story);
        if (!sandbox) continue;
        Row& row = story->rows.emplace_back();
        row.wall_ns = span.start_ns;
        row.sandbox = *sandbox;
        row.tone = Tone::kSpan;
        row.kind = "span";
        row.text = absl::StrCat("Span ", span.name);
        row.detail = absl::StrCat("took ", Duration(span.end_ns - std::min(span.end_ns, span.start_ns)), ", span ", span.id);
        story->first_ns = std::min(story->first_ns, span.start_ns);
        story->last_ns = std::max(story->last_ns, span.end_ns);
    }
    std::stable_sort(story->rows.begin(), story->rows.end(), [](const Row& a, const Row& b) { return a.wall_ns < b.wall_ns; });
}

}  // namespace

absl::string_view ToneName(Tone tone) {
    switch (tone) {
        case Tone::kStep: return "step";
        case Tone::kWork: return "work";
        case Tone::kRefused: return "refused";
        case Tone::kFinding: return "finding";
        case Tone::kEnd: return "end";
        case Tone::kLost: return "lost";
        case Tone::kSpan: return "span";
    }
    return "";
}

std::string Told::Fate() const {
    std::string out = end.empty() ? "its end is not among these events" : end;
    if (has_status) absl::StrAppend(&out, ", exit status ", exit_status);
    if (removed) out += ", removed and verified";
    if (lost > 0) absl::StrAppend(&out, ", ", lost, " events lost");
    return out;
}

std::string Row::Times() const {
    return count <= std::max<size_t>(items.size(), 1) ? "" : absl::StrCat(" (", count, " times)");
}

void StoryBuilder::Add(const v1::Event& event) {
    const v1::Sandbox& sandbox = event.sandbox();
    if (!sandbox.session().empty() && (sessions_.size() < kMaxSessions || sessions_.contains(sandbox.session())))
        ++sessions_[sandbox.session()];
    const bool ours = !sandbox.id().empty() && (sandbox.session() == session_ || sandbox.id() == session_);
    if (!ours || event.dns().quiet()) return;
    if (events_.size() >= kMaxEvents) {
        ++left_out_;
        return;
    }
    events_.push_back(event);
}

Story StoryBuilder::Finish() {
    Story story;
    story.session = session_;
    story.left_out = left_out_;
    // Not by Before alone: it is an order within each sandbox, and none over all of them.
    std::stable_sort(events_.begin(), events_.end(), [](const v1::Event& a, const v1::Event& b) {
        const int by_sandbox = a.sandbox().id().compare(b.sandbox().id());
        if (by_sandbox != 0) return by_sandbox < 0;
        return a.node() != b.node() ? a.node() < b.node() : Before(a, b);
    });
    absl::flat_hash_set<std::string> seen;
    std::vector<v1::Event> kept;
    kept.reserve(events_.size());
    for (v1::Event& event : events_) {
        if (!event.id().empty() && !seen.insert(absl::StrCat(event.node(), "\n", event.id())).second) ++story.repeated;
        else kept.push_back(std::move(event));
    }
    std::stable_sort(kept.begin(), kept.end(), [](const v1::Event& a, const v1::Event& b) { return WallOf(a) < WallOf(b); });
    Teller teller(&story);
    for (const v1::Event& event : kept) teller.Tell(event);
    events_.clear();
    for (const Told& told : story.sandboxes) {
        story.first_ns = std::min(story.first_ns, told.first_ns);
        story.last_ns = std::max(story.last_ns, told.last_ns);
    }
    InsertSpans(spans_, &story);
    return story;
}

std::string CommandLine(const google::protobuf::RepeatedPtrField<std::string>& argv) {
    std::string out;
    for (const std::string& word : argv) {
        const bool plain = !word.empty() && word.find_first_of(" \t\"'$`;&|<>()*?[]{}#~!\\") == word.npos;
        if (!out.empty()) out += ' ';
        if (plain) {
            out += word;
            continue;
        }
        out += '\'';
        for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
        out += '\'';
    }
    return out;
}

std::string Duration(uint64_t ns) {
    if (ns < 1'000'000) return absl::StrFormat("%.3g µs", static_cast<double>(ns) / 1e3);
    if (ns < 1'000'000'000) return absl::StrFormat("%.3g ms", static_cast<double>(ns) / 1e6);
    const uint64_t seconds = ns / 1'000'000'000;
    if (seconds < 60) return absl::StrFormat("%.3g s", static_cast<double>(ns) / 1e9);
    if (seconds < 3600) return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
    return absl::StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
}

std::string WallTime(uint64_t wall_ns) {
    const absl::Time time = absl::FromUnixNanos(static_cast<int64_t>(std::min<uint64_t>(wall_ns, INT64_MAX)));
    return absl::StrCat(absl::FormatTime("%Y-%m-%d %H:%M:%E3S", time, absl::UTCTimeZone()), " UTC");
}

}  // namespace stockade::timeline
