#include "userspace/policy/diff_dns.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/policy/dns_names.h"

namespace stockade::policy {
namespace {

bool EveryName(const ResolvedPolicy& policy) {
    const sk_dns_mode mode = DnsModeOf(policy);
    return NeedsDns(policy) && (mode == SK_DNS_OPEN || mode == SK_DNS_OBSERVE);
}

// Name or pattern -> where it is written; of none where nothing or everything resolves.
std::map<std::string, Position> NamesOf(const ResolvedPolicy& policy) {
    std::map<std::string, Position> names;
    if (!NeedsDns(policy) || EveryName(policy)) return names;
    if (policy.dns) {
        for (const Entry& name : policy.dns->allow) names.emplace(name.text, name.at);
    }
    for (const NetworkRule& rule : policy.network) {
        if (rule.kind == NetworkKind::kName) names.emplace(rule.text, rule.at);
    }
    return names;
}

Position PlaceOf(const ResolvedPolicy& policy) { return policy.dns ? policy.dns->at : policy.at; }

// What `more` lets be asked and `less` does not.
void AddNames(const ResolvedPolicy& less, const ResolvedPolicy& more, Change::Kind kind,
              std::vector<Change>& out) {
    if (EveryName(less)) return;
    if (EveryName(more)) return out.push_back({kind, "dns", "every name", "", PlaceOf(more)});
    const std::map<std::string, Position> known = NamesOf(less);
    for (const auto& [name, at] : NamesOf(more)) {
        const bool covered = std::any_of(known.begin(), known.end(), [&name = name](const auto& other) {
            return other.first == name || CoversName(other.first, name);
        });
        if (!covered) out.push_back({kind, "dns", name, "", at});
    }
}

std::string BytesText(uint32_t bytes) { return bytes == kNoDnsBudget ? "none" : absl::StrCat(bytes, "B"); }

std::string BudgetText(const ResolvedPolicy& policy, const std::string& tier) {
    if (!policy.dns) return "default";
    const auto found = policy.dns->budget.find(tier);
    return found == policy.dns->budget.end() ? "default" : BytesText(found->second);
}

std::string GrantText(const ResolvedPolicy& policy, const std::string& zone) {
    if (!policy.dns) return "default";
    const auto found = policy.dns->grants.find(zone);
    return found == policy.dns->grants.end() ? "default" : BytesText(found->second.bytes);
}

std::set<std::string> GrantedZones(const ResolvedPolicy& from, const ResolvedPolicy& to) {
    std::set<std::string> zones;
    for (const ResolvedPolicy* policy : {&from, &to}) {
        if (!policy->dns) continue;
        for (const auto& [zone, grant] : policy->dns->grants) zones.insert(zone);
    }
    return zones;
}

std::string ResolversText(const ResolvedPolicy& policy) {
    if (!policy.dns || policy.dns->resolvers.empty()) return "the host's";
    return absl::StrJoin(policy.dns->resolvers, ",",
                         [](std::string* out, const Entry& address) { absl::StrAppend(out, address.text); });
}

}  // namespace

void DiffDns(const ResolvedPolicy& from, const ResolvedPolicy& to, std::vector<Change>& out) {
    AddNames(from, to, Change::kAllowed, out);
    AddNames(to, from, Change::kRefused, out);
    if (!NeedsDns(from) && !NeedsDns(to)) return;
    const auto add = [&](std::string what, const std::string& before, const std::string& after) {
        if (before == after) return;
        out.push_back(
            {Change::kSetting, std::move(what), absl::StrCat(before, " -> ", after), "", PlaceOf(to)});
    };
    const auto mode = [](const ResolvedPolicy& policy) -> std::string {
        return NeedsDns(policy) && DnsModeOf(policy) == SK_DNS_OBSERVE ? "observe" : "enforce";
    };
    add("dns.mode", mode(from), mode(to));
    for (const char* tier : {"zone", "ranked", "total"})
        add(absl::StrCat("dns.budget.", tier), BudgetText(from, tier), BudgetText(to, tier));
    for (const std::string& zone : GrantedZones(from, to))
        add(absl::StrCat("dns.grants.", zone), GrantText(from, zone), GrantText(to, zone));
    if (NeedsDns(from) && NeedsDns(to)) add("dns.resolvers", ResolversText(from), ResolversText(to));
}

}  // namespace stockade::policy
