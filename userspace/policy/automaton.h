// One automaton over path components for many patterns at once.
//
//   SK_ASSIGN_OR_RETURN(Automaton a, Automaton::Build(patterns));
//   a.state(Automaton::kStart).finals      // patterns that match "/"
//
// A state is a set of (pattern, position); `finals` are the patterns that match when a path ends
// there. The compiler turns it into cells, `policy check` and `policy diff` walk it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "userspace/base/status.h"
#include "userspace/policy/glob_rows.h"
#include "userspace/policy/pattern.h"

namespace stockade::policy {

// A policy beyond it has patterns with `**` in the middle that multiply one another; the kernel
// table of 30,000 states takes 8 MiB (reference measurements: 1,000 real patterns need 1,745).
inline constexpr size_t kMaxStates = 30000;

class Automaton {
  public:
    static constexpr uint32_t kDead = 0;
    static constexpr uint32_t kStart = 1;
    static constexpr int kNoSet = -1;

    struct Edge {
        std::string name;
        uint32_t to = kDead;
    };
    struct State {
        std::vector<uint32_t> items;    // pattern << 8 | position, sorted
        std::vector<uint32_t> finals;   // patterns that end here, sorted
        std::vector<Edge> edges;        // by name; win over everything below
        int glob_set = kNoSet;          // index into globs().set()
        std::vector<uint32_t> glob_to;  // target by class; [0] unused
        uint32_t other = kDead;         // target of any other name
    };

    // `extra` are globs that the caller wants byte classes for beside those of the patterns (the
    // any-name globs). On kResourceExhausted `culprits`, if given, holds the indices of the
    // patterns that are live in most states, worst first.
    static StatusOr<Automaton> Build(absl::Span<const PathPattern> patterns,
                                     absl::Span<const Glob> extra = {},
                                     std::vector<size_t>* culprits = nullptr);

    size_t size() const { return states_.size(); }  // kDead included
    const State& state(uint32_t index) const { return states_[index]; }
    GlobRows& globs() { return globs_; }
    const GlobRows& globs() const { return globs_; }

    static uint32_t PatternOf(uint32_t item) { return item >> 8; }
    static uint32_t PositionOf(uint32_t item) { return item & 0xff; }

    // A shortest path that leads to each state; empty string for kDead and for "/" itself.
    std::vector<std::string> Witnesses() const;

  private:
    friend class AutomatonBuilder;

    std::vector<State> states_;
    GlobRows globs_;
};

}  // namespace stockade::policy
