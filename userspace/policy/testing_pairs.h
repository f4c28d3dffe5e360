// For tests: random pattern sets and random paths that come close to matching them. The in-kernel
// matcher is fed the same pairs as the host evaluator; the seed names a case for good.
//
//   PairGenerator pairs(seed);
//   std::vector<PathRule> rules = pairs.Rules(20);
//   std::string path = pairs.Path(rules);
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bpf/wire/hash.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

class PairGenerator {
  public:
    explicit PairGenerator(uint64_t seed) : random_(seed) {}

    // Rules over a small alphabet of names, so that they overlap; every form of pattern occurs.
    std::vector<PathRule> Rules(size_t count, uint32_t layers = 1);
    // Half of the paths follow one of the rules, with a mutation now and then; half are free.
    // Every name is one that a file system takes; at most 12 components.
    std::string Path(const std::vector<PathRule>& rules);

    uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  private:
    std::string Name();
    std::string GlobName();
    std::string Pattern();
    std::string NameFor(const std::string& component);

    std::mt19937_64 random_;  // its sequence is fixed by the standard
};

// A policy of these rules alone: every section present, no base.
ResolvedPolicy PolicyOf(std::vector<PathRule> rules, uint32_t layers = 1);
// Fixed keys for tests that need no secret.
sk_hash_keys TestKeys(uint64_t seed = 1);

}  // namespace stockade::policy
