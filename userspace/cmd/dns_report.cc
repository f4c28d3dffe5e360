#include "userspace/cmd/dns_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/cmd/json.h"
#include "userspace/dns/message.h"
#include "userspace/model/text.h"

namespace stockade::cmd {
namespace {

using dns::ReplayKey;
using dns::ReplayRow;
using Pair = std::pair<ReplayKey, ReplayRow>;

// Whole bytes, rounded up: never shown as less than it is.
uint64_t Bytes(uint64_t units) { return (units + SK_DNS_BYTE - 1) / SK_DNS_BYTE; }

std::string Printable(absl::string_view text) {
    std::string out;
    (void)model::AppendEscaped(text, &out);
    return out;
}

struct Totals {
    uint64_t blocked = 0, warned = 0, most_capacity = 0, shared = 0, refused = 0;
};

Totals TotalsOf(const dns::Replay& replay) {
    Totals totals;
    for (const auto& [key, row] : replay.rows()) {
        totals.blocked += row.verdict == dns::Verdict::kDrop;
        totals.warned += row.verdict == dns::Verdict::kWarn;
        totals.most_capacity = std::max(totals.most_capacity, row.capacity);
        totals.shared += row.shared;
    }
    for (const auto& [key, count] : replay.refused()) totals.refused += count;
    return totals;
}

std::string PairJson(const ReplayKey& key, const ReplayRow& row) {
    JsonObject out;
    out.Add("client", key.first).Add("zone", key.second).Add("tier", std::string(dns::TierName(row.tier)));
    out.Add("queries", row.queries).Add("let_through", row.let_through);
    out.Add("not_canonical", row.not_canonical).Add("shared_budget", row.shared);
    out.Add("spent_bits", uint64_t{(row.spent + SK_DNS_BIT - 1) / SK_DNS_BIT});
    out.AddRaw("budget_bits", row.budget ? std::to_string(row.budget / SK_DNS_BIT) : "null");
    out.Add("verdict", std::string(dns::VerdictName(row.verdict)));
    if (row.verdict != dns::Verdict::kAllow)
        out.Add("cause", std::string(dns::CauseName(row.cause)))
            .Add("reason", std::string(dns::CauseText(row.cause)));
    out.AddRaw("first_dropped", row.first_dropped ? std::to_string(row.first_dropped) : "null");
    out.Add("capacity_bytes", Bytes(row.capacity)).Add("downlink_bytes", row.downlink_bytes);
    return out.Done();
}

std::string SummaryJson(const dns::Replay& replay) {
    const dns::ReplayCounts& counts = replay.counts();
    const Totals totals = TotalsOf(replay);
    JsonObject out;
    out.Add("clients", uint64_t{replay.clients()}).Add("pairs", uint64_t{replay.rows().size()});
    out.Add("pairs_blocked", totals.blocked).Add("pairs_warned", totals.warned);
    out.Add("most_capacity_bytes", Bytes(totals.most_capacity));
    out.Add("pairs_in_shared_budget", totals.shared).Add("queries_refused", totals.refused);
    out.Add("packets", counts.packets).Add("queries", counts.queries).Add("copies", counts.copies);
    out.Add("answers", counts.answers).Add("unreadable_answers", counts.unreadable_answers);
    out.Add("fragments", counts.fragments)
        .Add("lost_streams", counts.lost_streams)
        .Add("other_packets", counts.other_packets);
    out.Add("largest_state_bytes", uint64_t{replay.largest_state_bytes()});
    return out.Done();
}

// Blocked ones first, then by what they spent.
std::vector<Pair> Ordered(const dns::Replay& replay) {
    std::vector<Pair> pairs(replay.rows().begin(), replay.rows().end());
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
        if (a.second.verdict != b.second.verdict) return a.second.verdict > b.second.verdict;
        return a.second.spent > b.second.spent;
    });
    return pairs;
}

std::string PairLine(const ReplayKey& key, const ReplayRow& row) {
    const std::string budget = row.budget == 0            ? "-"
                               : row.budget == UINT32_MAX ? "none"
                                                          : absl::StrCat(Bytes(row.budget), "B");
    const std::string dropped = row.first_dropped ? absl::StrCat("#", row.first_dropped) : "-";
    std::string said(dns::CauseText(row.cause));
    if (row.shared)
        absl::StrAppend(&said, said.empty() ? "" : "; ",
                        "counted in the budget that all further zones share");
    return absl::StrFormat("%-7s %-24s %-32s %-9s %8d %7dB %7s %8s %8dB%s%s\n", dns::VerdictName(row.verdict),
                           Printable(key.first), Printable(key.second), dns::TierName(row.tier), row.queries,
                           Bytes(row.spent), budget, dropped, Bytes(row.capacity), said.empty() ? "" : "  ",
                           said);
}

}  // namespace

bool AnythingBlocked(const dns::Replay& replay) {
    return TotalsOf(replay).blocked > 0 || !replay.refused().empty();
}

std::string DnsReportJson(const dns::Replay& replay) {
    std::vector<std::string> pairs, refused;
    for (const auto& [key, row] : replay.rows()) pairs.push_back(PairJson(key, row));
    for (const auto& [key, count] : replay.refused()) {
        JsonObject out;
        out.Add("client", key.first).Add("fault", std::string(dns::FaultName(key.second)));
        out.Add("reason", std::string(dns::FaultText(key.second))).Add("queries", count);
        refused.push_back(out.Done());
    }
    JsonObject out;
    out.AddRaw("pairs", JsonArray(pairs))
        .AddRaw("refused", JsonArray(refused))
        .AddRaw("summary", SummaryJson(replay));
    return out.Done() + "\n";
}

std::string DnsReportText(const dns::Replay& replay, size_t quiet) {
    std::string out = absl::StrFormat("%-7s %-24s %-32s %-9s %8s %8s %7s %8s %9s\n", "verdict", "client",
                                      "zone", "tier", "queries", "spent", "budget", "dropped", "capacity");
    size_t allowed = 0;
    for (const auto& [key, row] : Ordered(replay)) {
        if (row.verdict == dns::Verdict::kAllow && ++allowed > quiet) continue;
        absl::StrAppend(&out, PairLine(key, row));
    }
    if (allowed > quiet)
        absl::StrAppend(&out, "... and ", allowed - quiet, " more pairs within their budgets (--all)\n");
    for (const auto& [key, count] : replay.refused())
        absl::StrAppend(&out, "refused ", Printable(key.first), ": ", count,
                        " queries: ", dns::FaultText(key.second), "\n");
    const Totals totals = TotalsOf(replay);
    absl::StrAppend(
        &out, replay.counts().queries, " queries of ", replay.clients(), " clients, ", replay.rows().size(),
        " (client, zone) pairs: ", totals.blocked, " blocked, ", totals.warned, " warned; ", totals.refused,
        " queries refused for their form; most capacity let through: ", Bytes(totals.most_capacity),
        " bytes\n");
    return out;
}

}  // namespace stockade::cmd
