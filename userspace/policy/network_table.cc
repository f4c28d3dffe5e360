#include "userspace/policy/network_table.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "userspace/policy/hashing.h"
#include "userspace/policy/pattern.h"

namespace stockade::policy {
namespace {

class NetworkTable {
  public:
    NetworkTable(const sk_hash_keys& keys, TableBuilder& table, sk_policy_head& head,
                 std::vector<Diagnostic>& warnings)
        : keys_(keys), table_(table), head_(head), warnings_(warnings) {}

    Status AddRule(uint32_t uid_class, const NetworkRule& rule) {
        switch (rule.kind) {
            case NetworkKind::kCidr:
                return AddCidr(uid_class, rule);
            case NetworkKind::kUnix:
                return AddUnix(rule);
            case NetworkKind::kName:
                // Addresses are pinned as they are answered; which, the agent says.
                head_.flags |= SK_POLICY_HAS_NAMES;
                if (rule.tls_strict) head_.flags |= SK_POLICY_HAS_TLS_NAMES;
                return absl::OkStatus();
        }
        return absl::OkStatus();
    }

    Status AddPorts(uint32_t domain, const std::vector<PortEntry>& entries, uint32_t next) {
        for (const PortEntry& entry : entries) {
            for (uint32_t port = entry.ports.first; port <= entry.ports.last; ++port) {
                SK_RETURN_IF_ERROR(Add(sk_word_key(&keys_, domain, port), next, entry.at));
            }
        }
        return absl::OkStatus();
    }

    Status Add(uint64_t key, uint32_t next, const Position& at) {
        if (!seen_.insert(key).second) return absl::OkStatus();
        if (seen_.size() > kMaxNetworkEntries) {
            return absl::InvalidArgumentError(
                absl::StrCat(ToString(at), ": ports, addresses and sockets expand to more than ",
                             kMaxNetworkEntries, " table entries; leave `ports` out to allow any port"));
        }
        table_.AddFixed(key, next, 0);
        return absl::OkStatus();
    }

  private:
    StatusOr<uint32_t> PrefixIndex(const NetworkRule& rule) {
        for (uint32_t i = 0; i < head_.prefixes; ++i) {
            if (head_.prefix[i].family == rule.family && head_.prefix[i].bits == rule.bits) return i;
        }
        if (head_.prefixes == SK_MAX_PREFIXES) {
            return absl::InvalidArgumentError(
                absl::StrCat(ToString(rule.at), ": more than ", SK_MAX_PREFIXES,
                             " different prefix lengths in one policy; widen or split some"));
        }
        head_.prefix[head_.prefixes] = {rule.family, rule.bits};
        return head_.prefixes++;
    }

    Status AddCidr(uint32_t uid_class, const NetworkRule& rule) {
        SK_ASSIGN_OR_RETURN(uint32_t prefix, PrefixIndex(rule));
        if (rule.ports.empty())
            return Add(sk_net_key(&keys_, uid_class, prefix, rule.hi, rule.lo, 0), 1, rule.at);
        for (const PortRange& range : rule.ports) {
            for (uint32_t port = range.first; port <= range.last; ++port) {
                SK_RETURN_IF_ERROR(
                    Add(sk_net_key(&keys_, uid_class, prefix, rule.hi, rule.lo, port), 1, rule.at));
            }
        }
        return absl::OkStatus();
    }

    Status AddUnix(const NetworkRule& rule) {
        std::string name = rule.text;
        if (rule.abstract) {
            name.erase(0, 1);
        } else {
            StatusOr<PathPattern> pattern = ParsePattern(name);
            // A pattern has no one string: it is judged by the peer's path alone.
            if (!pattern.ok() || !pattern->IsExact()) return pattern.status();
            name = pattern->LiteralPrefix();
        }
        return Add(sk_unix_key(&keys_, rule.abstract ? 1 : 0, HashString(keys_, name)), 1, rule.at);
    }

    const sk_hash_keys& keys_;
    TableBuilder& table_;
    sk_policy_head& head_;
    std::vector<Diagnostic>& warnings_;
    std::set<uint64_t> seen_;
};

}  // namespace

Status AddNetworkEntries(const ResolvedPolicy& policy, const sk_hash_keys& keys, TableBuilder& table,
                         sk_policy_head& head, std::vector<Diagnostic>& warnings) {
    NetworkTable out(keys, table, head, warnings);
    for (const NetworkRule& rule : policy.network) SK_RETURN_IF_ERROR(out.AddRule(0, rule));
    SK_RETURN_IF_ERROR(out.AddPorts(SK_KEY_LOOPBACK, policy.loopback, SK_BIND_LOOPBACK));
    SK_RETURN_IF_ERROR(out.AddPorts(SK_KEY_LOOPBACK, policy.host, SK_BIND_LOOPBACK));
    SK_RETURN_IF_ERROR(out.AddPorts(SK_KEY_BIND, policy.bind, SK_BIND_ANY));
    SK_RETURN_IF_ERROR(out.AddPorts(SK_KEY_BIND, policy.loopback, SK_BIND_LOOPBACK));
    for (const NetworkRule& rule : policy.denied) {
        head.flags |= SK_POLICY_HAS_DENIED;
        SK_RETURN_IF_ERROR(
            out.Add(sk_net_key(&keys, SK_NET_DENIED, rule.family, rule.hi, rule.lo, 0), 1, rule.at));
    }
    if (policy.has_uids) head.flags |= SK_POLICY_HAS_UIDS;
    uint32_t uid_class = 0;
    for (const auto& [uid, rules] : policy.uids) {
        const Position& at = rules.empty() ? policy.at : rules.front().at;
        SK_RETURN_IF_ERROR(out.Add(sk_word_key(&keys, SK_KEY_UID, uid), ++uid_class, at));
        for (const NetworkRule& rule : rules) SK_RETURN_IF_ERROR(out.AddRule(uid_class, rule));
    }
    return absl::OkStatus();
}

}  // namespace stockade::policy
