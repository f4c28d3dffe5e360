#include "userspace/dns/meter_state.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bpf/wire/dns_budget.h"
#include "userspace/base/sha256.h"

namespace stockade::dns {
namespace {

constexpr char kMagic[8] = {'S', 'K', 'D', 'N', 'S', 'M', '0', '1'};
constexpr size_t kDigestBytes = 16;

struct SavedHead {
    char magic[8];
    sk_hash_keys keys;
    uint64_t epoch_ns;
    uint64_t tick_base_s;
    uint32_t total;
    uint16_t last_zone;
    uint16_t unranked;
    uint16_t zones;
    uint16_t names;
    uint16_t total_warned;
    uint16_t pad;
};
static_assert(sizeof(SavedHead) == 64);
static_assert(sizeof(SavedHead) + kMaxZones * sizeof(ZoneRecord) + kMaxNames * sizeof(NameRecord) +
                  kDigestBytes + sizeof(MeterState) <=
              kMaxStateBytes);

std::string Digest(absl::string_view bytes) {
    const std::array<uint8_t, 32> sum = Sha256(bytes);
    return std::string(reinterpret_cast<const char*>(sum.data()), kDigestBytes);
}

template <typename T>
void Append(const T* values, size_t count, std::string* out) {
    if (count) out->append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

// Grows by steps: doubling could pass the limit.
template <typename T>
void Grow(std::vector<T>& values, size_t limit) {
    if (values.size() < values.capacity()) return;
    values.reserve(std::min(limit, values.size() + std::max<size_t>(4, values.size() / 2)));
}

}  // namespace

MeterState::MeterState(const sk_hash_keys& keys, uint64_t epoch_ns) : keys_(keys), epoch_ns_(epoch_ns) {
    zones_.resize(2);
    zones_[kReverseZone].tier = Tier::kReverse;
}

uint64_t MeterState::Hash(absl::string_view text) const {
    uint64_t hash = sk_hash_start(&keys_, static_cast<uint32_t>(text.size()));
    for (size_t at = 0; at < text.size(); at += 8) {
        uint64_t word = 0;
        memcpy(&word, text.data() + at, std::min<size_t>(8, text.size() - at));
        hash = sk_hash_word(&keys_, hash, word);
    }
    return hash;
}

uint32_t MeterState::Quanta(uint64_t time_ns) const {
    if (time_ns < epoch_ns_) return 0;
    return static_cast<uint32_t>(
        std::min<uint64_t>((time_ns - epoch_ns_) >> SK_DNS_QUANTUM_SHIFT, UINT32_MAX));
}

uint32_t MeterState::Ticks(uint64_t time_ns) {
    const uint64_t second = time_ns < epoch_ns_ ? 0 : (time_ns - epoch_ns_) / 1'000'000'000;
    constexpr uint64_t kDayTicks = 24 * 3600 / kTickSeconds;
    const uint64_t ticks = second < tick_base_s_ ? 0 : (second - tick_base_s_) / kTickSeconds;
    if (ticks + kDayTicks <= UINT16_MAX) return static_cast<uint32_t>(ticks);
    for (NameRecord& name : names_) {
        for (uint16_t& until : name.cached_until)
            until = static_cast<uint16_t>(until > ticks ? until - ticks : 0);
    }
    tick_base_s_ += ticks * kTickSeconds;
    return 0;
}

bool MeterState::FindZone(absl::string_view zone, size_t* index) const {
    const uint32_t key = Fingerprint(zone);
    const auto found =
        std::find_if(zones_.begin() + 2, zones_.end(), [key](const ZoneRecord& z) { return z.key == key; });
    *index = found == zones_.end() ? kOverflowZone : static_cast<size_t>(found - zones_.begin());
    return found != zones_.end();
}

size_t MeterState::Zone(absl::string_view zone, Tier tier) {
    if (tier == Tier::kReverse) return kReverseZone;
    size_t index;
    if (FindZone(zone, &index)) return index;
    if (zones_.size() == kMaxZones) return kOverflowZone;
    Grow(zones_, kMaxZones);
    zones_.push_back({.key = Fingerprint(zone), .tier = tier});
    if (tier == Tier::kUnranked) ++unranked;
    return zones_.size() - 1;
}

size_t MeterState::FindName(size_t zone, uint32_t fingerprint) const {
    for (size_t i = 0; i < names_.size(); ++i) {
        if (names_[i].fingerprint == fingerprint && names_[i].zone == zone) return i;
    }
    return kNoName;
}

size_t MeterState::AddName(size_t zone, uint32_t fingerprint) {
    if (names_.size() == kMaxNames) return kNoName;
    Grow(names_, kMaxNames);
    names_.push_back({.fingerprint = fingerprint, .zone = static_cast<uint16_t>(zone)});
    return names_.size() - 1;
}

size_t MeterState::memory_bytes() const {
    return sizeof(*this) + zones_.capacity() * sizeof(ZoneRecord) + names_.capacity() * sizeof(NameRecord);
}

std::string MeterState::Save() const {
    SavedHead head = {};
    memcpy(head.magic, kMagic, sizeof(kMagic));
    head.keys = keys_;
    head.epoch_ns = epoch_ns_;
    head.tick_base_s = tick_base_s_;
    head.total = total;
    head.last_zone = last_zone;
    head.unranked = unranked;
    head.total_warned = total_warned;
    head.zones = static_cast<uint16_t>(zones_.size());
    head.names = static_cast<uint16_t>(names_.size());
    std::string out;
    Append(&head, 1, &out);
    Append(zones_.data(), zones_.size(), &out);
    Append(names_.data(), names_.size(), &out);
    out += Digest(out);
    return out;
}

StatusOr<MeterState> MeterState::Restore(absl::string_view bytes) {
    const auto lost = [](absl::string_view what) {
        return absl::DataLossError(absl::StrCat("DNS meter state: ", what));
    };
    SavedHead head;
    if (bytes.size() < sizeof(head) + kDigestBytes) return lost("shorter than its header");
    memcpy(&head, bytes.data(), sizeof(head));
    if (memcmp(head.magic, kMagic, sizeof(kMagic)) != 0) return lost("not one, or of another version");
    if (head.zones < 2 || head.zones > kMaxZones || head.names > kMaxNames)
        return lost("more records than there can be");
    const size_t zones = head.zones * sizeof(ZoneRecord), names = head.names * sizeof(NameRecord);
    if (bytes.size() != sizeof(head) + zones + names + kDigestBytes)
        return lost("not of the size that it says");
    const absl::string_view body = bytes.substr(0, bytes.size() - kDigestBytes);
    if (bytes.substr(body.size()) != Digest(body)) return lost("its bytes are not those of its digest");
    MeterState state(head.keys, head.epoch_ns);
    state.tick_base_s_ = head.tick_base_s;
    state.total = head.total;
    state.last_zone = head.last_zone;
    state.unranked = head.unranked;
    state.total_warned = head.total_warned;
    state.zones_.resize(head.zones);
    state.names_.resize(head.names);
    memcpy(state.zones_.data(), bytes.data() + sizeof(head), zones);
    if (names) memcpy(state.names_.data(), bytes.data() + sizeof(head) + zones, names);
    for (const NameRecord& name : state.names_) {
        if (name.zone >= head.zones) return lost("a name of a zone that is not there");
    }
    return state;
}

}  // namespace stockade::dns
