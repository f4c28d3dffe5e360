#include "userspace/cmd/network_advice.h"

#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bpf/wire/kinds.h"
#include "userspace/dns/embedded.h"
#include "userspace/dns/suffix_list.h"
#include "userspace/model/names.h"
#include "userspace/policy/dns_names.h"

namespace stockade::cmd {
namespace {

constexpr int kDnsPort = 53;
// net.ipv4.ip_local_port_range begins here unless somebody changed it.
constexpr int kFirstEphemeralPort = 32768;
// Two names are told each for itself: a whole zone is more than they need.
constexpr size_t kNamesOfAZone = 3;

// The port of "127.0.0.1:80" and "[::1]:80"; 0 where it is none of the loopback.
int LoopbackPort(absl::string_view object) {
    const size_t colon = object.rfind(':');
    const bool loopback = absl::StartsWith(object, "127.") || absl::StartsWith(object, "[::1]:");
    int port = 0;
    if (!loopback || colon == object.npos || !absl::SimpleAtoi(object.substr(colon + 1), &port)) return 0;
    return port;
}

void AdviseLoopback(const policy::ResolvedPolicy& policy, bool connects, v1::Refusal& refusal) {
    const int port = LoopbackPort(refusal.object());
    if (port >= kFirstEphemeralPort) refusal.set_suggestion("network.loopback: [any]");
    if (!connects || port != kDnsPort) return;
    refusal.clear_suggestion();
    refusal.set_explanation(
        policy::NeedsDns(policy)
            ? "names are asked of the server in /etc/resolv.conf, which the policy opens by itself"
            : "a name was looked up, and without DNS nothing resolves. To allow it: dns: {allow: "
              "[NAME]}, and to connect to it as well: network.allow: [{name: NAME, ports: [443]}]");
}

std::string ZoneOf(const std::string& name) {
    static const auto* const list =
        new StatusOr<dns::SuffixList>(dns::SuffixList::Parse(dns::EmbeddedSuffixList()));
    const std::string lower = absl::AsciiStrToLower(name);
    if (!list->ok() || !policy::IsHostName(lower)) return "";
    return std::string((*list)->Find(lower).registered);
}

void AdviseZones(const std::vector<v1::Refusal*>& names) {
    if (names.size() < kNamesOfAZone) return;
    std::map<std::string, std::vector<v1::Refusal*>> zones;
    for (v1::Refusal* refusal : names) {
        if (const std::string zone = ZoneOf(refusal->object()); !zone.empty()) zones[zone].push_back(refusal);
    }
    for (const auto& [zone, refusals] : zones) {
        if (refusals.size() < kNamesOfAZone) continue;
        for (v1::Refusal* refusal : refusals) refusal->clear_suggestion();
        refusals.front()->set_suggestion(absl::StrCat("dns.allow: [", zone, ", \"*.", zone, "\"]"));
        refusals.front()->set_explanation(
            absl::StrCat("for all ", refusals.size(), " names of ", zone, " here"));
    }
}

}  // namespace

void AdviseNetwork(const policy::ResolvedPolicy& policy, v1::Summary* summary) {
    std::vector<v1::Refusal*> names;
    for (v1::Refusal& refusal : *summary->mutable_refusals()) {
        if (refusal.suggestion().empty()) continue;
        switch (model::NumberOf(model::Codes(), refusal.code())) {
            case SK_CODE_CONNECT_NOT_ALLOWED:
            case SK_CODE_SEND_NOT_ALLOWED:
            case SK_CODE_PACKET_NOT_ALLOWED:
                AdviseLoopback(policy, true, refusal);
                break;
            case SK_CODE_BIND_NOT_ALLOWED:
                AdviseLoopback(policy, false, refusal);
                break;
            case SK_CODE_DNS_NOT_ALLOWED:
                names.push_back(&refusal);
                break;
            default:
                break;
        }
    }
    AdviseZones(names);
}

}  // namespace stockade::cmd
