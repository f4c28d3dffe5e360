#include "userspace/policy/automaton.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace stockade::policy {
namespace {

// Items put into sets while the automaton is built: about a second of work. 30,000 states of a
// thousand items each would stay under the bound on states and still take minutes.
constexpr size_t kMaxWork = 40'000'000;

// A name that neither an edge nor a glob of the state takes; empty where none was found.
std::string OtherName(const Automaton::State& state, const GlobRows& globs) {
    for (int attempt = 0; attempt < 64; ++attempt) {
        std::string name = attempt == 0 ? "x" : absl::StrCat(attempt % 2 ? "x" : "", attempt, "~", attempt);
        bool taken = false;
        for (const Automaton::Edge& edge : state.edges) taken |= edge.name == name;
        if (state.glob_set != Automaton::kNoSet) {
            for (const std::vector<uint32_t>& matched : globs.set(state.glob_set).matches) {
                for (uint32_t glob : matched) taken |= MatchGlob(globs.glob(glob), name);
            }
        }
        if (!taken) return name;
    }
    return "";
}

}  // namespace

class AutomatonBuilder {
  public:
    AutomatonBuilder(absl::Span<const PathPattern> patterns, Automaton& out)
        : patterns_(patterns), out_(out) {}

    Status Run(absl::Span<const Glob> extra) {
        for (const PathPattern& pattern : patterns_) {
            std::vector<uint32_t>& ids = token_ids_.emplace_back();
            for (const Token& token : pattern.tokens) {
                ids.push_back(token.kind == TokenKind::kGlob      ? out_.globs_.Intern(token.glob)
                              : token.kind == TokenKind::kLiteral ? InternLiteral(token.literal)
                                                                  : 0);
            }
        }
        for (const Glob& glob : extra) out_.globs_.Intern(glob);
        SK_RETURN_IF_ERROR(out_.globs_.Freeze());
        out_.states_.resize(1);
        std::vector<uint32_t> start;
        for (size_t p = 0; p < patterns_.size(); ++p) AddItem(start, static_cast<uint32_t>(p), 0);
        // The start state exists even for no patterns at all.
        SK_RETURN_IF_ERROR(StateOf(std::move(start), true).status());
        for (uint32_t s = Automaton::kStart; s < out_.states_.size(); ++s) SK_RETURN_IF_ERROR(Expand(s));
        return absl::OkStatus();
    }

