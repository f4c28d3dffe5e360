#include "userspace/policy/canonical.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stockade::policy {
namespace {

std::string Ports(const std::vector<PortRange>& ports) {
    return absl::StrJoin(
        ports, ",", [](std::string* out, const PortRange& p) { absl::StrAppend(out, p.first, "-", p.last); });
}

std::string RuleLine(absl::string_view list, const NetworkRule& rule) {
    return absl::StrCat(list, " ", static_cast<int>(rule.kind), " ", absl::CHexEscape(rule.text), " ",
                        rule.family, "/", rule.bits, " ", rule.hi, " ", rule.lo, " ", rule.abstract, " ",
                        Ports(rule.ports), rule.tls_strict ? " tls" : "");
}

}  // namespace

std::string CanonicalText(const ResolvedPolicy& policy) {
    std::vector<std::string> lines;
    for (const PathRule& rule : policy.paths) {
        lines.push_back(absl::StrCat("path ", absl::CHexEscape(rule.pattern), " ", rule.allow, " ", rule.deny,
                                     " ", rule.layer));
    }
    for (const NetworkRule& rule : policy.network) lines.push_back(RuleLine("network", rule));
    for (const NetworkRule& rule : policy.denied) lines.push_back(RuleLine("denied", rule));
    for (const PortEntry& p : policy.loopback) lines.push_back(absl::StrCat("loopback ", Ports({p.ports})));
    for (const PortEntry& p : policy.host) lines.push_back(absl::StrCat("host ", Ports({p.ports})));
    for (const PortEntry& p : policy.bind) lines.push_back(absl::StrCat("bind ", Ports({p.ports})));
    for (const auto& [uid, rules] : policy.uids) {
        lines.push_back(absl::StrCat("uid ", uid));
        for (const NetworkRule& rule : rules) lines.push_back(RuleLine(absl::StrCat("uid ", uid), rule));
    }
    for (int s = 0; s < SK_SECTION_SLOTS; ++s) {
        lines.push_back(absl::StrCat("section ", s, " ", policy.violation[s], " ", policy.record[s], " ",
                                     policy.present[s]));
    }
    if (policy.dns) {
        lines.push_back(absl::StrCat("dns ", policy.dns->mode.value_or(SK_DNS_ALLOWLIST)));
        for (const Entry& name : policy.dns->allow) lines.push_back(absl::StrCat("dns allow ", name.text));
        for (const Entry& address : policy.dns->resolvers) lines.push_back(absl::StrCat("dns resolver ", address.text));
        for (const auto& [zone, grant] : policy.dns->grants) lines.push_back(absl::StrCat("dns grant ", zone, " ", grant.bytes));
        for (const auto& [tier, bytes] : policy.dns->budget) lines.push_back(absl::StrCat("dns budget ", tier, " ", bytes));
    }
    std::sort(lines.begin(), lines.end());
    lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
    return absl::StrCat("stockade.dev/v1 ", absl::CHexEscape(policy.name), "\nmode ", policy.mode,
                        " entered ", policy.entered, " grants ", policy.grants, " layers ", policy.layers,
                        " uids ", policy.has_uids, " deny_all ", policy.deny_all, "\n",
                        absl::StrJoin(lines, "\n"), "\n");
}

}  // namespace stockade::policy
