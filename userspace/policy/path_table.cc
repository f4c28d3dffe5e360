#include "userspace/policy/path_table.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "userspace/policy/automaton.h"
#include "userspace/policy/hashing.h"
#include "userspace/policy/verdict_bits.h"

namespace stockade::policy {
namespace {

// Patterns named by the error of a policy that is too large.
constexpr size_t kCulprits = 5;

// Verdict bits of a name outside the automaton.
struct NameBits {
    uint32_t sticky = 0;  // of this component and all below: two stars behind the name
    uint32_t leaf = 0;    // of this component where the path ends
};

class PathTableBuilder {
  public:
    PathTableBuilder(const ResolvedPolicy& policy, const sk_hash_keys& keys, TableBuilder& table,
                     sk_policy_head& head)
        : policy_(policy), keys_(keys), table_(table), head_(head) {}

    void Sort(const std::vector<ExpandedRule>& rules) {
        for (const ExpandedRule& expanded : rules) {
            const PathRule& rule = policy_.paths[expanded.rule];
            // Bits of names are or-ed together over the path, so an allow that needs a second
            // layer's consent cannot be one of them.
            if (expanded.pattern.IsAnyName() && (policy_.layers == 1 || rule.allow == 0)) {
                AddName(expanded.pattern, rule.allow | rule.deny << SK_DENY_SHIFT);
            } else {
                AddPattern(expanded, rule);
            }
        }
    }

    StatusOr<PathTable> Build() {
        std::vector<Glob> any_globs;
        for (const auto& [glob, bits] : globs_) any_globs.push_back(glob);
        std::vector<size_t> culprits;
        StatusOr<Automaton> automaton = Automaton::Build(patterns_, any_globs, &culprits);
        if (!automaton.ok()) return Blame(automaton.status(), culprits);
        SK_RETURN_IF_ERROR(AddNames(automaton->globs()));
        metas_.assign(automaton->size(), 0);
        for (uint32_t s = Automaton::kStart; s < automaton->size(); ++s)
            metas_[s] = MetaOf(automaton->state(s), s);
        for (uint32_t s = Automaton::kStart; s < automaton->size(); ++s) AddState(*automaton, s);
        head_.start_meta = metas_[Automaton::kStart] | SK_META_VALID;
        return PathTable{automaton->globs().classes(), automaton->globs().rows(),
                         static_cast<uint32_t>(automaton->size() - 1)};
    }

  private:
    void AddName(const PathPattern& pattern, uint32_t verdict) {
        const Token& token = pattern.tokens[1];
        NameBits& bits = token.kind == TokenKind::kLiteral ? names_[token.literal] : globs_[token.glob];
        (pattern.tokens.size() == 3 ? bits.sticky : bits.leaf) |= verdict;
    }

    void AddPattern(const ExpandedRule& expanded, const PathRule& rule) {
        auto [it, added] = index_.emplace(expanded.pattern.ToText(), patterns_.size());
        if (added) {
            patterns_.push_back(expanded.pattern);
            bits_.emplace_back().allow.resize(policy_.layers, 0);
            origin_.push_back(expanded.rule);
        }
        bits_[it->second].allow[rule.layer] |= rule.allow;
        bits_[it->second].deny |= rule.deny;
    }

    Status Blame(const Status& status, const std::vector<size_t>& culprits) const {
        if (!absl::IsResourceExhausted(status) || culprits.empty()) return status;
        std::string message = absl::StrCat(
            policy_.name, ": ", status.message(),
            ". These patterns multiply one another; give them a literal start or drop a '**' or '*':");
        for (size_t i = 0; i < std::min(kCulprits, culprits.size()); ++i) {
            const PathRule& rule = policy_.paths[origin_[culprits[i]]];
            absl::StrAppend(&message, "\n  ", ToString(rule.at), ": ", rule.pattern);
        }
        return absl::ResourceExhaustedError(message);
    }

