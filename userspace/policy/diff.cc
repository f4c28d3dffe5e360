#include "userspace/policy/diff.h"

#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/policy/automaton.h"
#include "userspace/policy/diff_dns.h"
#include "userspace/policy/pattern.h"
#include "userspace/policy/verdict_bits.h"

namespace stockade::policy {
namespace {

struct OpName {
    uint32_t op;
    const char* name;
    sk_section section;
};
constexpr OpName kOps[] = {{SK_OP_EXEC, "exec", SK_SECTION_EXEC},
                           {SK_OP_MAP, "map", SK_SECTION_EXEC},
                           {SK_OP_READ, "read", SK_SECTION_FILES},
                           {SK_OP_WRITE, "write", SK_SECTION_FILES},
                           {SK_OP_UNIX, "unix", SK_SECTION_NETWORK}};

class PathDiff {
  public:
    PathDiff(const ResolvedPolicy& from, const ResolvedPolicy& to, std::vector<Change>& out)
        : sides_{&from, &to}, out_(out) {}

    Status Run() {
        std::vector<PathPattern> patterns;
        for (int side : {0, 1}) {
            for (const PathRule& rule : sides_[side]->paths) {
                StatusOr<PathPattern> pattern = ParsePattern(rule.pattern);
                if (!pattern.ok()) return Annotate(pattern.status(), ToString(rule.at));
                patterns.push_back(*std::move(pattern));
                rules_.push_back({side, &rule});
            }
        }
        SK_ASSIGN_OR_RETURN(Automaton automaton, Automaton::Build(patterns));
        const std::vector<std::string> witnesses = automaton.Witnesses();
        for (uint32_t s = Automaton::kStart; s < automaton.size(); ++s) {
            if (s != Automaton::kStart && witnesses[s].empty()) continue;
            Compare(automaton.state(s).finals, witnesses[s].empty() ? "/" : witnesses[s]);
        }
        return absl::OkStatus();
    }

  private:
    struct Owned {
        int side;
        const PathRule* rule;
    };

    bool Allows(int side, const std::vector<uint32_t>& finals, const OpName& op) const {
        const ResolvedPolicy& policy = *sides_[side];
        if (!policy.present[op.section]) return true;
        PatternBits bits;
        bits.allow.resize(policy.layers, 0);
        for (uint32_t p : finals) {
            if (rules_[p].side != side) continue;
            bits.allow[rules_[p].rule->layer] |= rules_[p].rule->allow;
            bits.deny |= rules_[p].rule->deny;
        }
        const uint32_t verdict = bits.ToVerdict();
        return (verdict & op.op) != 0 && ((verdict >> SK_DENY_SHIFT) & op.op) == 0;
    }

    // The rule that makes the difference: an allow of the side that allows, or a deny of the other.
    const PathRule* Deciding(int allowing, const std::vector<uint32_t>& finals, uint32_t op) const {
        const PathRule* found = nullptr;
        for (uint32_t p : finals) {
            const Owned& owned = rules_[p];
            if (owned.side != allowing && (owned.rule->deny & op) != 0) return owned.rule;
            if (owned.side == allowing && (owned.rule->allow & op) != 0 && found == nullptr)
                found = owned.rule;
        }
        return found;
    }

    void Compare(const std::vector<uint32_t>& finals, const std::string& witness) {
        for (const OpName& op : kOps) {
            const bool before = Allows(0, finals, op), after = Allows(1, finals, op);
            if (before == after) continue;
            const PathRule* rule = Deciding(after ? 1 : 0, finals, op.op);
            // One line for each rule: a rule shows up in many states.
            if (!seen_.emplace(op.name, after, rule).second) continue;
            out_.push_back({after ? Change::kAllowed : Change::kRefused, op.name, witness,
                            rule == nullptr ? "" : rule->pattern, rule == nullptr ? Position{} : rule->at});
        }
    }

