#include <algorithm>

#include "userspace/policy/parse.h"
#include "userspace/policy/pattern.h"
#include "userspace/policy/resolve.h"

namespace stockade::policy {
namespace {

struct SectionOps {
    sk_section section;
    uint32_t ops;
};
constexpr SectionOps kSectionOps[] = {{SK_SECTION_EXEC, SK_OP_EXEC | SK_OP_MAP},
                                      {SK_SECTION_FILES, SK_OP_READ | SK_OP_WRITE},
                                      {SK_SECTION_NETWORK, SK_OP_UNIX}};

// The path rules of one side, in layers of their own. A section that a side leaves out does not
// bind it, so there it allows everything.
void AddSide(const ResolvedPolicy& side, ResolvedPolicy& out) {
    for (PathRule rule : side.paths) {
        rule.layer += out.layers;
        out.paths.push_back(std::move(rule));
    }
    for (const SectionOps& s : kSectionOps) {
        if (side.present[s.section]) continue;
        for (uint32_t layer = 0; layer < side.layers; ++layer) {
            out.paths.push_back(
                {"/**", s.ops, 0, out.layers + layer, "(section absent)", side.name, side.at});
        }
    }
    out.layers += side.layers;
}

// Port 0 stands for any.
std::optional<PortRange> Common(PortRange a, PortRange b) {
    if (a.first == 0) return b;
    if (b.first == 0) return a;
    const PortRange both{std::max(a.first, b.first), std::min(a.last, b.last)};
    if (both.first > both.last) return std::nullopt;
    return both;
}

std::vector<PortEntry> CommonPorts(const std::vector<PortEntry>& a, const std::vector<PortEntry>& b) {
    std::vector<PortEntry> out;
    for (const PortEntry& x : a) {
        for (const PortEntry& y : b) {
            if (std::optional<PortRange> both = Common(x.ports, y.ports)) out.push_back({*both, y.at});
        }
    }
    return out;
}

// The narrower of two rules where one contains the other; its ports are still to be cut.
std::optional<NetworkRule> CommonTarget(const NetworkRule& a, const NetworkRule& b) {
    if (a.kind != b.kind) return std::nullopt;
    if (a.kind == NetworkKind::kCidr) {
        if (a.family != b.family) return std::nullopt;
        const NetworkRule& narrow = a.bits >= b.bits ? a : b;
        const NetworkRule& wide = a.bits >= b.bits ? b : a;
        NetworkRule cut = narrow;
        const int bits = wide.bits;
        if (cut.family == 4) {
            cut.lo &= bits == 0 ? 0 : (~uint64_t{0} << (32 - bits)) & 0xffffffff;
        } else {
            cut.hi &= bits == 0 ? 0 : bits >= 64 ? ~uint64_t{0} : ~uint64_t{0} << (64 - bits);
            cut.lo &= bits <= 64 ? 0 : ~uint64_t{0} << (128 - bits);
        }
        if (cut.hi != wide.hi || cut.lo != wide.lo) return std::nullopt;
        return narrow;
    }
    if (a.text == b.text) return b;
    if (a.abstract || b.abstract) return std::nullopt;
    if (a.kind == NetworkKind::kName) {
        const auto covers = [](const NetworkRule& wide, const NetworkRule& narrow) {
            if (wide.text.substr(0, 2) != "*.") return false;
            const std::string tail = wide.text.substr(1);
            return narrow.text.size() > tail.size() &&
                   narrow.text.compare(narrow.text.size() - tail.size(), tail.size(), tail) == 0;
        };
        if (covers(a, b)) return b;
        return covers(b, a) ? std::optional(a) : std::nullopt;
    }
    // Unix paths: an exact one inside the other's pattern keeps its entry in the table of exact
    // strings; what two patterns share is judged by their PathRules.
    const StatusOr<PathPattern> pa = ParsePattern(a.text), pb = ParsePattern(b.text);
    if (!pa.ok() || !pb.ok()) return std::nullopt;
    if (pb->IsExact() && MatchPattern(*pa, SplitPath(pb->LiteralPrefix()))) return b;
    if (pa->IsExact() && MatchPattern(*pb, SplitPath(pa->LiteralPrefix()))) return a;
    return std::nullopt;
}

std::vector<NetworkRule> CommonRules(const std::vector<NetworkRule>& a, const std::vector<NetworkRule>& b) {
    std::vector<NetworkRule> out;
    const std::vector<PortRange> any = {{0, 0}};
    for (const NetworkRule& x : a) {
        for (const NetworkRule& y : b) {
            std::optional<NetworkRule> both = CommonTarget(x, y);
            if (!both) continue;
            both->ports.clear();
            bool some = false, all = false;
            for (PortRange p : x.ports.empty() ? any : x.ports) {
                for (PortRange q : y.ports.empty() ? any : y.ports) {
                    std::optional<PortRange> ports = Common(p, q);
                    if (!ports) continue;
                    some = true;
                    all |= ports->first == 0;
                    both->ports.push_back(*ports);
                }
            }
            if (all) both->ports.clear();
            if (some) out.push_back(*std::move(both));
        }
    }
    return out;
}

const std::vector<NetworkRule>& RulesOf(const ResolvedPolicy& policy, uint32_t uid) {
    auto found = policy.uids.find(uid);
    return found == policy.uids.end() ? policy.network : found->second;
}

void IntersectNetwork(const ResolvedPolicy& a, const ResolvedPolicy& b, ResolvedPolicy& out) {
    if (!a.present[SK_SECTION_NETWORK] || !b.present[SK_SECTION_NETWORK]) {
        const ResolvedPolicy& only = a.present[SK_SECTION_NETWORK] ? a : b;
        out.network = only.network;
        out.loopback = only.loopback;
        out.host = only.host;
        out.bind = only.bind;
        out.has_uids = only.has_uids;
        out.uids = only.uids;
        return;
    }
    out.network = CommonRules(a.network, b.network);
    out.loopback = CommonPorts(a.loopback, b.loopback);
    out.host = CommonPorts(a.host, b.host);
    out.bind = CommonPorts(a.bind, b.bind);
    out.has_uids = a.has_uids || b.has_uids;
    for (const ResolvedPolicy* side : {&a, &b}) {
        for (const auto& [uid, rules] : side->uids)
            out.uids[uid] = CommonRules(RulesOf(a, uid), RulesOf(b, uid));
    }
}

// deny, then enforce (let in and judged), then observe.
int Strictness(sk_verdict entered) {
    return entered == SK_VERDICT_DENY ? 2 : entered == SK_VERDICT_ALLOW ? 1 : 0;
}

}  // namespace

ResolvedPolicy Intersect(const ResolvedPolicy& ceiling, const ResolvedPolicy& tenant) {
    ResolvedPolicy out;
    out.name = tenant.name;
    out.at = tenant.at;
    out.bases = tenant.bases;
    out.bases.push_back(ceiling.name);
    out.match_labels = tenant.match_labels;
    out.tests = tenant.tests;
    out.dns = tenant.dns ? tenant.dns : ceiling.dns;
    out.mode =
        ceiling.mode == SK_MODE_ENFORCE || tenant.mode == SK_MODE_ENFORCE ? SK_MODE_ENFORCE : SK_MODE_OBSERVE;
    out.entered =
        Strictness(ceiling.entered) >= Strictness(tenant.entered) ? ceiling.entered : tenant.entered;
    for (int s = 0; s < SK_SECTION_SLOTS; ++s) {
        out.violation[s] = std::max(ceiling.violation[s], tenant.violation[s]);
        out.record[s] = std::max(ceiling.record[s], tenant.record[s]);
        out.present[s] = ceiling.present[s] || tenant.present[s];
    }
    out.deny_all = ceiling.deny_all || tenant.deny_all;
    out.grants = ceiling.grants & tenant.grants;
    out.layers = 0;
    AddSide(ceiling, out);
    AddSide(tenant, out);
    IntersectNetwork(ceiling, tenant, out);
    return out;
}

}  // namespace stockade::policy
