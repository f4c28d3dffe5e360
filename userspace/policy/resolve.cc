#include "userspace/policy/resolve.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/policy/builtin.h"
#include "userspace/policy/canonical.h"
#include "userspace/policy/nearest.h"

namespace stockade::policy {
namespace {

constexpr uint32_t kReadOps = SK_OP_READ;
// Who may write may read back: programs open with O_RDWR, and what one wrote is no secret to it.
constexpr uint32_t kWriteOps = SK_OP_READ | SK_OP_WRITE;
constexpr uint32_t kFileDenyOps = SK_OP_READ | SK_OP_WRITE | SK_OP_UNIX;
constexpr uint32_t kExecOps = SK_OP_EXEC | SK_OP_MAP;

uint64_t GrantBit(absl::string_view name) {
#define X(bit, NAME, yaml) \
    if (name == yaml) return uint64_t{1} << bit;
    SK_GRANTS(X)
#undef X
    return 0;
}

void AddPaths(const std::string& policy, const char* list, const std::vector<Entry>& entries, uint32_t allow,
              uint32_t deny, ResolvedPolicy& out) {
    for (const Entry& entry : entries)
        out.paths.push_back({entry.text, allow, deny, 0, list, policy, entry.at});
}

template <typename T>
void Append(std::vector<T>& to, const std::vector<T>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

void FoldNetwork(const SandboxPolicy& policy, const NetworkSection& network, ResolvedPolicy& out) {
    for (const NetworkRule& rule : network.allow) {
        out.network.push_back(rule);
        if (rule.kind == NetworkKind::kUnix && !rule.abstract)
            AddPaths(policy.name, "network.allow", {{rule.text, rule.at}}, SK_OP_UNIX, 0, out);
    }
    Append(out.loopback, network.loopback);
    Append(out.host, network.host);
    Append(out.bind, network.bind);
    for (const auto& [uid, rules] : network.uids) {
        out.has_uids = true;
        Append(out.uids[uid], rules);
    }
}

void FoldDns(const DnsSection& dns, ResolvedPolicy& out) {
    if (!out.dns) out.dns.emplace();
    out.dns->at = dns.at;
    if (dns.mode) out.dns->mode = dns.mode;
    Append(out.dns->allow, dns.allow);
    // Whom to ask is one choice: a base's resolvers beside one's own would be asked as well.
    if (!dns.resolvers.empty()) out.dns->resolvers = dns.resolvers;
    for (const auto& [tier, bytes] : dns.budget) out.dns->budget[tier] = bytes;
    for (const auto& [zone, grant] : dns.grants) out.dns->grants[zone] = grant;
}

void FoldSection(const std::optional<sk_verdict>& own, const SandboxPolicy& policy, sk_section section,
                 ResolvedPolicy& out) {
    if (own) out.violation[section] = *own;
    if (!policy.builtin) out.present[section] = true;
}

void Fold(const SandboxPolicy& policy, ResolvedPolicy& out) {
    if (policy.violation) out.violation.fill(*policy.violation);
    if (policy.exec) {
        FoldSection(policy.exec->violation, policy, SK_SECTION_EXEC, out);
        AddPaths(policy.name, "exec.allow", policy.exec->allow, kExecOps, 0, out);
        AddPaths(policy.name, "exec.libraries", policy.exec->libraries, SK_OP_MAP, 0, out);
        AddPaths(policy.name, "exec.deny", policy.exec->deny, 0, kExecOps, out);
    }
    if (policy.files) {
        FoldSection(policy.files->violation, policy, SK_SECTION_FILES, out);
        AddPaths(policy.name, "files.read", policy.files->read, kReadOps, 0, out);
        AddPaths(policy.name, "files.write", policy.files->write, kWriteOps, 0, out);
        AddPaths(policy.name, "files.deny", policy.files->deny, 0, kFileDenyOps, out);
    }
    if (policy.network) {
        FoldSection(policy.network->violation, policy, SK_SECTION_NETWORK, out);
        FoldNetwork(policy, *policy.network, out);
    }
    if (policy.dns) {
        if (policy.dns->violation) out.violation[SK_SECTION_DNS] = *policy.dns->violation;
        FoldDns(*policy.dns, out);
    }
    if (policy.mode) out.mode = *policy.mode;
    if (policy.entered) out.entered = *policy.entered;
    for (int s = 0; s < SK_SECTION_SLOTS; ++s) {
        if (policy.record[s]) out.record[s] = *policy.record[s];
    }
    for (const Entry& grant : policy.grants) out.grants |= GrantBit(grant.text);
    if (policy.name == kDenyAll) out.deny_all = true;
}

class Resolver {
  public:
    Resolver(const PolicyLibrary& library, std::vector<Diagnostic>& diagnostics)
        : library_(library), diagnostics_(diagnostics) {}

    void Visit(const SandboxPolicy& policy, ResolvedPolicy& out) {
        stack_.push_back(policy.name);
        if (!policy.extends) VisitBase({kBase, policy.at}, out);
        for (Entry base : policy.extends.value_or(std::vector<Entry>())) {
            // One of its own namespace before one that all have, but for itself.
            const std::string near = QualifiedName(policy.name_space, base.text);
            if (!policy.name_space.empty() && near != policy.name && library_.Has(near)) base.text = near;
            VisitBase(base, out);
        }
        stack_.pop_back();
        // A base that two ways lead to is folded once, where it is met first.
        if (!folded_.insert(policy.name).second) return;
        if (!stack_.empty()) out.bases.push_back(policy.name);
        const bool deny_all_base = out.deny_all;
        Fold(policy, out);
        // The flag belongs to deny-all itself, not to what builds on it.
        if (policy.name != kDenyAll && deny_all_base) out.deny_all = false;
    }

  private:
    void VisitBase(const Entry& base, ResolvedPolicy& out) {
        if (std::find(stack_.begin(), stack_.end(), base.text) != stack_.end()) {
            return Error(base, absl::StrCat("extends in a circle: ", absl::StrJoin(stack_, " -> "), " -> ",
                                            base.text));
        }
        const SandboxPolicy* found = library_.Find(base.text);
        if (found == nullptr) {
            return Error(base, absl::StrCat("extends the unknown policy '", base.text, "'",
                                            Suggest(base.text, library_.Names())));
        }
        if (const std::vector<Diagnostic>* why = library_.Refusal(base.text)) {
            Error(base, absl::StrCat("extends '", base.text, "', whose file has errors"));
            diagnostics_.insert(diagnostics_.end(), why->begin(), why->end());
            return;
        }
        if (folded_.count(base.text) != 0) return;
        if (stack_.size() + folded_.size() >= kMaxExtends)
            return Error(base, absl::StrCat("extends more than ", kMaxExtends, " policies"));
        Visit(*found, out);
    }

    void Error(const Entry& at, std::string message) {
        diagnostics_.push_back({Severity::kError, at.at, std::move(message)});
    }

    const PolicyLibrary& library_;
    std::vector<Diagnostic>& diagnostics_;
    std::vector<std::string> stack_;
    std::set<std::string> folded_;
};

}  // namespace

PolicyLibrary::PolicyLibrary() {
    for (const SandboxPolicy& policy : BuiltinPolicies()) policies_.emplace(policy.name, policy);
}

const SandboxPolicy* PolicyLibrary::Find(const std::string& name) const {
    auto found = policies_.find(name);
    return found == policies_.end() ? nullptr : &found->second;
}

void PolicyLibrary::Refuse(const std::string& name, std::vector<Diagnostic> why) {
    refused_[name] = std::move(why);
}

const std::vector<Diagnostic>* PolicyLibrary::Refusal(const std::string& name) const {
    auto found = refused_.find(name);
    return found == refused_.end() ? nullptr : &found->second;
}

std::vector<std::string> PolicyLibrary::Names() const {
    std::vector<std::string> names;
    for (const auto& [name, policy] : policies_) names.push_back(name);
    return names;
}

void PolicyLibrary::Add(std::vector<SandboxPolicy> policies, std::vector<Diagnostic>& diagnostics) {
    for (SandboxPolicy& policy : policies) {
        const SandboxPolicy* old = Find(policy.name);
        if (policy.name.empty()) continue;  // reported by the parser
        if (old == nullptr) {
            const std::string name = policy.name;
            policies_.emplace(name, std::move(policy));
            continue;
        }
        if (old->at.file != kBuiltinFile) {
            diagnostics.push_back(
                {Severity::kError, policy.at,
                 absl::StrCat("duplicate policy name '", policy.name, "', first at ", ToString(old->at))});
            continue;
        }
        PolicyLibrary other;
        const StatusOr<ResolvedPolicy> builtin = other.Resolve(policy.name);
        policy.builtin = old->builtin;
        other.policies_[policy.name] = policy;
        const StatusOr<ResolvedPolicy> own = other.Resolve(policy.name);
        if (!builtin.ok() || !own.ok() || CanonicalText(*builtin) != CanonicalText(*own)) {
            diagnostics.push_back(
                {Severity::kError, policy.at,
                 absl::StrCat("the name '", policy.name,
                              "' is built in and means something else; choose another, or extend it")});
            continue;
        }
        policies_[policy.name] = std::move(policy);
    }
}

std::optional<ResolvedPolicy> PolicyLibrary::Resolve(const std::string& name,
                                                     std::vector<Diagnostic>& diagnostics) const {
    const SandboxPolicy* policy = Find(name);
    if (policy == nullptr) {
        diagnostics.push_back(
            {Severity::kError, {name, 0, 0}, absl::StrCat("no policy of this name", Suggest(name, Names()))});
        return std::nullopt;
    }
    if (const std::vector<Diagnostic>* why = Refusal(name)) {
        diagnostics.insert(diagnostics.end(), why->begin(), why->end());
        return std::nullopt;
    }
    ResolvedPolicy out;
    out.name = policy->name;
    out.at = policy->at;
    out.match_labels = policy->match_labels;
    out.tests = policy->tests;
    out.violation.fill(SK_VERDICT_DENY);
    out.record = {SK_RECORD_ALL, SK_RECORD_VIOLATIONS, SK_RECORD_ALL, SK_RECORD_ALL, SK_RECORD_ALL};
    std::vector<Diagnostic> errors;
    Resolver(*this, errors).Visit(*policy, out);
    diagnostics.insert(diagnostics.end(), errors.begin(), errors.end());
    if (!errors.empty()) return std::nullopt;
    return out;
}

StatusOr<ResolvedPolicy> PolicyLibrary::Resolve(const std::string& name) const {
    if (!Has(name))
        return absl::NotFoundError(absl::StrCat("no policy named '", name, "'", Suggest(name, Names())));
    std::vector<Diagnostic> diagnostics;
    std::optional<ResolvedPolicy> resolved = Resolve(name, diagnostics);
    if (resolved) return *std::move(resolved);
    return absl::InvalidArgumentError(
        absl::StrJoin(diagnostics, "\n", [](std::string* out, const Diagnostic& d) { *out += ToString(d); }));
}

}  // namespace stockade::policy
