// The kernel side, as the agent sees it: programs, maps, pins. The only room that knows libbpf.
//
//   SK_ASSIGN_OR_RETURN(auto sensor, Sensor::Create({.pin_dir = "/sys/fs/bpf/stockade"}));
//   SK_ASSIGN_OR_RETURN(uint32_t index, sensor->PublishPolicy(compiled.cells));
//   SK_ASSIGN_OR_RETURN(SlotRef ref, sensor->BindSlot({...}));
//   SK_RETURN_IF_ERROR(sensor->Label(ref, pidfd));
//
// Threads: one caller at a time, except those of the rings, which one reader thread of its own may call, and
// ReadState, PinAddress and RefundDns, which any may.
// It does not resolve names, read policies from files, or decide anything.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bpf/wire/dns.h"
#include "bpf/wire/dns_zone.h"
#include "bpf/wire/policy.h"
#include "bpf/wire/slot.h"
#include "userspace/base/fd.h"
#include "userspace/base/status.h"
#include "userspace/model/coverage_features.h"

namespace stockade::kernel {

enum class Backend { kAuto, kSignal, kLsm };

// A sandbox in the kernel: stays valid until FreeSlot.
struct SlotRef {
    uint32_t slot = 0;
    uint32_t generation = 0;
};

enum class Ring { kLifecycle, kViolations, kTelemetry };
inline constexpr int kRings = 3;
// A place in each ring, by Ring, in bytes since it was made.
using RingPosition = std::array<uint64_t, kRings>;

// What a list says of a zone: value as in map `dns_known` of bpf/wire/dns_zone.h.
struct DnsKnown {
    uint64_t zone;
    uint32_t value;
};
struct DnsRule {
    uint64_t zone;
    sk_dns_rule rule;
};
// Which ports the addresses of a name open, or of all names below it. Without a stub alone.
struct DnsPinRule {
    uint64_t zone;
    bool below;
    std::vector<uint16_t> ports;  // 0 = any; at most SK_DNS_RULE_PORTS (bpf/wire/dns_answer.h) for a name, of all its rules
    bool tls = false;             // `tls_name: strict`
};
// A session's DNS budget in the kernel.
struct DnsBudgetRef {
    uint32_t number = 0;  // 0 = none
    uint32_t generation = 0;
};
// What a budget has spent on one zone.
struct DnsZoneSpent {
    DnsBudgetRef budget;
    uint64_t zone = 0;  // as in sk_dns_zone_key
    sk_dns_zone spent{};
};
struct DnsBinding {
    sk_dns_mode mode = SK_DNS_CLOSED;
    std::vector<sk_dns_server> servers;  // at most SK_DNS_RESOLVERS
    bool tcp = false;                    // they are the agent's stub
    bool answers = false;                // there is no stub: the kernel reads what the servers answer
    std::vector<DnsRule> rules;
    std::vector<DnsPinRule> pins;        // with `answers`
    DnsBudgetRef budget;
};

class Sensor {
  public:
    struct Options {
        std::string pin_dir = "/sys/fs/bpf/stockade";  // on a bpffs; empty = nothing is pinned
        Backend backend = Backend::kAuto;              // kAuto takes lsm where its canary is denied
        std::optional<sk_hash_keys> keys = std::nullopt;  // of maps made anew; drawn where there are none
    };

    // Loads and attaches, or adopts the pins of an earlier agent, whose programs stay attached beside
    // ours until RemoveEarlierSets. On failure nothing of ours stays attached. kFailedPrecondition
    // names each missing kernel feature, or a foreign abi.
    static StatusOr<std::unique_ptr<Sensor>> Create(const Options& options);
    // Pins stay. An adopting one that did not come to RemoveEarlierSets takes its own away, so that a
    // failing agent that is started again and again does not pile up programs.
    virtual ~Sensor() = default;

    virtual Backend backend() const = 0;       // kSignal or kLsm
    virtual model::FeatureSet missing() const = 0;  // of this kernel, as probed
    virtual bool adopted() const = 0;          // pins of an earlier agent were taken over
    virtual sk_hash_keys keys() const = 0;     // what policies must be compiled with

    // Copies the cells into a frozen map and returns its index. The same head.id gives the same
    // index again while it is in use. kResourceExhausted when all indices are taken.
    virtual StatusOr<uint32_t> PublishPolicy(std::span<const union sk_cell> cells) = 0;
    // One user of the index fewer. Without users it keeps its policy until it is wanted for another.
    virtual Status RetirePolicy(uint32_t index) = 0;

