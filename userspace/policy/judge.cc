#include "userspace/policy/judge.h"

#include "absl/strings/str_cat.h"
#include "userspace/policy/dns_names.h"
#include "userspace/policy/parse.h"
#include "userspace/policy/prefix.h"
#include "userspace/policy/symlinks.h"

namespace stockade::policy {
namespace {

// Tables that stay in this process need no secret: nobody chooses names against them.
constexpr sk_hash_keys kLocalKeys = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9};

struct CaseInfo {
    absl::string_view name;
    absl::string_view section_name;
    sk_section section;
    uint32_t op;
};

const CaseInfo& InfoOf(CaseKind kind) {
    static const CaseInfo kInfo[] = {
        {"exec", "exec", SK_SECTION_EXEC, SK_OP_EXEC},   {"map", "exec", SK_SECTION_EXEC, SK_OP_MAP},
        {"read", "files", SK_SECTION_FILES, SK_OP_READ}, {"write", "files", SK_SECTION_FILES, SK_OP_WRITE},
        {"connect", "network", SK_SECTION_NETWORK, 0},   {"unix", "network", SK_SECTION_NETWORK, SK_OP_UNIX},
        {"bind", "network", SK_SECTION_NETWORK, 0},      {"dns", "dns", SK_SECTION_DNS, 0}};
    return kInfo[static_cast<int>(kind)];
}

void Name(const NetworkRule& rule, const char* list, Decision& out) {
    out.rule = rule.text;
    out.list = list;
    out.at = rule.at;
}

bool Contains(const NetworkRule& rule, const Endpoint& to) {
    if (rule.kind != NetworkKind::kCidr || rule.family != to.family) return false;
    uint64_t hi = to.hi, lo = to.lo;
    MaskPrefix(rule.family, rule.bits, hi, lo);
    if (hi != rule.hi || lo != rule.lo) return false;
    if (rule.ports.empty()) return true;
    for (const PortRange& range : rule.ports) {
        if (range.first <= to.port && to.port <= range.last) return true;
    }
    return false;
}

const PortEntry* FindPort(const std::vector<PortEntry>& entries, uint16_t port) {
    for (const PortEntry& entry : entries) {
        if (entry.ports.first == 0 || (entry.ports.first <= port && port <= entry.ports.last)) return &entry;
    }
    return nullptr;
}

Endpoint ToEndpoint(const AddressPort& address) {
    return {address.address.family, address.address.hi, address.address.lo, address.port};
}

void Finish(Decision& out) {
    if (!out.rule.empty()) {
        out.reason = absl::StrCat(out.list, " '", out.rule, "' (", ToString(out.at), ") ",
                                  out.allowed ? "allows" : "refuses", " ", out.object);
    } else if (out.reason.empty()) {
        out.reason = absl::StrCat("no rule of ", out.section, " allows ", out.object);
    }
}

}  // namespace

absl::string_view CaseName(CaseKind kind) { return InfoOf(kind).name; }

StatusOr<Judge> Judge::Create(ResolvedPolicy policy, int root_fd) {
    Judge judge;
    judge.policy_ = std::move(policy);
    judge.keys_ = kLocalKeys;
    judge.root_fd_ = root_fd;
    SK_ASSIGN_OR_RETURN(judge.compiled_, Compile(judge.policy_, judge.keys_, {root_fd}));
    SK_ASSIGN_OR_RETURN(judge.expansion_, ExpandRules(judge.policy_, root_fd));
    return judge;
}

void Judge::DecidePath(const TestCase& question, uint32_t op, Decision& out) const {
    if (root_fd_ >= 0) {
        StatusOr<FollowedPath> followed = RootLinks(root_fd_).Follow(question.object);
        if (followed.ok()) out.object = followed->path;
        if (out.object != question.object)
            out.notes.push_back(
                absl::StrCat(question.object, " is ", out.object, " once its links are followed"));
    }
    const PathVerdict verdict = EvaluatePath(View(), out.object);
    out.allowed = verdict.Allows(op);
    if (verdict.unknown) {
        out.reason = absl::StrCat(out.object, " is deeper than ", SK_PATH_SLOTS - 1,
                                  " components, which is refused whatever the rules say");
        return;
    }
    ExplainPath(op, out);
}

