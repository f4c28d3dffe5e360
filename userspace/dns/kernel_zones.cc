#include "userspace/dns/kernel_zones.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "bpf/wire/dns_zone.h"
#include "userspace/dns/zone_hash.h"

namespace stockade::dns {
namespace {

// One list of numbers, read on both sides.
static_assert(kSuffixIcann == SK_DNS_SUFFIX_ICANN && kSuffixPrivate == SK_DNS_SUFFIX_PRIVATE &&
              kWildcardIcann == SK_DNS_WILDCARD_ICANN && kWildcardPrivate == SK_DNS_WILDCARD_PRIVATE &&
              kException == SK_DNS_EXCEPTION);
#define SAME(name, NAME) static_assert(static_cast<int>(Tier::name) == SK_DNS_TIER_##NAME)
SAME(kUnranked, UNRANKED);
SAME(kRanked, RANKED);
SAME(kGranted, GRANTED);
SAME(kInternal, INTERNAL);
SAME(kProvider, PROVIDER);
SAME(kReverse, REVERSE);
#undef SAME

bool Fits(absl::string_view zone) { return std::count(zone.begin(), zone.end(), '.') < SK_DNS_ZONE_LABELS; }

}  // namespace

std::vector<std::pair<uint64_t, uint32_t>> KernelZones(const Knowledge& knowledge, const sk_hash_keys& keys) {
    absl::flat_hash_map<uint64_t, uint32_t> zones;
    knowledge.suffixes.ForEach([&](absl::string_view suffix, uint8_t flags) {
        if (Fits(suffix)) zones[ZoneHash(keys, suffix)] |= flags;
    });
    const auto add_tier = [&](absl::string_view zone, Tier tier) {
        if (Fits(zone)) zones[ZoneHash(keys, zone)] |= (static_cast<uint32_t>(tier) + 1) << SK_DNS_TIER_SHIFT;
    };
    knowledge.tiers.ForEach([&](absl::string_view zone, const Tiers::Entry& entry) { add_tier(zone, entry.tier); });
    for (const absl::string_view root : {"in-addr.arpa", "ip6.arpa"}) {
        if (knowledge.tiers.Find(root).tier == Tier::kUnranked) add_tier(root, Tier::kReverse);
    }
    return {zones.begin(), zones.end()};
}

}  // namespace stockade::dns
