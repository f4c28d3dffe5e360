#include "userspace/policy/lint.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "userspace/policy/automaton.h"
#include "userspace/policy/dns_names.h"
#include "userspace/policy/pattern.h"

namespace stockade::policy {
namespace {

class Linter {
  public:
    Linter(const SandboxPolicy& document, const ResolvedPolicy& resolved)
        : document_(document), resolved_(resolved) {}

    std::vector<Diagnostic> Run() {
        Sections();
        Swallowed();
        Network();
        Names();
        std::stable_sort(out_.begin(), out_.end(), [](const Diagnostic& a, const Diagnostic& b) {
            return std::tie(a.at.file, a.at.line, a.at.column) < std::tie(b.at.file, b.at.line, b.at.column);
        });
        return std::move(out_);
    }

  private:
    void Warn(const Position& at, std::string message) {
        out_.push_back({Severity::kWarning, at, std::move(message)});
    }

    void Sections() {
        const std::pair<sk_section, const char*> kSections[] = {
            {SK_SECTION_EXEC, "exec"}, {SK_SECTION_FILES, "files"}, {SK_SECTION_NETWORK, "network"}};
        for (const auto& [section, name] : kSections) {
            if (resolved_.present[section]) continue;
            Warn(document_.at,
                 absl::StrCat("no ", name, " section: everything there is allowed and only recorded; write `",
                              name, ": {}` to refuse all of it"));
        }
        bool maps = false, runs = false;
        for (const PathRule& rule : resolved_.paths) {
            maps |= rule.list == "exec.libraries";
            runs |= rule.list == "exec.allow";
        }
        if (runs && !maps)
            Warn(document_.at, "no exec.libraries and no base: dynamically linked programs will not start");
    }

    // An allow is swallowed when every path it matches is denied for all that it allows.
    void Swallowed() {
        std::vector<PathPattern> patterns;
        for (const PathRule& rule : resolved_.paths) {
            StatusOr<PathPattern> pattern = ParsePattern(rule.pattern);
            if (!pattern.ok()) return;  // an error of the parser, reported there
            patterns.push_back(*std::move(pattern));
        }
        StatusOr<Automaton> automaton = Automaton::Build(patterns);
        if (!automaton.ok())
            return Warn(document_.at, "too many wildcards to tell whether a deny swallows an allow");
        std::vector<bool> survives(patterns.size(), false), met(patterns.size(), false);
        std::vector<uint32_t> swallower(patterns.size(), 0);
        for (uint32_t s = Automaton::kStart; s < automaton->size(); ++s) {
            const std::vector<uint32_t>& finals = automaton->state(s).finals;
            uint32_t deny = 0, last_deny = 0;
            for (uint32_t p : finals) {
                deny |= resolved_.paths[p].deny;
                if (resolved_.paths[p].deny != 0) last_deny = p;
            }
            for (uint32_t p : finals) {
                if (resolved_.paths[p].allow == 0) continue;
                met[p] = true;
                if ((resolved_.paths[p].allow & ~deny) != 0)
                    survives[p] = true;
                else
                    swallower[p] = last_deny;
            }
        }
        for (size_t p = 0; p < patterns.size(); ++p) {
            const PathRule& rule = resolved_.paths[p];
            // What a base allows and this policy denies on purpose is no mistake.
            if (!met[p] || survives[p] || rule.policy != document_.name) continue;
            const PathRule& by = resolved_.paths[swallower[p]];
            Warn(rule.at, absl::StrCat(rule.list, " '", rule.pattern, "' allows nothing: ", by.list, " '",
                                       by.pattern, "' (", ToString(by.at), ") denies all of it"));
        }
    }

    void Network() {
        if (resolved_.has_uids && resolved_.uids.size() == 1) {
            const auto at = document_.network && !document_.network->uids_at.empty()
                                ? document_.network->uids_at.begin()->second
                                : document_.at;
            Warn(at, absl::StrCat("uids lists ", resolved_.uids.begin()->first,
                                  " alone: where a sandbox runs everything under that one uid, this guards "
                                  "nothing; run the router under a uid of its own"));
        }
        if (resolved_.has_uids && !resolved_.network.empty()) {
            Warn(resolved_.network.front().at,
                 "network.allow holds for every uid that network.uids does not list, and for none that it "
                 "lists");
        }
        for (const NetworkRule& rule : resolved_.network) Rule(rule);
        for (const auto& [uid, rules] : resolved_.uids) {
            for (const NetworkRule& rule : rules) Rule(rule);
        }
    }

    // Under allowlist a budget is of use where a name may be asked for.
    void DnsGrants() {
        if (!resolved_.dns || DnsModeOf(resolved_) != SK_DNS_ALLOWLIST) return;
        const std::vector<std::string> names = ResolvableNames(resolved_);
        for (const auto& [zone, grant] : resolved_.dns->grants) {
            const std::string below = absl::StrCat("*.", zone);
            const bool used = std::any_of(names.begin(), names.end(), [&, &zone = zone](const std::string& name) {
                const absl::string_view bare = absl::StripPrefix(name, "*.");
                return bare == zone || CoversName(below, bare) || CoversName(name, zone);
            });
            if (!used) Warn(grant.at, absl::StrCat("dns.grants has no effect for '", zone, "': no name of it may be asked for"));
        }
    }

    void Names() {
        DnsGrants();
        if (!resolved_.dns || DnsModeOf(resolved_) != SK_DNS_CLOSED) return;
        if (!resolved_.dns->allow.empty())
            Warn(resolved_.dns->allow.front().at,
                 "dns.allow has no effect: dns.mode is closed, and nothing resolves");
        for (const NetworkRule& rule : resolved_.network) {
            if (rule.kind != NetworkKind::kName) continue;
            Warn(rule.at, absl::StrCat("the name '", rule.text,
                                       "' opens nothing: dns.mode is closed, and nothing resolves"));
        }
    }

    void Rule(const NetworkRule& rule) {
        if (rule.kind != NetworkKind::kUnix || rule.abstract) return;
        StatusOr<PathPattern> pattern = ParsePattern(rule.text);
        if (pattern.ok() && !pattern->IsExact()) {
            Warn(rule.at, absl::StrCat("the socket pattern '", rule.text,
                                       "' holds under the backend `lsm` only; `signal` allows exact paths"));
        }
    }

    const SandboxPolicy& document_;
    const ResolvedPolicy& resolved_;
    std::vector<Diagnostic> out_;
};

}  // namespace

std::vector<Diagnostic> Lint(const SandboxPolicy& document, const ResolvedPolicy& resolved) {
    return Linter(document, resolved).Run();
}

}  // namespace stockade::policy
