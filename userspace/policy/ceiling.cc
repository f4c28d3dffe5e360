#include "userspace/policy/ceiling.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/policy/ceiling_dns.h"
#include "userspace/policy/dns_names.h"
#include "userspace/policy/pattern.h"

namespace stockade::policy {
namespace {

constexpr uint32_t kCeilingLayer = 0;
constexpr uint32_t kOwnLayer = 1;

// Operations on paths by the section that speaks of them.
struct SectionOps {
    sk_section section;
    uint32_t ops;
    const char* list;
};
constexpr SectionOps kSections[] = {{SK_SECTION_EXEC, SK_OP_EXEC | SK_OP_MAP, "exec.allow"},
                                    {SK_SECTION_FILES, SK_OP_READ | SK_OP_WRITE, "files.write"},
                                    {SK_SECTION_NETWORK, SK_OP_UNIX, "network.allow"}};

// What a policy does not speak of it does not restrict: its layer allows all of it.
void AddSilence(const ResolvedPolicy& policy, uint32_t layer, ResolvedPolicy& out) {
    for (const SectionOps& row : kSections) {
        if (!policy.present[row.section] && out.present[row.section])
            out.paths.push_back({"/**", row.ops, 0, layer, row.list, policy.name, policy.at});
    }
}

void AddLayer(const std::vector<PathRule>& rules, uint32_t layer, std::vector<PathRule>& out) {
    for (PathRule rule : rules) {
        rule.layer = layer;
        out.push_back(std::move(rule));
    }
}

// Empty lists mean any port. False: they have none in common.
bool CommonPorts(const std::vector<PortRange>& a, const std::vector<PortRange>& b,
                 std::vector<PortRange>& out) {
    if (a.empty() || b.empty()) {
        out = a.empty() ? b : a;
        return true;
    }
    for (const PortRange& x : a) {
        for (const PortRange& y : b) {
            const PortRange both = {std::max(x.first, y.first), std::min(x.last, y.last)};
            if (both.first <= both.last) out.push_back(both);
        }
    }
    return !out.empty();
}

// The words of a key: IPv4 stands in the low half of `lo`.
bool Covers(const NetworkRule& wide, const NetworkRule& thin) {
    if (wide.family != thin.family || wide.bits > thin.bits) return false;
    const int skipped = wide.family == 4 ? 96 : 0;
    const int bits = wide.bits + skipped;
    const auto same = [](uint64_t a, uint64_t b, int leading) {
        return leading <= 0 || (a ^ b) >> (64 - std::min(leading, 64)) == 0;
    };
    return same(wide.hi, thin.hi, bits) && same(wide.lo, thin.lo, bits - 64);
}

bool CommonSocket(const NetworkRule& a, const NetworkRule& b, NetworkRule& out) {
    if (a.text == b.text) return out = a, true;
    if (a.abstract || b.abstract) return false;
    // One exact path that the other's pattern has. Two patterns are left to the path rules, which are intersected exactly.
    for (const auto& [exact, wide] : {std::pair(&a, &b), std::pair(&b, &a)}) {
        const StatusOr<PathPattern> one = ParsePattern(exact->text), other = ParsePattern(wide->text);
        if (!one.ok() || !other.ok() || !one->IsExact()) continue;
        const std::string path = one->LiteralPrefix();
        if (MatchPattern(*other, SplitPath(path))) return out = *exact, true;
    }
    return false;
}

// What both rules let through, as one rule. An address and a name have nothing in common: which addresses a name has is not known here.
bool Common(const NetworkRule& a, const NetworkRule& b, NetworkRule& out) {
    if (a.kind != b.kind) return false;
    if (a.kind == NetworkKind::kUnix) return CommonSocket(a, b, out);
    if (a.kind == NetworkKind::kCidr) {
        if (!Covers(a, b) && !Covers(b, a)) return false;
        out = Covers(a, b) ? b : a;
    } else {
        if (a.text != b.text && !CoversPattern(a.text, b.text) && !CoversPattern(b.text, a.text))
            return false;
        out = a.text == b.text || CoversPattern(a.text, b.text) ? b : a;
        out.tls_strict = a.tls_strict || b.tls_strict;
    }
    out.ports.clear();
    return CommonPorts(a.ports, b.ports, out.ports);
}

using Rules = std::vector<NetworkRule>;

// `lost`: rules of `own` of which nothing is left.
Rules CommonRules(const Rules& ceiling, const Rules& own, std::set<std::string>* lost) {
    Rules out;
    for (const NetworkRule& mine : own) {
        const size_t before = out.size();
        for (const NetworkRule& above : ceiling) {
            NetworkRule both;
            if (!Common(above, mine, both)) continue;
            both.at = mine.at;
            out.push_back(std::move(both));
        }
        const bool pattern = mine.kind == NetworkKind::kUnix && !mine.abstract;  // its path rule says more
        if (out.size() == before && !pattern) lost->insert(mine.text);
    }
    return out;
}

std::vector<PortEntry> CommonEntries(const std::vector<PortEntry>& ceiling,
                                     const std::vector<PortEntry>& own) {
    std::vector<PortEntry> out;
    const auto any = [](const PortRange& range) { return range.first == 0 && range.last == 0; };
    for (const PortEntry& mine : own) {
        for (const PortEntry& above : ceiling) {
            PortRange both = {std::max(mine.ports.first, above.ports.first),
                              std::min(mine.ports.last, above.ports.last)};
            if (any(mine.ports)) both = above.ports;
            if (any(above.ports)) both = mine.ports;
            if (both.first <= both.last) out.push_back({both, mine.at});
        }
    }
    return out;
}

const Rules& RulesOf(const ResolvedPolicy& policy, uint32_t uid) {
    const auto found = policy.uids.find(uid);
    return found == policy.uids.end() ? policy.network : found->second;
}

void NarrowNetwork(const ResolvedPolicy& ceiling, const ResolvedPolicy& own, ResolvedPolicy& out,
                   std::vector<std::string>& notes) {
    if (!ceiling.present[SK_SECTION_NETWORK]) return;
    if (!own.present[SK_SECTION_NETWORK]) {
        out.network = ceiling.network;
        out.loopback = ceiling.loopback;
        out.host = ceiling.host;
        out.bind = ceiling.bind;
        out.has_uids = ceiling.has_uids;
        out.uids = ceiling.uids;
        return;
    }
    std::set<std::string> lost;
    out.network = CommonRules(ceiling.network, own.network, &lost);
    out.loopback = CommonEntries(ceiling.loopback, own.loopback);
    out.host = CommonEntries(ceiling.host, own.host);
    out.bind = CommonEntries(ceiling.bind, own.bind);
    // A uid that either lists has a list of its own there, and the general one where it is not listed.
    out.has_uids = ceiling.has_uids || own.has_uids;
    out.uids.clear();
    std::set<uint32_t> uids;
    for (const ResolvedPolicy* policy : {&ceiling, &own}) {
        for (const auto& [uid, rules] : policy->uids) uids.insert(uid);
    }
    for (const uint32_t uid : uids)
        out.uids[uid] = CommonRules(RulesOf(ceiling, uid), RulesOf(own, uid), &lost);
    if (!lost.empty())
        notes.push_back(absl::StrCat(ceiling.name, " leaves nothing of ", absl::StrJoin(lost, ", ")));
}

// Stricter for who comes in from outside: not at all, then under the policy's rules, then seen only.
sk_verdict StricterEntered(sk_verdict a, sk_verdict b) {
    for (const sk_verdict verdict : {SK_VERDICT_DENY, SK_VERDICT_ALLOW}) {
        if (a == verdict || b == verdict) return verdict;
    }
    return SK_VERDICT_OBSERVE;
}

}  // namespace

Narrowed Narrow(const ResolvedPolicy& ceiling, ResolvedPolicy own) {
    Narrowed result;
    ResolvedPolicy& out = result.policy;
    out = own;
    out.bases.push_back(ceiling.name);
    for (int s = 0; s < SK_SECTION_SLOTS; ++s) {
        out.present[s] = own.present[s] || ceiling.present[s];
        // Of a section that only one has, the other's violation is that of nothing.
        const bool both = own.present[s] == ceiling.present[s];
        if (both) out.violation[s] = std::max(own.violation[s], ceiling.violation[s]);
        if (!both && ceiling.present[s]) out.violation[s] = ceiling.violation[s];
        out.record[s] = std::max(own.record[s], ceiling.record[s]);
    }
    out.mode = std::min(own.mode, ceiling.mode);
    out.entered = StricterEntered(own.entered, ceiling.entered);
    out.grants = own.grants & ceiling.grants;
    out.deny_all = own.deny_all || ceiling.deny_all;
    out.layers = 2;
    out.paths.clear();
    AddLayer(ceiling.paths, kCeilingLayer, out.paths);
    AddLayer(own.paths, kOwnLayer, out.paths);
    AddSilence(ceiling, kCeilingLayer, out);
    AddSilence(own, kOwnLayer, out);
    NarrowNetwork(ceiling, own, out, result.notes);
    NarrowDns(ceiling, own, out, result.notes);
    return result;
}

}  // namespace stockade::policy
