#include "userspace/dns/tiers.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/dns_message.h"
#include "userspace/dns/punycode.h"

namespace stockade::dns {
namespace {

// "a.b" from "a.b." and "*.a.b".
absl::string_view Bare(absl::string_view zone) {
    absl::ConsumePrefix(&zone, "*.");
    absl::ConsumeSuffix(&zone, ".");
    return zone;
}

bool IsHostName(absl::string_view name) {
    if (name.empty() || name.size() > SK_DNS_NAME_BYTES - 2) return false;
    for (absl::string_view label : absl::StrSplit(name, '.')) {
        if (label.empty() || label.size() > SK_DNS_LABEL_BYTES) return false;
        for (const char c : label) {
            if (!sk_dns_is_plain(static_cast<uint8_t>(c))) return false;
        }
    }
    return true;
}

}  // namespace

absl::string_view TierName(Tier tier) {
    switch (tier) {
        case Tier::kUnranked:
            return "unranked";
        case Tier::kRanked:
            return "ranked";
        case Tier::kGranted:
            return "granted";
        case Tier::kInternal:
            return "internal";
        case Tier::kProvider:
            return "provider";
        case Tier::kReverse:
            return "reverse";
    }
    return "?";
}

Status Tiers::Add(absl::string_view zone, Tier tier, uint32_t budget_bytes) {
    const StatusOr<std::string> name = ToAscii(Bare(zone));
    if (!name.ok() || !IsHostName(*name))
        return absl::InvalidArgumentError(absl::StrCat("'", zone, "' is no zone"));
    zones_[*name] = {tier, budget_bytes};
    return absl::OkStatus();
}

Status Tiers::AddLines(absl::string_view text, Tier tier) {
    int number = 0;
    for (absl::string_view line : absl::StrSplit(text, '\n')) {
        ++number;
        line = absl::StripAsciiWhitespace(line);
        if (line.empty() || line[0] == '#') continue;
        if (const Status added = Add(line, tier); !added.ok())
            return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", added.message()));
    }
    return absl::OkStatus();
}

Tiers::Entry Tiers::Find(absl::string_view name) const {
    while (true) {
        const auto found = zones_.find(name);
        if (found != zones_.end()) return found->second;
        const size_t dot = name.find('.');
        if (dot == absl::string_view::npos) return {};
        name.remove_prefix(dot + 1);
    }
}

}  // namespace stockade::dns
