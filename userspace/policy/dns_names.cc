#include "userspace/policy/dns_names.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bpf/wire/dns_zone.h"

namespace stockade::policy {

bool IsDnsName(absl::string_view name) {
    absl::ConsumePrefix(&name, "*.");
    return IsHostName(name);
}

bool IsHostName(absl::string_view name) {
    if (name.empty() || name.size() > 253) return false;
    for (absl::string_view label : absl::StrSplit(name, '.')) {
        if (label.empty() || label.size() > 63 || label.front() == '-' || label.back() == '-') return false;
        for (char c : label) {
            if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '-' && c != '_') return false;
        }
    }
    return true;
}

bool IsDnsZone(absl::string_view name) {
    const auto dots = std::count(name.begin(), name.end(), '.');
    return IsHostName(name) && dots >= 1 && dots < SK_DNS_ZONE_LABELS;
}

bool CoversName(absl::string_view pattern, absl::string_view name) {
    if (!absl::ConsumePrefix(&pattern, "*.")) return pattern == name;
    return name.size() > pattern.size() + 1 && absl::EndsWith(name, pattern) &&
           name[name.size() - pattern.size() - 1] == '.';
}

StatusOr<uint32_t> ParseDnsBudget(absl::string_view text) {
    if (text == "none") return kNoDnsBudget;
    absl::string_view number = text;
    const uint64_t scale = absl::ConsumeSuffix(&number, "KiB") ? 1024 : 1;
    if (scale == 1) absl::ConsumeSuffix(&number, "B");
    constexpr uint64_t kMost = 1 << 30;
    uint64_t value = 0;
    // SimpleAtoi would take signs and blanks.
    const bool digits = number.find_first_not_of("0123456789") == absl::string_view::npos;
    if (!digits || !absl::SimpleAtoi(number, &value) || value > kMost || value * scale > kMost) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' is no budget: 256B, 4KiB or none, at most 1 GiB"));
    }
    return static_cast<uint32_t>(value * scale);
}

bool NeedsDns(const ResolvedPolicy& policy) {
    if (policy.dns) return DnsModeOf(policy) != SK_DNS_CLOSED;
    return !ResolvableNames(policy).empty();
}

sk_dns_mode DnsModeOf(const ResolvedPolicy& policy) {
    return policy.dns ? policy.dns->mode.value_or(SK_DNS_ALLOWLIST) : SK_DNS_ALLOWLIST;
}

const DnsGrant* DnsGrantOf(const ResolvedPolicy& policy, absl::string_view name) {
    if (!policy.dns) return nullptr;
    while (true) {
        const auto found = policy.dns->grants.find(std::string(name));
        if (found != policy.dns->grants.end()) return &found->second;
        const size_t dot = name.find('.');
        if (dot == absl::string_view::npos) return nullptr;
        name.remove_prefix(dot + 1);
    }
}

std::vector<std::string> ResolvableNames(const ResolvedPolicy& policy) {
    std::set<std::string> names;
    if (policy.dns) {
        for (const Entry& name : policy.dns->allow) names.insert(name.text);
    }
    for (const NetworkRule& rule : policy.network) {
        if (rule.kind == NetworkKind::kName) names.insert(rule.text);
    }
    return {names.begin(), names.end()};
}

}  // namespace stockade::policy