void Judge::ExplainPath(uint32_t op, Decision& out) const {
    const std::vector<absl::string_view> names = SplitPath(out.object);
    const PathRule* allow = nullptr;
    std::vector<bool> layer_allows(policy_.layers, false);
    for (const ExpandedRule& expanded : expansion_.rules) {
        const PathRule& rule = policy_.paths[expanded.rule];
        if (((rule.allow | rule.deny) & op) == 0 || !MatchPattern(expanded.pattern, names)) continue;
        if ((rule.deny & op) == 0) layer_allows[rule.layer] = true;
        if ((rule.deny & op) != 0 || allow == nullptr) allow = &rule;
        if ((rule.deny & op) != 0) break;
    }
    for (size_t layer = 0;
         !out.allowed && allow != nullptr && allow->deny == 0 && layer < layer_allows.size(); ++layer) {
        if (layer_allows[layer]) continue;
        out.reason = absl::StrCat(allow->policy, " allows ", out.object,
                                  ", but the policy it is cut down to by its ceiling does not");
        return;
    }
    if (allow == nullptr) return;
    out.rule = allow->pattern;
    out.list = allow->list;
    out.policy = allow->policy;
    out.at = allow->at;
}

void Judge::DecideConnect(const TestCase& question, Decision& out) const {
    StatusOr<AddressPort> address = ParseAddressPort(question.object);
    if (!address.ok()) {
        out.reason = std::string(address.status().message());
        return;
    }
    const Endpoint to = ToEndpoint(*address);
    const uint32_t uid = question.uid.value_or(0);
    out.allowed = EvaluateConnect(View(), uid, to);
    if (IsLoopback(to)) {
        const PortEntry* port = FindPort(policy_.loopback, to.port);
        const bool host = port == nullptr;
        if (host) port = FindPort(policy_.host, to.port);
        if (port != nullptr) {
            out.rule = absl::StrCat(to.port);
            out.list = host ? "network.host" : "network.loopback";
            out.at = port->at;
            return;
        }
    }
    auto own = policy_.uids.find(uid);
    const bool listed = policy_.has_uids && own != policy_.uids.end();
    for (const NetworkRule& rule : listed ? own->second : policy_.network) {
        if (Contains(rule, to)) return Name(rule, listed ? "network.uids" : "network.allow", out);
        if (rule.kind == NetworkKind::kName)
            out.notes.push_back(absl::StrCat("the name rule '", rule.text,
                                             "' opens the public addresses that the sandbox has resolved it to"));
    }
    if (listed)
        out.reason = absl::StrCat("network.uids lists ", uid,
                                  ", so only its own rules hold, and none allows ", out.object);
}

void Judge::DecideUnix(const TestCase& question, Decision& out) const {
    if (question.object.substr(0, 1) != "@") {
        DecidePath(question, SK_OP_UNIX, out);
        if (out.allowed && !EvaluateUnixName(View(), false, out.object)) {
            out.notes.push_back("allowed by a pattern: under the backend `signal` only exact paths are");
        }
        return;
    }
    out.allowed = EvaluateUnixName(View(), true, absl::string_view(question.object).substr(1));
    for (const NetworkRule& rule : policy_.network) {
        if (rule.kind == NetworkKind::kUnix && rule.text == question.object)
            return Name(rule, "network.allow", out);
    }
}

void Judge::DecideBind(const TestCase& question, Decision& out) const {
    StatusOr<AddressPort> address = ParseAddressPort(question.object);
    if (!address.ok()) {
        out.reason = std::string(address.status().message());
        return;
    }
    const Endpoint to = ToEndpoint(*address);
    if (to.port == 0) {
        out.allowed = true;
        out.reason = "the kernel chooses the port: every policy allows that";
        return;
    }
    out.allowed = EvaluateBind(View(), to);
    const PortEntry* port = FindPort(policy_.bind, to.port);
    out.list = "network.bind";
    if (port == nullptr && IsLoopback(to)) {
        port = FindPort(policy_.loopback, to.port);
        out.list = "network.loopback";
    }
    if (port == nullptr) return;
    out.rule = absl::StrCat(to.port);
    out.at = port->at;
}

