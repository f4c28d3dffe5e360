#include "userspace/dns/charge.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace stockade::dns {
namespace {

constexpr absl::string_view kIpv4Root = "in-addr.arpa", kIpv6Root = "ip6.arpa";

bool IsBelow(absl::string_view name, absl::string_view root) {
    return absl::EndsWith(name, root) &&
           (name.size() == root.size() || name[name.size() - root.size() - 1] == '.');
}

// "0" to "255" without leading zeros: one spelling for each address.
bool IsOctet(absl::string_view label) {
    if (label.empty() || label.size() > 3 || (label.size() > 1 && label[0] == '0')) return false;
    uint32_t value = 0;
    for (const char c : label) {
        if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
        value = value * 10 + static_cast<uint32_t>(c - '0');
    }
    return value <= 255;
}

bool IsNibble(absl::string_view label) {
    return label.size() == 1 && (absl::ascii_isdigit(static_cast<unsigned char>(label[0])) ||
                                 (label[0] >= 'a' && label[0] <= 'f'));
}

}  // namespace

uint16_t TypeBit(uint32_t type) {
    switch (type) {
        case SK_DNS_TYPE_A:
            return 1u << 0;
        case SK_DNS_TYPE_AAAA:
            return 1u << 1;
        case SK_DNS_TYPE_NS:
            return 1u << 2;
        case SK_DNS_TYPE_CNAME:
            return 1u << 3;
        case SK_DNS_TYPE_SOA:
            return 1u << 4;
        case SK_DNS_TYPE_NULL:
            return 1u << 5;
        case SK_DNS_TYPE_PTR:
            return 1u << 6;
        case SK_DNS_TYPE_MX:
            return 1u << 7;
        case SK_DNS_TYPE_TXT:
            return 1u << 8;
        case SK_DNS_TYPE_KEY:
            return 1u << 9;
        case SK_DNS_TYPE_SRV:
            return 1u << 10;
        case SK_DNS_TYPE_NAPTR:
            return 1u << 11;
        case SK_DNS_TYPE_SVCB:
            return 1u << 12;
        case SK_DNS_TYPE_HTTPS:
            return 1u << 13;
        case SK_DNS_TYPE_ANY:
            return 1u << 14;
        case SK_DNS_TYPE_CAA:
            return 1u << 15;
        default:
            return 0;
    }
}

bool IsReverseName(absl::string_view name) { return IsBelow(name, kIpv4Root) || IsBelow(name, kIpv6Root); }

absl::string_view ReverseRoot(absl::string_view name) {
    return name.substr(name.size() - (IsBelow(name, kIpv4Root) ? kIpv4Root : kIpv6Root).size());
}

uint32_t ReverseBits(absl::string_view name) {
    const absl::string_view root = ReverseRoot(name);
    if (name.size() == root.size()) return 0;
    const std::vector<absl::string_view> labels =
        absl::StrSplit(name.substr(0, name.size() - root.size() - 1), '.');
    if (root == kIpv4Root)
        return labels.size() == 4 && std::all_of(labels.begin(), labels.end(), IsOctet) ? 32 : 0;
    return labels.size() == 32 && std::all_of(labels.begin(), labels.end(), IsNibble) ? 128 : 0;
}

}  // namespace stockade::dns
