// Numbers and hash chain of exported events, one chain for each sandbox of this node and one for the
// node's own events. Not thread-safe.
//
//   ExportChain chain(node, &key);
//   SK_ASSIGN_OR_RETURN(absl::string_view bytes, chain.Add(event));   // with export_seq and chain
//   v1::Event seal = chain.Seal(sandbox);          // the signed end; Add gives its number
//
// chain(n) = SHA-256 of the hexadecimal text of chain(n-1), nothing for the first, and of the event in
// protobuf's serialisation (fields by number, map entries by key) with export_seq and without chain.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>

#include "userspace/base/status.h"
#include "userspace/model/event.pb.h"
#include "userspace/model/event_bytes.h"
#include "userspace/pipeline/kernel_numbers.h"
#include "userspace/pipeline/node_key.h"

namespace stockade::pipeline {

// Appends the event as the chain is over it: protobuf's serialisation with fields by number and map entries by key.
void AppendCanonical(const v1::Event& event, std::string* out);
// Chain at `event`, which comes after `before`. What it has in its field chain does not matter.
std::string ChainAfter(absl::string_view before, const v1::Event& event);
// What a seal's signature is over.
std::string SealText(absl::string_view node, absl::string_view sandbox, uint64_t export_seq,
                     absl::string_view before);

// What the chain has had of a sandbox, for whoever goes on with it after a start. Until it is sealed.
struct ChainBooks {
    v1::Sandbox sandbox;
    KernelNumbers seen;
    uint64_t repeats = 0;  // kernel numbers that the kernel's repeat events stand for
    uint64_t told = 0;     // and those that were lost, or left out by the policy's record level
    uint64_t left_out_boot_ns = 0;          // time of the latest record that was left out
    std::map<std::string, uint64_t, std::less<>> kinds;  // of what is not of the spool's own
};
// The policy's record level leaves records out that the kernel has numbered (quiet queries of DNS). Such a
// repeat event stands for them: the kernel's own have a number themselves.
bool IsLeftOut(const v1::Event& event);
// Made behind the path of events, where the closing summary is counted.
bool IsOfTheSpool(const v1::Event& event);

class ExportChain {
  public:
    struct Head {
        uint64_t seq = 0;     // of the last event; 0 = none yet
        std::string chain{};  // at it; empty = none yet, or not known after damage
        bool sealed = false;
        ChainBooks books{};
        std::string sandbox{};  // books.sandbox as the last event had it, serialised; empty = it may be another's
        uint64_t slot = 0;  // of one that is sealed: its place in the kernel; 0 = not known
    };
    // Sealed sandboxes are remembered so that a straggler does not start a second chain at 1.
    static constexpr size_t kMaxSealed = 4096;

    // `key` is not owned; null = seals carry no signature.
    ExportChain(std::string node, const NodeKey* key) : node_(std::move(node)), key_(key) {}

    // kFailedPrecondition when the sandbox is sealed: then it is counted, and nothing else. What is returned is the event
    // with its number and chain, serialised once for chain, spool and exporters; it lies here until the next call. The event
    // itself may be others' too and is not touched; what it has in these two fields does not matter.
    StatusOr<absl::string_view> Add(const v1::Event& event);
    // What AppendCanonical made of a record of the kernel's that is no more than that: neither a repeat nor one that keeps the
    // books, of a sandbox with an id, without number and chain.
    StatusOr<absl::string_view> Add(const model::EventBytes& event);
    // Sets both fields.
    Status Add(v1::Event* event);
    // Made for being the next that is added. After it nothing of the sandbox is added but what is lost, and a seal again. The node's own chain (no id) goes on behind its seals.
    v1::Event Seal(const v1::Sandbox& sandbox);
    Head HeadOf(const std::string& sandbox) const;
    uint64_t SeqOf(const std::string& sandbox) const;
    bool IsSealed(const std::string& sandbox) const;
    // It was added before, by an earlier process too: its number is there, or its sandbox, which nobody knows any more
    // but by its place in the kernel, is sealed, and so had all that the rings held of it.
    bool Has(const v1::Event& event) const;
    bool Has(absl::string_view sandbox, uint64_t kernel_seq) const;

    // An event as it was found in the spool at a start.
    void Restore(const v1::Event& event);
    // From a snapshot.
    void RestoreHead(const std::string& sandbox, const Head& head, bool sealed);
    // Of a start of the machine before this one the places say nothing.
    void ForgetSlots();
    // `count` numbers of this sandbox may have been given that nobody knows of: they are left out.
    v1::LostRange Skip(const std::string& sandbox, uint64_t count);
    const std::map<std::string, Head, std::less<>>& heads() const { return heads_; }
    uint64_t after_seal() const { return after_seal_; }

  private:
    Status AfterSeal(absl::string_view sandbox);
    void Close(const std::string& sandbox, uint64_t slot);
    absl::string_view Link(const v1::Event* event, absl::string_view bytes, Head* head, absl::string_view* sandbox);
    static void Enter(const v1::Event& event, absl::string_view sandbox, Head* head);

    const std::string node_;
    const NodeKey* const key_;
    std::map<std::string, Head, std::less<>> heads_;  // by sandbox id; "" = the node's own
    std::deque<std::string> sealed_;     // oldest first
    std::set<uint64_t> sealed_slots_;
    uint64_t after_seal_ = 0;
    std::string text_;  // what the hash is over, then the event's chain
};

}  // namespace stockade::pipeline
