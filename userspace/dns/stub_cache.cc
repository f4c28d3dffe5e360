#include "userspace/dns/stub_cache.h"

namespace stockade::dns {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

}  // namespace

StubCache::Hit StubCache::Find(const Key& key, uint64_t now_ns) {
    const auto it = index_.find(key);
    if (it == index_.end()) return {};
    if (now_ns >= it->second->until_ns) {
        entries_.erase(it->second);
        index_.erase(it);
        return {};
    }
    entries_.splice(entries_.begin(), entries_, it->second);
    const Entry& entry = entries_.front();
    return {.answer = &entry.answer, .age_s = static_cast<uint32_t>((now_ns - entry.since_ns) / kSecondNs)};
}

bool StubCache::Insert(const Key& key, const StubAnswer& answer, uint64_t now_ns) {
    const uint64_t ttl_ns = answer.TtlSeconds() * kSecondNs;
    if (ttl_ns == 0 || answer.Bytes() > kStubCacheEntryBytes) return false;
    if (const auto it = index_.find(key); it != index_.end()) {
        entries_.erase(it->second);
        index_.erase(it);
    }
    const bool full = entries_.size() == kStubCacheEntries;
    if (full) {
        index_.erase(entries_.back().key);
        entries_.pop_back();
    }
    entries_.push_front({.key = key, .answer = answer, .since_ns = now_ns, .until_ns = now_ns + ttl_ns});
    index_[key] = entries_.begin();
    return full;
}

}  // namespace stockade::dns
