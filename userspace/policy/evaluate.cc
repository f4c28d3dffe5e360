#include "userspace/policy/evaluate.h"

#include "userspace/policy/hashing.h"
#include "userspace/policy/pattern.h"
#include "userspace/policy/prefix.h"

namespace stockade::policy {
namespace {

constexpr uint32_t kNoRow = 0;

const sk_entry* Find(const PolicyView& policy, uint64_t key) {
    const sk_policy_head& head = policy.head();
    const uint32_t bucket = sk_bucket(key) & head.edge_mask;
    const size_t cell = head.edge_cell + (bucket >> 2);
    if (cell >= policy.cells.size()) return nullptr;
    for (const sk_entry& entry : policy.cells[cell].bucket[bucket & 3]) {
        if (entry.key == key) return &entry;
    }
    return nullptr;
}

// Class of the globs that match the name; 0 = none.
uint32_t RunGlob(const PolicyView& policy, uint32_t row, absl::string_view name) {
    const sk_policy_head& head = policy.head();
    for (size_t i = 0; i <= name.size(); ++i) {
        const size_t cell = static_cast<size_t>(head.glob_cell) + row;
        if (row == kNoRow || cell >= policy.cells.size()) return 0;
        const bool end = i == name.size();
        const uint8_t column =
            end ? SK_GLOB_END : policy.cells[SK_CLASS_CELL].classes[static_cast<uint8_t>(name[i])];
        row = policy.cells[cell].row[column & (SK_GLOB_CLASSES - 1)];
    }
    return row;
}

struct Walk {
    uint32_t state = SK_STATE_START;
    uint32_t meta = 0;
    uint32_t acc = 0;
};

void Collect(const sk_entry* entry, bool leaf, Walk& walk) {
    if (entry == nullptr) return;
    walk.acc |= entry->meta & SK_VERDICT_MASK;
    if (leaf) walk.acc |= entry->next & SK_VERDICT_MASK;
}

void CollectNames(const PolicyView& policy, uint64_t hash, absl::string_view name, bool leaf, Walk& walk) {
    const sk_policy_head& head = policy.head();
    if ((head.flags & SK_POLICY_ANYNAME) != 0) {
        Collect(Find(policy, sk_edge_key(policy.keys, hash, SK_STATE_ANYNAME)), leaf, walk);
    }
    const bool run =
        (head.flags & SK_POLICY_ANYGLOB_ALL) != 0 || (leaf && (head.flags & SK_POLICY_ANYGLOB_LEAF) != 0);
    if (!run) return;
    const uint32_t g = RunGlob(policy, head.anyglob_row, name);
    if (g != 0)
        Collect(Find(policy, sk_edge_key(policy.keys, SK_HASH_GLOB + g, SK_STATE_ANYGLOB)), leaf, walk);
}

void Step(const PolicyView& policy, uint64_t hash, absl::string_view name, Walk& walk) {
    const sk_entry* edge = nullptr;
    if ((walk.meta & SK_META_EDGES) != 0) edge = Find(policy, sk_edge_key(policy.keys, hash, walk.state));
    if (edge == nullptr && (walk.meta & SK_META_GLOB) != 0) {
        const sk_entry* start = Find(policy, sk_edge_key(policy.keys, SK_HASH_GLOB, walk.state));
        const uint32_t g = start == nullptr ? 0 : RunGlob(policy, start->next, name);
        if (g != 0) edge = Find(policy, sk_edge_key(policy.keys, SK_HASH_GLOB + g, walk.state));
    }
    if (edge == nullptr && (walk.meta & SK_META_STAR) != 0)
        edge = Find(policy, sk_edge_key(policy.keys, SK_HASH_STAR, walk.state));
    if (edge != nullptr) {
        walk.state = edge->next;
        walk.meta = edge->meta;
    } else if ((walk.meta & SK_META_SELF) == 0) {
        walk.state = SK_STATE_DEAD;
        walk.meta = 0;
    }
}

// The entry of the port itself, or that of any port.
const sk_entry* FindPort(const PolicyView& policy, uint32_t domain, uint16_t port) {
    const sk_entry* entry = Find(policy, sk_word_key(policy.keys, domain, port));
    return entry != nullptr ? entry : Find(policy, sk_word_key(policy.keys, domain, 0));
}

bool BindEntryHolds(const PolicyView& policy, const Endpoint& endpoint, uint16_t port) {
    const sk_entry* entry = Find(policy, sk_word_key(policy.keys, SK_KEY_BIND, port));
    return entry != nullptr && (entry->next == SK_BIND_ANY || IsLoopback(endpoint));
}

}  // namespace

PathVerdict EvaluatePath(const PolicyView& policy, absl::string_view path) {
    PathVerdict verdict;
    const std::vector<absl::string_view> names = SplitPath(path);
    // The kernel spends a step on each name and one on seeing the root.
    if (names.size() >= SK_PATH_SLOTS) {
        verdict.unknown = true;
        return verdict;
    }
    Walk walk;
    walk.meta = policy.head().start_meta;
    for (size_t i = 0; i < names.size(); ++i) {
        const uint64_t hash = HashString(*policy.keys, names[i]);
        CollectNames(policy, hash, names[i], i + 1 == names.size(), walk);
        Step(policy, hash, names[i], walk);
    }
    verdict.bits = walk.acc | (walk.meta & SK_VERDICT_MASK);
    verdict.deny_below = (walk.meta & SK_META_DENY_BELOW) != 0;
    return verdict;
}

bool IsLoopback(const Endpoint& endpoint) {
    if (endpoint.family == 4) return (endpoint.lo >> 24) == 127;
    return endpoint.hi == 0 && endpoint.lo == 1;
}

bool EvaluateConnect(const PolicyView& policy, uint32_t uid, const Endpoint& endpoint) {
    const sk_policy_head& head = policy.head();
    if ((head.flags & SK_POLICY_HAS_DENIED) != 0 &&
        Find(policy, sk_net_key(policy.keys, SK_NET_DENIED, endpoint.family, endpoint.hi, endpoint.lo, 0)) !=
            nullptr)
        return false;
    if (IsLoopback(endpoint) && FindPort(policy, SK_KEY_LOOPBACK, endpoint.port) != nullptr) return true;
    uint32_t uid_class = 0;
    if ((head.flags & SK_POLICY_HAS_UIDS) != 0) {
        const sk_entry* entry = Find(policy, sk_word_key(policy.keys, SK_KEY_UID, uid));
        if (entry != nullptr) uid_class = entry->next;
    }
    for (uint32_t i = 0; i < head.prefixes && i < SK_MAX_PREFIXES; ++i) {
        if (head.prefix[i].family != endpoint.family) continue;
        uint64_t hi = endpoint.hi, lo = endpoint.lo;
        MaskPrefix(endpoint.family, head.prefix[i].bits, hi, lo);
        if (Find(policy, sk_net_key(policy.keys, uid_class, i, hi, lo, endpoint.port)) != nullptr)
            return true;
        if (Find(policy, sk_net_key(policy.keys, uid_class, i, hi, lo, 0)) != nullptr) return true;
    }
    return false;
}

bool EvaluateBind(const PolicyView& policy, const Endpoint& endpoint) {
    // Both are asked: a port that loopback may bind can be bound anywhere by the any-port entry.
    return BindEntryHolds(policy, endpoint, endpoint.port) || BindEntryHolds(policy, endpoint, 0);
}

bool EvaluateUnixName(const PolicyView& policy, bool abstract, absl::string_view name) {
    return Find(policy, sk_unix_key(policy.keys, abstract ? 1 : 0, HashString(*policy.keys, name))) !=
           nullptr;
}

}  // namespace stockade::policy