    const ResolvedPolicy* sides_[2];
    std::vector<Owned> rules_;
    std::set<std::tuple<std::string, bool, const PathRule*>> seen_;
    std::vector<Change>& out_;
};

// Text of a rule -> where it stands.
using Facts = std::map<std::pair<std::string, std::string>, Position>;

std::string Ports(const std::vector<PortRange>& ports) {
    if (ports.empty()) return "any port";
    return absl::StrCat("ports ", absl::StrJoin(ports, ",", [](std::string* out, const PortRange& p) {
                            absl::StrAppend(out, p.first);
                            if (p.last != p.first) absl::StrAppend(out, "-", p.last);
                        }));
}

void AddRules(const char* what, const std::string& prefix, const std::vector<NetworkRule>& rules,
              Facts& facts) {
    for (const NetworkRule& rule : rules) {
        if (rule.kind == NetworkKind::kUnix && !rule.abstract) continue;  // told as a path
        const std::string ports = rule.kind == NetworkKind::kUnix ? "" : " " + Ports(rule.ports);
        const char* tls = rule.tls_strict ? " tls_name strict" : "";
        facts.emplace(std::pair(what, absl::StrCat(prefix, rule.text, ports, tls)), rule.at);
    }
}

Facts FactsOf(const ResolvedPolicy& policy) {
    Facts facts;
    AddRules("network", "", policy.network, facts);
    for (const auto& [uid, rules] : policy.uids)
        AddRules("network", absl::StrCat("uid ", uid, ": "), rules, facts);
    const std::pair<const char*, const std::vector<PortEntry>*> kPorts[] = {
        {"loopback", &policy.loopback}, {"host", &policy.host}, {"bind", &policy.bind}};
    for (const auto& [what, entries] : kPorts) {
        for (const PortEntry& entry : *entries) {
            std::vector<PortRange> ranges;
            if (entry.ports.first != 0) ranges.push_back(entry.ports);
            facts.emplace(std::pair(what, Ports(ranges)), entry.at);
        }
    }
    if (!policy.present[SK_SECTION_NETWORK])
        facts.emplace(std::pair("network", "everything (no network section)"), policy.at);
#define X(bit, NAME, yaml) \
    if ((policy.grants >> bit & 1) != 0) facts.emplace(std::pair("grant", yaml), policy.at);
    SK_GRANTS(X)
#undef X
    return facts;
}

absl::string_view EnteredName(sk_verdict entered) {
    return entered == SK_VERDICT_ALLOW ? "enforce" : entered == SK_VERDICT_OBSERVE ? "observe" : "deny";
}

absl::string_view ViolationName(sk_verdict violation) {
    return violation == SK_VERDICT_KILL_SANDBOX   ? "kill-sandbox"
           : violation == SK_VERDICT_KILL_PROCESS ? "kill-process"
                                                  : "deny";
}

// A section that neither has refuses nothing, so what would follow a refusal is no difference.
void DiffSettings(const ResolvedPolicy& from, const ResolvedPolicy& to, std::vector<Change>& out) {
    const auto add = [&](std::string what, absl::string_view before, absl::string_view after) {
        if (before == after) return;
        out.push_back({Change::kSetting, std::move(what), absl::StrCat(before, " -> ", after), "", to.at});
    };
    const auto mode = [](const ResolvedPolicy& p) {
        return p.mode == SK_MODE_OBSERVE ? "observe" : "enforce";
    };
    add("mode", mode(from), mode(to));
    add("entered", EnteredName(from.entered), EnteredName(to.entered));
    const std::pair<sk_section, const char*> kSections[] = {
        {SK_SECTION_EXEC, "exec"}, {SK_SECTION_FILES, "files"}, {SK_SECTION_NETWORK, "network"}};
    for (const auto& [section, name] : kSections) {
        if (!from.present[section] || !to.present[section]) continue;
        add(absl::StrCat(name, ".violation"), ViolationName(from.violation[section]),
            ViolationName(to.violation[section]));
    }
    if (from.dns && to.dns)
        add("dns.violation", ViolationName(from.violation[SK_SECTION_DNS]),
            ViolationName(to.violation[SK_SECTION_DNS]));
    // Of what needs a grant, and of tasks that enter: only the whole policy's own word sets it.
    add("violation", ViolationName(from.violation[SK_SECTION_ESCAPE]),
        ViolationName(to.violation[SK_SECTION_ESCAPE]));
}

}  // namespace

StatusOr<std::vector<Change>> Diff(const ResolvedPolicy& from, const ResolvedPolicy& to) {
    std::vector<Change> out;
    SK_RETURN_IF_ERROR(PathDiff(from, to, out).Run());
    const Facts before = FactsOf(from), after = FactsOf(to);
    for (const auto& [fact, at] : after) {
        if (before.count(fact) == 0) out.push_back({Change::kAllowed, fact.first, fact.second, "", at});
    }
    for (const auto& [fact, at] : before) {
        if (after.count(fact) == 0) out.push_back({Change::kRefused, fact.first, fact.second, "", at});
    }
    DiffDns(from, to, out);
    DiffSettings(from, to, out);
    return out;
}

}  // namespace stockade::policy
