// From a resolved policy to the cells that the kernel reads (bpf/wire/policy.h).
//
//   SK_ASSIGN_OR_RETURN(auto resolved, library.Resolve("python-tool"));   // resolve.h
//   SK_ASSIGN_OR_RETURN(auto compiled, Compile(resolved, sensor->keys(), {.root_fd = root}));
//   SK_ASSIGN_OR_RETURN(uint32_t index, sensor->PublishPolicy(compiled.cells));
//
// Pure but for root_fd. Threads: any. The cells hold secrets (hashes under the boot's keys), so
// they are good for one boot only and never written to disk.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bpf/wire/hash.h"
#include "bpf/wire/policy.h"
#include "userspace/base/status.h"
#include "userspace/policy/document.h"

namespace stockade::policy {

struct CompileOptions {
    // Borrowed O_PATH descriptor of the sandbox's "/": symbolic links in the literal part of a
    // pattern are followed inside it, and the pattern covers their target as well. -1 = not.
    int root_fd = -1;
};

// What the Landlock layer starts from: one path rule, symbolic links already followed. A domain
// that contains the policy allows `ops` beneath literal_prefix (or on it alone, if is_exact).
struct LandlockRule {
    uint32_t ops = 0;  // SK_OP_* bits
    bool deny = false;
    std::string pattern;
    std::string literal_prefix;  // longest leading part without wildcards; "/" if there is none
    bool is_exact = false;       // the pattern has no wildcards: literal_prefix is all of it
    uint32_t layer = 0;          // an operation needs a rule of every layer
};

// A pattern whose literal part led elsewhere, and where.
struct Resolution {
    std::string pattern;
    std::string target;
    Position at;
    std::string note;  // why a link was not followed; target is empty then
};

struct CompileStats {
    uint32_t states = 0;
    uint32_t entries = 0;
    uint32_t buckets = 0;
    uint32_t glob_rows = 0;
};

struct CompiledPolicy {
    std::string name;
    std::string hash_hex;  // SHA-256 of the canonical document
    // First 8 bytes of SHA-256 of the canonical document and its resolutions: equal ids mean
    // equal verdicts (under the same keys). Also in the head cell.
    uint64_t id = 0;
    std::vector<sk_cell> cells;
    std::vector<Diagnostic> warnings;
    std::vector<LandlockRule> landlock;
    std::vector<Resolution> resolutions;
    CompileStats stats;
};

// kInvalidArgument: a bad pattern, too many ports or prefixes; kResourceExhausted: the automaton
// grows beyond its bound, with the patterns that make it. The message has file:line:column.
StatusOr<CompiledPolicy> Compile(const ResolvedPolicy& policy, const sk_hash_keys& keys,
                                 const CompileOptions& options = {});

// Remembers what it made, for a platform starts thousands of sandboxes under a few policies: where a policy
// says the same and its links lead to the same places, only these are looked at anew. Warnings keep the
// positions of the policy that was first. One thread.
class Compiler {
  public:
    // Of tables at once; what is more begins anew. A shipped policy takes 16 to 24 KiB.
    static constexpr size_t kMaxCells = (8 << 20) / SK_CELL_BYTES;

    explicit Compiler(const sk_hash_keys& keys) : keys_(keys) {}
    StatusOr<std::shared_ptr<const CompiledPolicy>> Compile(const ResolvedPolicy& policy,
                                                            const CompileOptions& options = {});

  private:
    const sk_hash_keys keys_;
    std::map<std::array<uint8_t, 32>, std::shared_ptr<const CompiledPolicy>> known_;  // by Identity::digest
    size_t cells_ = 0;                                                                // of known_
};

}  // namespace stockade::policy
