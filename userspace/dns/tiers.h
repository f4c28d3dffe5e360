// Which zones are trusted with how much: the lists of the operator and of the policy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::dns {

// Numbers are kept in saved state and never change.
enum class Tier : uint8_t {
    kUnranked = 0,  // anybody's: the small budget, for the life of the session
    kRanked = 1,    // on a list of well-known zones: a larger budget a day
    kGranted = 2,   // the policy names a budget
    kInternal = 3,  // the site's own zones and search suffixes: not charged
    kProvider = 4,  // a provider's zones on its own name servers, where customers see no queries: not charged
    kReverse = 5,   // in-addr.arpa and ip6.arpa: a budget of their own
};
absl::string_view TierName(Tier tier);
inline bool IsCharged(Tier tier) { return tier != Tier::kInternal && tier != Tier::kProvider; }

// The most specific entry wins: "cdn.example.com" before "example.com".
//
//   Tiers tiers;
//   tiers.Add("example.com", Tier::kRanked);
//   tiers.Find("a.b.example.com").tier == Tier::kRanked
class Tiers {
  public:
    struct Entry {
        Tier tier = Tier::kUnranked;
        uint32_t budget_bytes = 0;  // granted zones only
    };

    // `zone` covers itself and all below it. kInvalidArgument for what is no host name; a later
    // entry for the same zone replaces the earlier one.
    Status Add(absl::string_view zone, Tier tier, uint32_t budget_bytes = 0);
    // One zone a line; empty lines and those that start with '#' do not count. Errors name the line.
    Status AddLines(absl::string_view text, Tier tier);

    // For a lower-case name without a final dot.
    Entry Find(absl::string_view name) const;

    void ForEach(absl::FunctionRef<void(absl::string_view, const Entry&)> visit) const {
        for (const auto& [zone, entry] : zones_) visit(zone, entry);
    }

  private:
    absl::flat_hash_map<std::string, Entry> zones_;
};

}  // namespace stockade::dns
