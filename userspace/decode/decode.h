// Bytes of a ring record to an Event. Nothing in a record is trusted: not its size, its kind,
// its lengths or its strings. Pure but for the look-up of the sandbox.
//
//   Decoder decoder({.node = "n1", .wall_offset_ns = WallNow() - BootNow(), .lookup = ...});
//   v1::Event event;
//   Status status = decoder.Decode(record, &event);   // failures are counted by reason
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "userspace/base/status.h"
#include "userspace/decode/redact.h"
#include "userspace/model/event.pb.h"
#include "userspace/model/sandbox.h"

struct sk_head;

namespace stockade::decode {

// X(NAME, "reason"): why a record is refused, or what is odd about one that is not.
#define SK_DECODE_REASONS(X)                                                         \
    X(SHORT, "short")         /* less than a head, or less than the head says */      \
    X(ABI, "abi")             /* of another record version */                         \
    X(KIND, "kind")           /* a kind that kinds.h does not have */                 \
    X(SIZE, "size")           /* not the size of its kind */                          \
    X(VALUE, "value")         /* verdict, outcome, code ... outside its table */      \
    X(PATH, "path")           /* components that do not add up */                     \
    X(STRING, "string")       /* a length beyond its field */                         \
    X(UNKNOWN_SANDBOX, "unknown sandbox") /* decoded, but nobody knows the slot */

enum class Reason {
#define X(NAME, text) NAME,
    SK_DECODE_REASONS(X)
#undef X
    COUNT,
};
absl::string_view ToString(Reason reason);

// Nullptr when no sandbox has the slot in that generation. Called on the decoding thread.
using SandboxLookup =
    std::function<std::shared_ptr<const model::SandboxInfo>(uint32_t slot, uint32_t generation)>;

class Decoder {
  public:
    struct Options {
        std::string node{};
        uint64_t wall_offset_ns = 0;  // CLOCK_REALTIME - CLOCK_BOOTTIME
        SandboxLookup lookup{};       // unset: no sandbox is known
        const Redactor* redactor = nullptr;  // not owned; null: the default patterns
    };
    explicit Decoder(Options options);

    // Overwrites *event. On failure the event is cleared, the reason counted, and the status
    // kInvalidArgument (or kUnimplemented for another abi). One thread at a time. Where a secret was replaced,
    // `original`, unless null, is made the event as it was before.
    Status Decode(std::span<const uint8_t> record, v1::Event* event, std::unique_ptr<v1::Event>* original = nullptr);

    const Redactor& redactor() const { return *options_.redactor; }
    // After the wall clock was stepped. Any thread.
    void set_wall_offset_ns(uint64_t offset) { wall_offset_ns_.store(offset); }
    uint64_t wall_offset_ns() const { return wall_offset_ns_.load(std::memory_order_relaxed); }
    // Any thread.
    uint64_t count(Reason reason) const {
        return counts_[static_cast<size_t>(reason)].load(std::memory_order_relaxed);
    }

  private:
    void Count(Reason reason);
    Status Fail(Reason reason, const Status& status);
    void Identify(const sk_head& head, v1::Event* event);
    void Explain(const sk_head& head, v1::Event* event);

    const Options options_;
    std::atomic<uint64_t> wall_offset_ns_;
    std::array<std::atomic<uint64_t>, static_cast<size_t>(Reason::COUNT)> counts_{};
};

}  // namespace stockade::decode