    struct Binding {
        int cgroup_fd = -1;   // borrowed; the sandbox's cgroup v2 directory
        int root_pidfd = -1;  // borrowed; a task whose root directory is "/" of the sandbox
        uint32_t policy_index = 0;
        bool closed = false;  // nobody enters: a task there without a label is one whose birth was not seen
    };
    // Takes a free slot and makes it live: from here on tasks in the cgroup are this sandbox's.
    virtual StatusOr<SlotRef> BindSlot(const Binding& binding) = 0;
    // Attaches the network programs to a cgroup (once for the parent of all launched sandboxes; pods carry them on their own).
    virtual Status AttachNetwork(int cgroup_fd) = 0;
    // Ends that, by the cgroup's inode number: the cgroup may be gone. OK where nothing is attached by this agent.
    virtual Status DetachNetwork(uint64_t cgroup_id) = 0;
    // Ends a take-over: detaches the programs of earlier agents. Not before everything that they judge
    // has a program of ours, AttachNetwork's included: until then theirs stand.
    virtual Status RemoveEarlierSets() = 0;
    // Labels the task behind the pidfd (a thread group leader with one thread). kAlreadyExists where it is
    // another sandbox's.
    virtual Status Label(const SlotRef& ref, int pidfd) = 0;
    // Labels every task that is in the bound cgroup now as entered. Returns how many.
    virtual StatusOr<int> LabelPresent(const SlotRef& ref) = 0;
    // One store: verdicts after it are the new policy's, those before it the old one's.
    virtual Status SwapPolicy(const SlotRef& ref, uint32_t policy_index) = 0;
    virtual Status Condemn(const SlotRef& ref, uint32_t code) = 0;
    virtual StatusOr<sk_state> ReadState(const SlotRef& ref) = 0;
    virtual Status FreeSlot(const SlotRef& ref) = 0;
    // No sandbox is expected soon: detaches what costs the whole machine. BindSlot attaches it again, which takes
    // a millisecond. Does nothing while a slot is live.
    virtual Status Rest() = 0;

    struct LiveSlot {
        SlotRef ref;
        sk_slot slot;
        sk_state state;
    };
    // For the agent that adopts: what an earlier one had bound.
    virtual StatusOr<std::vector<LiveSlot>> LiveSlots() = 0;

    // DNS. A slot without a binding asks nobody. FreeSlot ends the binding, not the budget.
    virtual Status SetDnsKnown(std::span<const DnsKnown> known) = 0;
    // With what was spent before; `budget` of `zones` does not count. kResourceExhausted: SK_DNS_BUDGETS are open.
    virtual StatusOr<DnsBudgetRef> OpenDnsBudget(const sk_dns_budget& amounts, std::span<const DnsZoneSpent> zones) = 0;
    // Of all budgets that are open.
    virtual StatusOr<std::vector<DnsZoneSpent>> ReadDnsZones() const = 0;
    // It is open: not ended, and not of kernel maps that are gone.
    virtual StatusOr<sk_dns_budget> ReadDnsBudget(const DnsBudgetRef& ref) const = 0;
    virtual Status CloseDnsBudget(const DnsBudgetRef& ref) = 0;
    virtual Status BindDns(const SlotRef& ref, const DnsBinding& binding) = 0;
    // Until then (boot time) the sandbox may connect there; port 0 = to any port. `tls`: over TCP, and the first
    // ClientHello has to name what a rule of the binding lists with SK_DNS_RULE_TLS_*. Any thread.
    virtual Status PinAddress(const SlotRef& ref, const sk_dns_server& address, int family, uint16_t port,
                              uint64_t until_ns, bool tls) = 0;
    // Any thread. kNotFound where the budget is another session's by now.
    virtual Status RefundDns(const sk_dns_refund& refund) = 0;

    // `record` is valid inside the call only, 8-aligned, of hostile content. Returns how many
    // records were handed on; 0 after `timeout_ms` without any. Telemetry ends no wait: it is found when one does. What was handed on stays in the rings,
    // where the next agent finds it, until it is released.
    using RecordFn = std::function<void(Ring, std::span<const uint8_t> record)>;
    virtual StatusOr<int> PollRings(int timeout_ms, const RecordFn& fn) = 0;
    // Ends the wait of PollRings, or of its next call. Any thread.
    virtual void WakeRings() = 0;
    // Up to where records have been handed on.
    virtual RingPosition Handed() const = 0;
    // Gives the room up to there back to the kernel.
    virtual void ReleaseRings(const RingPosition& upto) = 0;
    // What is not released fills half of a ring.
    virtual bool RingsHalfHeld() const = 0;

    // Sum over CPUs, index enum sk_dns_answer_end of bpf/wire/dns_answer.h.
    virtual StatusOr<std::vector<uint64_t>> ReadDnsAnswers() = 0;
    // Sum over CPUs, index enum sk_error_site.
    virtual StatusOr<std::vector<uint64_t>> ReadErrors() = 0;

    // Verified instructions per program, for the bench and the record of sizes.
    struct ProgramInfo {
        std::string name;
        uint32_t verified_instructions;
        uint64_t left_out;  // times the kernel did not run it, as it, or another, was at work on that CPU
        bool classic;       // runs with preemption off
    };
    virtual StatusOr<std::vector<ProgramInfo>> Programs() = 0;

    // Calls, births and ends of tasks, of the whole machine and since the load, that no program of ours was
    // run for, as one was at work on that CPU: at most so many are unjudged.
    virtual StatusOr<uint64_t> LeftOut() = 0;
};

}  // namespace stockade::kernel