std::string BudgetNote(const ResolvedPolicy& policy, absl::string_view name) {
    const DnsGrant* grant = DnsGrantOf(policy, name);
    if (grant == nullptr) return "a query has to fit into the budget of its zone as well: stockade dns meter";
    const std::string bytes = grant->bytes == kNoDnsBudget ? "without a bound" : absl::StrCat("of ", grant->bytes, " bytes");
    return absl::StrCat("dns.grants at ", ToString(grant->at), " gives its zone a budget ", bytes);
}

// Beside what the rules say a query has to fit into the budget of its zone.
void Judge::DecideName(const TestCase& question, Decision& out) const {
    if (!IsHostName(question.object)) {
        out.reason = absl::StrCat("'", question.object, "' is not a lower-case host name");
        return;
    }
    const sk_dns_mode mode = DnsModeOf(policy_);
    if (policy_.dns && mode == SK_DNS_CLOSED) {
        out.reason = "dns.mode is closed: nothing resolves";
        return;
    }
    if (policy_.dns) {
        for (const Entry& entry : policy_.dns->allow) {
            if (!CoversName(entry.text, question.object)) continue;
            out.rule = entry.text;
            out.list = "dns.allow";
            out.at = entry.at;
        }
    }
    for (const NetworkRule& rule : policy_.network) {
        if (rule.kind != NetworkKind::kName || !CoversName(rule.text, question.object)) continue;
        Name(rule, "network.allow", out);
        out.notes.push_back("its public addresses are opened when it is resolved");
        if (rule.tls_strict)
            out.notes.push_back("tls_name is strict: there only over TCP, with a ClientHello that names it or another such name");
    }
    out.allowed = !out.rule.empty() || mode == SK_DNS_OPEN || mode == SK_DNS_OBSERVE;
    out.notes.push_back(BudgetNote(policy_, question.object));
    if (!out.rule.empty()) return;
    if (out.allowed) {
        out.reason = absl::StrCat("dns.mode is ", mode == SK_DNS_OPEN ? "open" : "observe", ": every name may be asked for");
    } else if (!NeedsDns(policy_)) {
        out.reason = "the policy has neither dns: nor a rule by name: nothing resolves";
    }
}

Decision Judge::Decide(const TestCase& question) const {
    const CaseInfo& info = InfoOf(question.kind);
    Decision out;
    out.object = question.object;
    out.section = std::string(info.section_name);
    out.violation = policy_.violation[info.section];
    switch (question.kind) {
        case CaseKind::kConnect:
            DecideConnect(question, out);
            break;
        case CaseKind::kUnix:
            DecideUnix(question, out);
            break;
        case CaseKind::kBind:
            DecideBind(question, out);
            break;
        case CaseKind::kDns:
            DecideName(question, out);
            break;
        default:
            DecidePath(question, info.op, out);
            break;
    }
    Finish(out);
    // Without a section of its own nothing resolves: absent is not open here.
    if (question.kind != CaseKind::kDns && !policy_.present[info.section]) {
        out.enforced = false;
        out.allowed = true;
        out.reason = absl::StrCat("the policy has no ", out.section,
                                  " section: everything there is allowed and recorded");
    } else if (policy_.mode == SK_MODE_OBSERVE) {
        out.enforced = false;
        out.notes.push_back("mode: observe, so a refusal is recorded and not enforced");
    }
    return out;
}

std::vector<CaseResult> Judge::Run(const std::vector<TestCase>& cases) const {
    std::vector<CaseResult> results;
    for (const TestCase& test : cases) {
        Decision decision = Decide(test);
        const bool passed = decision.allowed == test.expect_allowed;
        results.push_back({test, std::move(decision), passed});
    }
    return results;
}

}  // namespace stockade::policy
