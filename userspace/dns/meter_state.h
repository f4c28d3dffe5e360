// What is remembered of one budget id: which zones were asked how much, and which names were said.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "bpf/wire/hash.h"
#include "userspace/base/status.h"
#include "userspace/dns/tiers.h"

namespace stockade::dns {

// Charges are in sixteenths of a bit, times in quanta (SK_DNS_QUANTUM_SHIFT) since the state's
// epoch: 32 bits of them are two years.
struct ZoneRecord {
    uint32_t key = 0;  // keyed hash of the zone's name; two that collide share a budget
    uint32_t spent = 0;
    uint32_t last = 0;       // when its last charged query was sent; valid if `asked`
    uint32_t last_name = 0;  // fingerprint of the name asked last, for A after AAAA
    uint32_t held_charges =
        0;               // part of `spent`: repeats whose answers have yet to show that a cache gave them
    uint16_t held = 0;   // how many
    uint16_t day = 0;    // of a ranked zone, since the epoch: which one `spent` is of
    uint16_t names = 0;  // (name, type) pairs seen
    uint16_t downlink_bytes = 0;  // stops at 65,535
    Tier tier = Tier::kUnranked;
    uint8_t blocked : 1 = 0;
    uint8_t warned : 1 = 0;
    uint8_t asked : 1 = 0;
    uint8_t downlink_warned : 1 = 0;
    uint8_t last_type : 2 = 0;  // of last_name: 1 A, 2 AAAA, 0 another
};
static_assert(sizeof(ZoneRecord) == 32);

// A name under a zone. Its fingerprint is keyed: nobody can make two names that share one.
struct NameRecord {
    uint32_t fingerprint = 0;
    uint16_t zone = 0;                  // index
    uint16_t types = 0;                 // bit per type of TypeBit()
    uint16_t cached_until[2] = {0, 0};  // answers for A, AAAA are in the resolver's cache until this tick
};
static_assert(sizeof(NameRecord) == 12);

// Cached answers are counted in ticks of 4 s since MeterState::tick_base, rounded against the sandbox.
inline constexpr uint32_t kTickSeconds = 4;

// Sizes that keep a budget id below 16 KiB. A charged zone is never forgotten: what comes when the
// table is full shares the budget of one zone (kOverflowZone). Names that find no room are charged
// as new each time.
inline constexpr size_t kMaxZones = 232;
inline constexpr size_t kMaxNames = 720;
inline constexpr size_t kMaxStateBytes = 16 * 1024;

// Zones 0 and 1 are always there.
inline constexpr size_t kOverflowZone = 0;
inline constexpr size_t kReverseZone = 1;

// Plain data with look-ups; it knows nothing of budgets. Not thread-safe.
class MeterState {
  public:
    // `keys` are secret and random where a sandbox is judged, and any where a file is.
    explicit MeterState(const sk_hash_keys& keys, uint64_t epoch_ns = 0);

    // Index of the zone, made when it is not there; kOverflowZone when there is no room.
    size_t Zone(absl::string_view zone, Tier tier);
    // kOverflowZone's index, and no record made, when it is not there.
    bool FindZone(absl::string_view zone, size_t* index) const;
    ZoneRecord& zone(size_t index) { return zones_[index]; }
    const ZoneRecord& zone(size_t index) const { return zones_[index]; }
    size_t zones() const { return zones_.size(); }

    static constexpr size_t kNoName = SIZE_MAX;
    // Index of the name; kNoName when it was not seen under this zone.
    size_t FindName(size_t zone, uint32_t fingerprint) const;
    // kNoName when there is no room.
    size_t AddName(size_t zone, uint32_t fingerprint);
    NameRecord& name(size_t index) { return names_[index]; }
    size_t names() const { return names_.size(); }

    uint32_t Fingerprint(absl::string_view name) const { return static_cast<uint32_t>(Hash(name) >> 32); }
    // 0 for times before the epoch.
    uint32_t Quanta(uint64_t time_ns) const;
    // Ticks since the base, which is moved on, with all that is remembered in ticks, when the 16 bits
    // of a record would not hold a day more.
    uint32_t Ticks(uint64_t time_ns);

    uint32_t total = 0;      // spent over all unranked zones
    uint16_t last_zone = 0;  // asked last, of the unranked ones
    uint16_t unranked = 0;   // number of unranked zones
    bool total_warned = false;

    // Bytes that Restore takes back, also on another machine of the same byte order and build.
    std::string Save() const;
    // kDataLoss says what is wrong: cut, altered, of another version, larger than a state can be.
    static StatusOr<MeterState> Restore(absl::string_view bytes);
    size_t memory_bytes() const;

  private:
    uint64_t Hash(absl::string_view text) const;

    sk_hash_keys keys_;
    uint64_t epoch_ns_;
    uint64_t tick_base_s_ = 0;  // since the epoch
    std::vector<ZoneRecord> zones_;
    std::vector<NameRecord> names_;
};

}  // namespace stockade::dns