    Status AddNames(GlobRows& globs) {
        for (const auto& [name, bits] : names_) {
            table_.AddFixed(sk_edge_key(&keys_, HashString(keys_, name), SK_STATE_ANYNAME), bits.leaf,
                            bits.sticky);
            head_.flags |= SK_POLICY_ANYNAME;
        }
        if (globs_.empty()) return absl::OkStatus();
        std::map<uint32_t, NameBits> by_number;
        for (const auto& [glob, bits] : globs_) {
            by_number[globs.Intern(glob)] = bits;
            if (bits.leaf != 0) head_.flags |= SK_POLICY_ANYGLOB_LEAF;
            if (bits.sticky != 0) head_.flags |= SK_POLICY_ANYGLOB_ALL;
        }
        std::vector<uint32_t> numbers;
        for (const auto& [number, bits] : by_number) numbers.push_back(number);
        SK_ASSIGN_OR_RETURN(uint32_t index, globs.AddSet(numbers));
        const GlobRows::Set& set = globs.set(index);
        head_.anyglob_row = set.start_row;
        for (size_t g = 1; g < set.matches.size(); ++g) {
            NameBits bits;
            for (uint32_t number : set.matches[g]) {
                bits.sticky |= by_number[number].sticky;
                bits.leaf |= by_number[number].leaf;
            }
            table_.AddFixed(sk_edge_key(&keys_, SK_HASH_GLOB + g, SK_STATE_ANYGLOB), bits.leaf, bits.sticky);
        }
        return absl::OkStatus();
    }

    bool DenyBelow(uint32_t item) const {
        const uint32_t p = Automaton::PatternOf(item), i = Automaton::PositionOf(item);
        const std::vector<Token>& tokens = patterns_[p].tokens;
        if (bits_[p].deny == 0 || i == tokens.size()) return false;
        // Still within the leading two stars: it matches below wherever the directory stands.
        return tokens[0].kind != TokenKind::kGlobStar || i > 1;
    }

    uint32_t MetaOf(const Automaton::State& state, uint32_t self) const {
        PatternBits all;
        for (uint32_t p : state.finals) all.Merge(bits_[p]);
        uint32_t meta = all.ToVerdict();
        for (uint32_t item : state.items) {
            if (DenyBelow(item)) meta |= SK_META_DENY_BELOW;
        }
        if (!state.edges.empty()) meta |= SK_META_EDGES;
        if (state.glob_set != Automaton::kNoSet) meta |= SK_META_GLOB;
        if (state.other == self) meta |= SK_META_SELF;
        if (state.other != self && state.other != Automaton::kDead) meta |= SK_META_STAR;
        return meta;
    }

    void AddState(const Automaton& automaton, uint32_t s) {
        const Automaton::State& state = automaton.state(s);
        std::vector<TableBuilder::Edge> edges;
        for (const Automaton::Edge& edge : state.edges) {
            edges.push_back({HashString(keys_, edge.name), true, edge.to, metas_[edge.to]});
        }
        if (state.glob_set != Automaton::kNoSet) {
            edges.push_back({SK_HASH_GLOB, false, automaton.globs().set(state.glob_set).start_row, 0});
            for (size_t g = 1; g < state.glob_to.size(); ++g) {
                edges.push_back({SK_HASH_GLOB + g, true, state.glob_to[g], metas_[state.glob_to[g]]});
            }
        }
        if ((metas_[s] & SK_META_STAR) != 0)
            edges.push_back({SK_HASH_STAR, true, state.other, metas_[state.other]});
        table_.SetEdges(s, std::move(edges));
    }

    const ResolvedPolicy& policy_;
    const sk_hash_keys& keys_;
    TableBuilder& table_;
    sk_policy_head& head_;
    std::map<std::string, size_t> index_;  // by text of the pattern
    std::vector<PathPattern> patterns_;
    std::vector<PatternBits> bits_;
    std::vector<size_t> origin_;  // a rule that has the pattern
    std::map<std::string, NameBits> names_;
    std::map<Glob, NameBits> globs_;
    std::vector<uint32_t> metas_;
};

}  // namespace

StatusOr<PathTable> AddPathEntries(const ResolvedPolicy& policy, const std::vector<ExpandedRule>& rules,
                                   const sk_hash_keys& keys, TableBuilder& table, sk_policy_head& head) {
    PathTableBuilder builder(policy, keys, table, head);
    builder.Sort(rules);
    return builder.Build();
}

}  // namespace stockade::policy
