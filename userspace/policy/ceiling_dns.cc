#include "userspace/policy/ceiling_dns.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "userspace/policy/dns_names.h"

namespace stockade::policy {
namespace {

// What holds of a policy that does not say `dns:`. One with a network section opens what its rules name and nothing else.
std::optional<DnsSection> DnsOf(const ResolvedPolicy& policy) {
    if (policy.dns) return policy.dns;
    if (!policy.present[SK_SECTION_NETWORK]) return std::nullopt;
    DnsSection out;
    out.at = policy.at;
    out.mode = NeedsDns(policy) ? SK_DNS_ALLOWLIST : SK_DNS_CLOSED;
    return out;
}

bool IsOpen(sk_dns_mode mode) { return mode == SK_DNS_OPEN || mode == SK_DNS_OBSERVE; }

std::vector<std::string> CommonNames(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    std::set<std::string> out;
    for (const std::string& x : a) {
        for (const std::string& y : b) {
            if (x == y || CoversPattern(y, x)) out.insert(x);
            if (CoversPattern(x, y)) out.insert(y);
        }
    }
    return {out.begin(), out.end()};
}

// Who asks a server of its own choice has said all it wanted in the question: only the ceiling's may be chosen among.
std::vector<Entry> Resolvers(const DnsSection& ceiling, const DnsSection& own, std::set<std::string>& lost) {
    std::vector<Entry> out;
    for (const Entry& mine : own.resolvers) {
        const bool known = std::any_of(ceiling.resolvers.begin(), ceiling.resolvers.end(),
                                       [&](const Entry& one) { return one.text == mine.text; });
        if (known) out.push_back(mine);
        if (!known) lost.insert(absl::StrCat("dns.resolvers ", mine.text));
    }
    return out.empty() ? ceiling.resolvers : out;
}

// A budget may be made smaller. Where the ceiling names none it is the node's, which is not known here, so nothing may be set at all.
void Budgets(const DnsSection& ceiling, const DnsSection& own, const ResolvedPolicy& above, DnsSection& out,
             std::set<std::string>& lost) {
    out.budget = ceiling.budget;
    for (const auto& [tier, bytes] : own.budget) {
        const auto found = out.budget.find(tier);
        if (found == out.budget.end()) {
            lost.insert(absl::StrCat("dns.budget.", tier));
        } else {
            found->second = std::min(found->second, bytes);
        }
    }
    const auto zone_budget = own.budget.find("zone");
    out.grants = ceiling.grants;
    for (auto& [zone, grant] : out.grants) {
        if (zone_budget != own.budget.end()) grant.bytes = std::min(grant.bytes, zone_budget->second);
    }
    for (const auto& [zone, grant] : own.grants) {
        const DnsGrant* most = DnsGrantOf(above, zone);
        if (most == nullptr) {
            lost.insert(absl::StrCat("dns.grants ", zone));
        } else {
            out.grants[zone] = {std::min(grant.bytes, most->bytes), grant.at};
        }
    }
}

}  // namespace

bool CoversPattern(absl::string_view wide, absl::string_view thin) {
    if (wide == thin || !absl::StartsWith(wide, "*.")) return false;
    return CoversName(wide, absl::StripPrefix(thin, "*."));
}

void NarrowDns(const ResolvedPolicy& ceiling, const ResolvedPolicy& own, ResolvedPolicy& out,
               std::vector<std::string>& notes) {
    const std::optional<DnsSection> above = DnsOf(ceiling), mine = DnsOf(own);
    if (!ceiling.dns && !own.dns) return;
    if (ceiling.dns && own.dns)
        out.violation[SK_SECTION_DNS] =
            std::max(ceiling.violation[SK_SECTION_DNS], own.violation[SK_SECTION_DNS]);
    if (ceiling.dns && !own.dns) out.violation[SK_SECTION_DNS] = ceiling.violation[SK_SECTION_DNS];
    if (!above || !mine) {
        out.dns = above ? above : mine;
        return;
    }
    std::set<std::string> lost;
    DnsSection both;
    both.at = mine->at;
    const sk_dns_mode modes[] = {above->mode.value_or(SK_DNS_ALLOWLIST),
                                 mine->mode.value_or(SK_DNS_ALLOWLIST)};
    both.mode = std::min(modes[0], modes[1]);
    const std::vector<std::string> names[] = {ResolvableNames(ceiling), ResolvableNames(own)};
    const std::vector<std::string> allowed = IsOpen(modes[0])   ? names[1]
                                             : IsOpen(modes[1]) ? names[0]
                                                                : CommonNames(names[0], names[1]);
    for (const std::string& name : allowed) both.allow.push_back({name, mine->at});
    both.resolvers = Resolvers(*above, *mine, lost);
    Budgets(*above, *mine, ceiling, both, lost);
    out.dns = std::move(both);
    if (!lost.empty())
        notes.push_back(absl::StrCat(ceiling.name, " leaves no room for ", absl::StrJoin(lost, ", ")));
}

}  // namespace stockade::policy