    std::vector<size_t> Culprits() const {
        std::vector<size_t> live(patterns_.size(), 0);
        for (const Automaton::State& state : out_.states_) {
            uint32_t last = UINT32_MAX;
            for (uint32_t item : state.items) {
                const uint32_t p = Automaton::PatternOf(item);
                if (p != last && Automaton::PositionOf(item) < patterns_[p].tokens.size()) ++live[p];
                last = p;
            }
        }
        std::vector<size_t> order(patterns_.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return live[a] > live[b]; });
        return order;
    }

  private:
    using Items = std::vector<uint32_t>;

    uint32_t InternLiteral(const std::string& literal) {
        auto [it, added] = literal_ids_.emplace(literal, static_cast<uint32_t>(literals_.size()));
        if (added) literals_.push_back(&it->first);
        return it->second;
    }

    void AddItem(Items& items, uint32_t pattern, uint32_t position) {
        const std::vector<Token>& tokens = patterns_[pattern].tokens;
        for (;; ++position) {
            items.push_back(pattern << 8 | position);
            ++work_;
            if (position == tokens.size() || tokens[position].kind != TokenKind::kGlobStar) return;
        }
    }

    StatusOr<uint32_t> StateOf(Items items, bool even_if_empty = false) {
        if (items.empty() && !even_if_empty) return Automaton::kDead;
        std::sort(items.begin(), items.end());
        items.erase(std::unique(items.begin(), items.end()), items.end());
        auto found = index_.find(items);
        if (found != index_.end()) return found->second;
        if (out_.states_.size() > kMaxStates || work_ > kMaxWork) {
            return absl::ResourceExhaustedError(
                absl::StrCat("the patterns need more than ", kMaxStates, " states"));
        }
        const auto number = static_cast<uint32_t>(out_.states_.size());
        Automaton::State& state = out_.states_.emplace_back();
        for (uint32_t item : items) {
            const uint32_t p = Automaton::PatternOf(item);
            if (Automaton::PositionOf(item) == patterns_[p].tokens.size()) state.finals.push_back(p);
        }
        state.items = items;
        index_.emplace(std::move(items), number);
        return number;
    }

    // What leaves a state, grouped: where any name leads, and literals and globs beyond that.
    struct Leaving {
        Items any;
        std::map<uint32_t, Items> by_literal;
        std::map<uint32_t, Items> by_glob;
    };

    Leaving Group(const Automaton::State& state) {
        Leaving out;
        for (uint32_t item : state.items) {
            const uint32_t p = Automaton::PatternOf(item), i = Automaton::PositionOf(item);
            if (i == patterns_[p].tokens.size()) continue;
            switch (patterns_[p].tokens[i].kind) {
                case TokenKind::kGlobStar:
                    AddItem(out.any, p, i);
                    break;
                case TokenKind::kStar:
                    AddItem(out.any, p, i + 1);
                    break;
                case TokenKind::kLiteral:
                    AddItem(out.by_literal[token_ids_[p][i]], p, i + 1);
                    break;
                case TokenKind::kGlob:
                    AddItem(out.by_glob[token_ids_[p][i]], p, i + 1);
                    break;
            }
        }
        return out;
    }

    static void Append(Items& to, const Items& from) { to.insert(to.end(), from.begin(), from.end()); }

    Status Expand(uint32_t number) {
        const Leaving leaving = Group(out_.states_[number]);
        SK_ASSIGN_OR_RETURN(uint32_t other, StateOf(leaving.any));
        std::vector<Automaton::Edge> edges;
        for (const auto& [literal, items] : leaving.by_literal) {
            Items next = leaving.any;
            Append(next, items);
            for (const auto& [glob, glob_items] : leaving.by_glob) {
                if (MatchGlob(out_.globs_.glob(glob), *literals_[literal])) Append(next, glob_items);
            }
            work_ += next.size();
            SK_ASSIGN_OR_RETURN(uint32_t to, StateOf(std::move(next)));
            if (to != other || !leaving.by_glob.empty()) edges.push_back({*literals_[literal], to});
        }
        if (!leaving.by_glob.empty()) SK_RETURN_IF_ERROR(ExpandGlobs(number, leaving));
        out_.states_[number].edges = std::move(edges);
        out_.states_[number].other = other;
        return absl::OkStatus();
    }

    Status ExpandGlobs(uint32_t number, const Leaving& leaving) {
        std::vector<uint32_t> numbers;
        for (const auto& [glob, items] : leaving.by_glob) numbers.push_back(glob);
        SK_ASSIGN_OR_RETURN(uint32_t index, out_.globs_.AddSet(numbers));
        const GlobRows::Set& set = out_.globs_.set(index);
        std::vector<uint32_t> targets(set.matches.size(), Automaton::kDead);
        for (size_t g = 1; g < set.matches.size(); ++g) {
            Items next = leaving.any;
            for (uint32_t glob : set.matches[g]) Append(next, leaving.by_glob.at(glob));
            work_ += next.size();
            SK_ASSIGN_OR_RETURN(targets[g], StateOf(std::move(next)));
        }
        out_.states_[number].glob_set = static_cast<int>(index);
        out_.states_[number].glob_to = std::move(targets);
        return absl::OkStatus();
    }

    absl::Span<const PathPattern> patterns_;
    Automaton& out_;
    size_t work_ = 0;
    std::map<std::string, uint32_t> literal_ids_;
    std::vector<const std::string*> literals_;  // keys of literal_ids_
    std::vector<std::vector<uint32_t>> token_ids_;
    absl::flat_hash_map<Items, uint32_t> index_;
};

StatusOr<Automaton> Automaton::Build(absl::Span<const PathPattern> patterns, absl::Span<const Glob> extra,
                                     std::vector<size_t>* culprits) {
    Automaton automaton;
    AutomatonBuilder builder(patterns, automaton);
    Status status = builder.Run(extra);
    if (!status.ok()) {
        if (culprits != nullptr) *culprits = builder.Culprits();
        return status;
    }
    return automaton;
}

std::vector<std::string> Automaton::Witnesses() const {
    std::vector<std::string> paths(states_.size());
    std::vector<bool> seen(states_.size(), false);
    std::vector<uint32_t> queue{kStart};
    seen[kStart] = true;
    for (size_t head = 0; head < queue.size(); ++head) {
        const State& state = states_[queue[head]];
        const std::string& prefix = paths[queue[head]];
        std::vector<std::pair<std::string, uint32_t>> next;
        for (const Edge& edge : state.edges) next.emplace_back(edge.name, edge.to);
        for (size_t g = 1; g < state.glob_to.size(); ++g) {
            next.emplace_back(globs_.set(state.glob_set).samples[g], state.glob_to[g]);
        }
        next.emplace_back(OtherName(state, globs_), state.other);
        for (auto& [name, to] : next) {
            if (to == kDead || seen[to] || name.empty()) continue;
            seen[to] = true;
            paths[to] = absl::StrCat(prefix, "/", name);
            queue.push_back(to);
        }
    }
    return paths;
}

}  // namespace stockade::policy
