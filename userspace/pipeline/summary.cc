#include "userspace/pipeline/summary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/model/names.h"
#include "userspace/model/operation.h"
#include "userspace/model/reason.h"

namespace stockade::pipeline {

void SummaryTracker::Add(const v1::Event& event) {
    const std::string& id = event.sandbox().id();
    if (id.empty() || event.has_summary() || event.dns().quiet()) return;
    auto it = entries_.find(id);
    if (it == entries_.end()) {
        if (entries_.size() >= options_.max_sandboxes) {
            ++overflowed_;
            return;
        }
        it = entries_.emplace(id, std::make_unique<Entry>()).first;
    }
    Entry& entry = *it->second;
    ++entry.kinds[event.kind()];
    if (event.has_lost()) entry.lost += event.lost().count();
    if (event.has_finding()) AddFinding(entry, event);
    if (event.has_action()) AddAction(entry, event.action());
    if (event.has_repeat()) {
        // It says how many, not of what.
        entry.suppressed += event.repeat().count();
        if (model::IsRefusal(event)) entry.unrecorded += event.repeat().count();
        return;
    }
    // A sandbox that is condemned is no refusal of its own: the one that condemned it counts.
    if (model::IsRefusal(event) && !event.has_lifecycle()) AddRefusal(entry, event);
}

size_t SummaryTracker::TakePlace(Entry& entry) {
    size_t at = entry.refusals.size();
    while (at > 0 && entry.refusals[at - 1].killed()) --at;
    if (at == 0) return entry.refusals.size();
    const v1::Refusal& victim = entry.refusals[--at];
    entry.omitted += victim.count();
    entry.index.erase({victim.code(), victim.object(), victim.lock()});
    return at;
}

void SummaryTracker::AddRefusal(Entry& entry, const v1::Event& event) {
    const bool kills = model::Kills(event);
    const std::tuple key{event.code(), model::ObjectOf(event), event.lock()};
    if (const auto it = entry.index.find(key); it != entry.index.end()) {
        v1::Refusal& known = entry.refusals[it->second];
        known.set_count(known.count() + 1);
        known.set_killed(known.killed() || kills);
        if (model::NumberOf(model::Verdicts(), event.verdict()) >
            model::NumberOf(model::Verdicts(), known.verdict())) {
            known.set_verdict(event.verdict());
        }
        return;
    }
    size_t at = entry.refusals.size();
    if (at >= options_.max_refusals) {
        if (kills) at = TakePlace(entry);
        if (!kills || at == entry.refusals.size()) {
            ++entry.omitted;
            return;
        }
    } else {
        entry.refusals.emplace_back();
    }
    entry.index[key] = at;
    v1::Refusal& refusal = entry.refusals[at];
    refusal.Clear();
    refusal.set_code(event.code());
    refusal.set_reason(event.reason());
    refusal.set_object(model::ObjectOf(event));
    refusal.set_section(event.section());
    refusal.set_verdict(event.verdict());
    refusal.set_outcome(event.outcome());
    refusal.set_lock(event.lock());
    refusal.set_count(1);
    refusal.set_suggestion(model::Suggestion(event));
    refusal.set_exe(event.process().exe().empty() ? event.process().comm()
                                                  : event.process().exe());
    refusal.set_first_boot_ns(event.boot_ns());
    refusal.set_dry_run(event.dry_run());
    refusal.set_killed(kills);
    refusal.set_operation(std::string(model::OperationOf(event)));
}

void SummaryTracker::AddFinding(Entry& entry, const v1::Event& event) {
    const v1::Finding& finding = event.finding();
    for (v1::FindingCount& known : entry.findings) {
        if (known.rule() != finding.rule() || known.severity() != finding.severity()) continue;
        known.set_count(known.count() + 1);
        return;
    }
    if (entry.findings.size() >= options_.max_findings) {
        ++entry.findings_omitted;
        return;
    }
    v1::FindingCount& row = entry.findings.emplace_back();
    row.set_rule(finding.rule());
    row.set_title(finding.title());
    row.set_severity(finding.severity());
    row.set_count(1);
    row.set_detail(finding.detail());
    row.set_first_boot_ns(event.boot_ns());
}

// The last one stands: a kill comes after what was tried before it.
void SummaryTracker::AddAction(Entry& entry, const v1::Action& action) {
    if (action.rule().empty()) return;
    for (v1::FindingCount& finding : entry.findings) {
        if (finding.rule() == action.rule())
            finding.set_action(absl::StrCat(action.action(), ": ", action.result()));
    }
}

v1::Summary SummaryTracker::Make(const Entry& entry) {
    v1::Summary summary;
    for (const auto& [kind, events] : entry.kinds) {
        v1::KindCount* count = summary.add_kinds();
        count->set_kind(kind);
        count->set_events(events);
    }
    for (const v1::Refusal& refusal : entry.refusals) *summary.add_refusals() = refusal;
    for (const v1::FindingCount& finding : entry.findings) *summary.add_findings() = finding;
    summary.set_findings_omitted(entry.findings_omitted);
    summary.set_refusals_omitted(entry.omitted);
    summary.set_refusals_unrecorded(entry.unrecorded);
    summary.set_lost(entry.lost);
    summary.set_suppressed(entry.suppressed);
    return summary;
}

v1::Summary SummaryTracker::Take(const std::string& sandbox_id) {
    const auto node = entries_.extract(sandbox_id);
    return node.empty() ? v1::Summary() : Make(*node.mapped());
}

void AddSections(const sk_state& state, v1::Summary* summary) {
    uint64_t refused = 0;
    for (const model::Name& section : model::Sections()) {
        const uint64_t allowed = state.allowed[section.number];
        const uint64_t violations = state.violations[section.number];
        if (allowed == 0 && violations == 0) continue;
        v1::SectionCount* count = summary->add_sections();
        count->set_section(std::string(section.text));
        count->set_allowed(allowed);
        count->set_violations(violations);
        refused += violations;
    }
    uint64_t told = summary->refusals_omitted();
    for (const v1::Refusal& refusal : summary->refusals()) told += refusal.count();
    // What is neither told nor suppressed was lost, or came before this agent.
    const uint64_t untold = std::min<uint64_t>(refused - std::min(refused, told), state.suppressed);
    summary->set_refusals_unrecorded(std::max(summary->refusals_unrecorded(), untold));
}

namespace {

std::string FindingsText(const v1::Summary& summary) {
    std::string text;
    for (const v1::FindingCount& finding : summary.findings()) {
        absl::StrAppend(&text, "finding: ", finding.title(), " (", finding.severity(), ", ", finding.rule());
        if (finding.count() > 1) absl::StrAppend(&text, ", ", finding.count(), " times");
        absl::StrAppend(&text, finding.action().empty() ? "" : ", ", finding.action(), ")\n");
    }
    if (summary.findings_omitted() > 0)
        absl::StrAppend(&text, "and ", summary.findings_omitted(), " more findings\n");
    return text;
}

}  // namespace

std::string SummaryText(const v1::Summary& summary) {
    std::string text;
    for (const v1::Refusal& refusal : summary.refusals()) {
        // The sentence of another lock begins as the line does.
        absl::StrAppend(&text, refusal.dry_run() ? "would be refused: " : "refused: ",
                        absl::StripPrefix(refusal.reason(), "refused by another lock: "), " (",
                        refusal.code());
        if (!refusal.lock().empty()) absl::StrAppend(&text, ", by ", refusal.lock());
        absl::StrAppend(&text, ", ", refusal.outcome());
        if (refusal.count() > 1) absl::StrAppend(&text, ", ", refusal.count(), " times");
        absl::StrAppend(&text, ")\n");
        if (!refusal.suggestion().empty()) {
            absl::StrAppend(&text, "    to allow it: ", refusal.suggestion(), "\n");
        }
        if (!refusal.explanation().empty()) absl::StrAppend(&text, "    ", refusal.explanation(), "\n");
    }
    if (summary.refusals_omitted() > 0) {
        absl::StrAppend(&text, "and ", summary.refusals_omitted(), " more refusals\n");
    }
    if (summary.refusals_unrecorded() > 0) {
        absl::StrAppend(&text, "and ", summary.refusals_unrecorded(),
                        " more refusals of the same kind that were not recorded singly\n");
    }
    absl::StrAppend(&text, FindingsText(summary));
    if (summary.lost() > 0) {
        absl::StrAppend(&text, summary.lost(), " records were lost: this list may be short\n");
    }
    return text;
}

}  // namespace stockade::pipeline
