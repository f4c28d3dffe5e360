// What a sandbox is, as values: who, under which policy, in which state, with which promises.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/model/coverage.h"
#include "userspace/model/event.pb.h"

namespace stockade::model {

// "sbx_" and a ULID: 48 bits of milliseconds, 80 random bits, Crockford base 32. Sorts by time.
class SandboxId {
  public:
    SandboxId() = default;
    static SandboxId New();
    // Of given parts; `random` gives its low 80 bits. For New and for tests.
    static SandboxId FromParts(uint64_t unix_ms, uint64_t random_hi16, uint64_t random_lo64);
    // kInvalidArgument unless `text` is "sbx_" and 26 characters of a ULID, upper case.
    static StatusOr<SandboxId> Parse(absl::string_view text);

    const std::string& str() const { return text_; }
    bool empty() const { return text_.empty(); }
    auto operator<=>(const SandboxId&) const = default;

  private:
    std::string text_;
};

// A ULID without prefix, for ids of events that the agent makes.
std::string NewUlid();

// Frozen at birth. Bounds: each event carries them.
struct Labels {
    std::string session{};
    std::string tool{};
    std::string trace{};  // W3C traceparent, or empty
    std::map<std::string, std::string> free{};
};
inline constexpr size_t kMaxLabels = 32;
inline constexpr size_t kMaxLabelKeyBytes = 128;   // a Kubernetes key is 63 + 1 + 63 at most
inline constexpr size_t kMaxLabelValueBytes = 256;
// kInvalidArgument naming the first label that is too long, not printable UTF-8, or, for trace,
// not a traceparent ("00-<32 hex>-<16 hex>-<2 hex>").
Status CheckLabels(const Labels& labels);

enum class SandboxState {
    kRegistered,  // id and cgroup exist, nothing runs
    kStarting,    // policy bound, coverage attested
    kRunning,
    kCondemned,   // under kill-sandbox, not yet empty
    kEmpty,       // no task left, still to be removed
    kDestroyed,
};
absl::string_view ToString(SandboxState state);

// What this sandbox is promised, by operation (OperationInfo::id of coverage.h): attested at its
// start, shown in its events.
using CoverageTable = std::map<std::string, Cell, std::less<>>;

struct PolicyRef {
    uint64_t id = 0;   // sk_policy_head.id
    std::string name{};
    std::string hash{};  // SHA-256, hex
};

// All that an event says about its sandbox. Immutable: a change makes a new one.
struct SandboxInfo {
    SandboxId id{};
    Labels labels{};
    std::string runtime{};              // native, runc ...
    std::vector<PolicyRef> policies{};  // newest first; older ones for records still on their way
    CoverageTable coverage{};
};

// Fills Event.sandbox.
void ToProto(const SandboxInfo& info, v1::Sandbox* out);

}  // namespace stockade::model
