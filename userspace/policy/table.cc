#include "userspace/policy/table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace stockade::policy {
namespace {

// Half of the largest policy; the other half is for globs.
constexpr uint32_t kMaxBuckets = SK_POLICY_CELLS_LARGE * SK_BUCKETS_PER_CELL / 2;
// Numbers tried for one state before the table grows: a state that fits with probability 1/2
// fails all of them once in 2^64 policies.
constexpr int kTries = 64;

sk_entry* Bucket(TableBuilder::Table& table, uint64_t key) {
    return &table.slots[static_cast<size_t>(sk_bucket(key) & table.mask) * SK_ENTRIES_PER_BUCKET];
}

// False when the bucket is full or has the key already.
bool Insert(TableBuilder::Table& table, const sk_entry& entry) {
    if (entry.key == 0) return false;
    sk_entry* bucket = Bucket(table, entry.key);
    for (int i = 0; i < SK_ENTRIES_PER_BUCKET; ++i) {
        if (bucket[i].key == entry.key) return false;
        if (bucket[i].key == 0) {
            bucket[i] = entry;
            ++table.entries;
            return true;
        }
    }
    return false;
}

// Takes back the last entry of the key's bucket, which must be that key's.
void Remove(TableBuilder::Table& table, uint64_t key) {
    sk_entry* bucket = Bucket(table, key);
    for (int i = SK_ENTRIES_PER_BUCKET - 1; i >= 0; --i) {
        if (bucket[i].key != key) continue;
        bucket[i] = {};
        --table.entries;
        return;
    }
}

}  // namespace

void TableBuilder::AddFixed(uint64_t key, uint32_t next, uint32_t meta) {
    fixed_.push_back({key, next, meta | SK_META_VALID});
}

void TableBuilder::SetEdges(uint32_t state, std::vector<Edge> edges) {
    if (edges_.size() <= state) edges_.resize(state + 1);
    edge_count_ += edges.size();
    edges_[state] = std::move(edges);
}

bool TableBuilder::PlaceState(uint32_t state, uint32_t number, Table& table,
                              std::vector<uint64_t>& placed) const {
    placed.clear();
    for (const Edge& edge : edges_[state]) {
        const uint64_t key = sk_edge_key(&keys_, edge.hash, number);
        // `next` holds the index of the target until all numbers are known.
        if (!Insert(table, {key, edge.next, edge.meta | SK_META_VALID})) {
            for (auto it = placed.rbegin(); it != placed.rend(); ++it) Remove(table, *it);
            return false;
        }
        placed.push_back(key);
    }
    return true;
}

bool TableBuilder::TryPlace(uint32_t buckets, Table& table) const {
    table = {};
    table.mask = buckets - 1;
    table.slots.assign(static_cast<size_t>(buckets) * SK_ENTRIES_PER_BUCKET, sk_entry{});
    for (const sk_entry& entry : fixed_) {
        if (!Insert(table, entry)) return false;
    }
    std::vector<uint32_t> order(edges_.size());
    std::iota(order.begin(), order.end(), 0);
    // The start state cannot move, and states with many entries are the hardest to place.
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        if ((a == SK_STATE_START) != (b == SK_STATE_START)) return a == SK_STATE_START;
        return edges_[a].size() > edges_[b].size();
    });
    std::vector<uint32_t> numbers(edges_.size(), SK_STATE_DEAD);
    std::vector<std::vector<uint64_t>> keys(edges_.size());
    uint32_t next_number = SK_STATE_START + 1;
    for (uint32_t state : order) {
        if (state == SK_STATE_DEAD) continue;
        if (state == SK_STATE_START) {
            numbers[state] = SK_STATE_START;
            if (!PlaceState(state, SK_STATE_START, table, keys[state])) return false;
            continue;
        }
        bool done = false;
        for (int attempt = 0; attempt < kTries && !done; ++attempt) {
            numbers[state] = next_number++;
            done = PlaceState(state, numbers[state], table, keys[state]);
        }
        if (!done) return false;
    }
    for (size_t state = 0; state < edges_.size(); ++state) {
        for (size_t e = 0; e < edges_[state].size(); ++e) {
            if (!edges_[state][e].to_state) continue;
            sk_entry* bucket = Bucket(table, keys[state][e]);
            while (bucket->key != keys[state][e]) ++bucket;
            bucket->next = numbers[edges_[state][e].next];
        }
    }
    return true;
}

StatusOr<TableBuilder::Table> TableBuilder::Build() const {
    const size_t entries = fixed_.size() + edge_count_;
    uint32_t buckets = SK_BUCKETS_PER_CELL;
    // Half full at most: small enough to stay in cache, empty enough to place at the first try.
    while (buckets < kMaxBuckets && buckets * SK_ENTRIES_PER_BUCKET < entries * 2) buckets *= 2;
    Table table;
    for (; buckets <= kMaxBuckets; buckets *= 2) {
        if (TryPlace(buckets, table)) return table;
    }
    return absl::ResourceExhaustedError(
        absl::StrCat("the policy has ", entries, " table entries, more than fit"));
}

}  // namespace stockade::policy
