// Placement of entries in the hash table of a compiled policy.
//
// A bucket holds four entries and has no overflow, so placement must succeed for all. State
// numbers are ours to choose and are part of every key: a state whose entries do not fit gets
// another number. Entries with fixed keys go first.
#pragma once

#include <cstdint>
#include <vector>

#include "bpf/wire/hash.h"
#include "bpf/wire/policy.h"
#include "userspace/base/status.h"

namespace stockade::policy {

class TableBuilder {
  public:
    // What leaves a state: component hash (or a reserved one) to a state, or to a plain value.
    struct Edge {
        uint64_t hash = 0;
        bool to_state = true;
        uint32_t next = 0;  // to_state: index of the state; else the value itself
        uint32_t meta = 0;
    };
    struct Table {
        uint32_t mask = 0;  // buckets - 1
        uint32_t entries = 0;
        std::vector<sk_entry> slots;  // (mask + 1) * SK_ENTRIES_PER_BUCKET
    };

    explicit TableBuilder(const sk_hash_keys& keys) : keys_(keys) {}

    // Keys must differ from one another.
    void AddFixed(uint64_t key, uint32_t next, uint32_t meta);
    // Index 1 is the start state and keeps its number; others are numbered by Build.
    void SetEdges(uint32_t state, std::vector<Edge> edges);
    // kResourceExhausted when even the largest table has a bucket that overflows.
    StatusOr<Table> Build() const;

  private:
    bool TryPlace(uint32_t buckets, Table& table) const;
    bool PlaceState(uint32_t state, uint32_t number, Table& table, std::vector<uint64_t>& keys) const;

    const sk_hash_keys keys_;
    std::vector<sk_entry> fixed_;
    std::vector<std::vector<Edge>> edges_;  // by state
    size_t edge_count_ = 0;
};

}  // namespace stockade::policy
