#include "userspace/policy/compile.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/sha256.h"
#include "userspace/policy/canonical.h"
#include "userspace/policy/expand.h"
#include "userspace/policy/network_table.h"
#include "userspace/policy/path_table.h"
#include "userspace/policy/table.h"

namespace stockade::policy {
namespace {

// The first two cells: head and byte classes.
constexpr uint32_t kFixedCells = 2;

void FillHead(const ResolvedPolicy& policy, sk_policy_head& head) {
    head.magic = SK_POLICY_MAGIC;
    head.abi = SK_POLICY_ABI;
    head.grants = policy.grants;
    head.mode = static_cast<uint8_t>(policy.mode);
    head.entered = static_cast<uint8_t>(policy.entered);
    if (policy.present[SK_SECTION_EXEC]) head.flags |= SK_POLICY_HAS_EXEC;
    if (policy.present[SK_SECTION_FILES]) head.flags |= SK_POLICY_HAS_FILES;
    if (policy.present[SK_SECTION_NETWORK]) head.flags |= SK_POLICY_HAS_NETWORK;
    if (policy.deny_all) head.flags |= SK_POLICY_DENY_ALL;
    for (int s = 0; s < SK_SECTION_SLOTS; ++s) {
        head.violation[s] = static_cast<uint8_t>(policy.violation[s]);
        head.record[s] = static_cast<uint8_t>(policy.record[s]);
    }
}

// What a policy says in one sandbox's root. Two of the same digest have the same verdicts under the same keys.
// The root's links may hold any bytes, and none of them may pass for another line.
struct Identity {
    std::string hash_hex;
    std::array<uint8_t, 32> digest;
};

Identity IdentityOf(const ResolvedPolicy& policy, const std::vector<Resolution>& resolutions) {
    std::string text = CanonicalText(policy);
    Identity identity{.hash_hex = Sha256Hex(text), .digest = {}};
    for (const Resolution& r : resolutions)
        absl::StrAppend(&text, "resolved ", absl::CHexEscape(r.pattern), " -> ", absl::CHexEscape(r.target), "\n");
    identity.digest = Sha256(text);
    return identity;
}

uint64_t IdOf(const Identity& identity) {
    uint64_t id = 0;
    for (int i = 0; i < 8; ++i) id = id << 8 | identity.digest[i];
    return id;
}

std::vector<LandlockRule> LandlockRules(const ResolvedPolicy& policy,
                                        const std::vector<ExpandedRule>& rules) {
    std::vector<LandlockRule> out;
    for (const ExpandedRule& expanded : rules) {
        const PathRule& rule = policy.paths[expanded.rule];
        out.push_back({rule.allow | rule.deny, rule.deny != 0, expanded.pattern.ToText(),
                       expanded.pattern.LiteralPrefix(), expanded.pattern.IsExact(), rule.layer});
    }
    return out;
}

StatusOr<std::vector<sk_cell>> Assemble(sk_policy_head head, const PathTable& paths,
                                        const TableBuilder::Table& table) {
    head.edge_cell = kFixedCells;
    head.edge_mask = table.mask;
    head.glob_cell = head.edge_cell + (table.mask + 1) / SK_BUCKETS_PER_CELL;
    head.glob_rows = static_cast<uint32_t>(paths.rows.size());
    const size_t total = head.glob_cell + paths.rows.size();
    if (total > SK_POLICY_MAX_CELLS) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the policy needs ", total, " cells, more than ", SK_POLICY_MAX_CELLS));
    }
    std::vector<sk_cell> cells(total);
    std::memset(cells.data(), 0, total * sizeof(sk_cell));
    cells[SK_HEAD_CELL].head = head;
    std::memcpy(cells[SK_CLASS_CELL].classes, paths.classes.data(), paths.classes.size());
    std::memcpy(&cells[head.edge_cell], table.slots.data(), table.slots.size() * sizeof(sk_entry));
    for (size_t row = 0; row < paths.rows.size(); ++row) {
        std::memcpy(cells[head.glob_cell + row].row, paths.rows[row].data(), sizeof(GlobRow));
    }
    return cells;
}

StatusOr<CompiledPolicy> CompileExpanded(const ResolvedPolicy& policy, const sk_hash_keys& keys,
                                         Expansion expansion, const Identity& identity) {
    CompiledPolicy out;
    out.name = policy.name;
    out.hash_hex = identity.hash_hex;
    out.id = IdOf(identity);

    sk_policy_head head{};
    FillHead(policy, head);
    head.id = out.id;
    TableBuilder builder(keys);
    SK_RETURN_IF_ERROR(AddNetworkEntries(policy, keys, builder, head, out.warnings));
    SK_ASSIGN_OR_RETURN(PathTable paths, AddPathEntries(policy, expansion.rules, keys, builder, head));
    SK_ASSIGN_OR_RETURN(TableBuilder::Table table, builder.Build());
    SK_ASSIGN_OR_RETURN(out.cells, Assemble(head, paths, table));
    out.landlock = LandlockRules(policy, expansion.rules);
    out.resolutions = std::move(expansion.resolutions);
    out.stats = {paths.states, table.entries, table.mask + 1, static_cast<uint32_t>(paths.rows.size() - 1)};
    return out;
}

}  // namespace

StatusOr<CompiledPolicy> Compile(const ResolvedPolicy& policy, const sk_hash_keys& keys,
                                 const CompileOptions& options) {
    SK_ASSIGN_OR_RETURN(Expansion expansion, ExpandRules(policy, options.root_fd));
    const Identity identity = IdentityOf(policy, expansion.resolutions);
    return CompileExpanded(policy, keys, std::move(expansion), identity);
}

StatusOr<std::shared_ptr<const CompiledPolicy>> Compiler::Compile(const ResolvedPolicy& policy,
                                                                  const CompileOptions& options) {
    SK_ASSIGN_OR_RETURN(Expansion expansion, ExpandRules(policy, options.root_fd));
    const Identity identity = IdentityOf(policy, expansion.resolutions);
    const auto known = known_.find(identity.digest);
    if (known != known_.end()) return known->second;
    SK_ASSIGN_OR_RETURN(CompiledPolicy compiled,
                        CompileExpanded(policy, keys_, std::move(expansion), identity));
    if (cells_ + compiled.cells.size() > kMaxCells) {
        known_.clear();
        cells_ = 0;
    }
    cells_ += compiled.cells.size();
    return known_.emplace(identity.digest, std::make_shared<const CompiledPolicy>(std::move(compiled)))
        .first->second;
}

}  // namespace stockade::policy
