// The answers that one client had, until their TTL is over. Least recently used ones make room.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "userspace/dns/stub_answer.h"

namespace stockade::dns {

class StubCache {
  public:
    using Key = std::pair<std::string, uint16_t>;  // name in lower case, type
    struct Hit {
        const StubAnswer* answer = nullptr;  // valid until the next call; null: not here
        uint32_t age_s = 0;
    };

    Hit Find(const Key& key, uint64_t now_ns);
    // Keeps it if it has a TTL and is no larger than kStubCacheEntryBytes. True: another one made room.
    bool Insert(const Key& key, const StubAnswer& answer, uint64_t now_ns);
    size_t size() const { return entries_.size(); }

  private:
    struct Entry {
        Key key;
        StubAnswer answer;
        uint64_t since_ns = 0, until_ns = 0;
    };
    std::list<Entry> entries_;  // the most recently used first
    std::map<Key, std::list<Entry>::iterator> index_;
};

}  // namespace stockade::dns
