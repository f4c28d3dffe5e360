// The DNS meter's maps: what lists say of zones, budgets, and the rules of each sandbox.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "bpf/wire/dns.h"
#include "bpf/wire/dns_answer.h"
#include "bpf/wire/dns_zone.h"
#include "userspace/kernel/programs.h"
#include "userspace/kernel/sensor.h"

namespace stockade::kernel {

// Not thread-safe, but for Pin and Refund. `programs` must outlive it.
class DnsMaps {
  public:
    static StatusOr<DnsMaps> Create(Programs* programs);  // not owned

    Status SetKnown(std::span<const DnsKnown> known);
    StatusOr<DnsBudgetRef> OpenBudget(const sk_dns_budget& amounts, std::span<const DnsZoneSpent> zones);
    StatusOr<std::vector<DnsZoneSpent>> ReadZones() const;
    bool Lives(const DnsBudgetRef& ref) const {
        return ref.number != 0 && ref.number < SK_DNS_BUDGETS && used_[ref.number] && generations_[ref.number] == ref.generation;
    }
    // kNotFound when it is another session's by now.
    StatusOr<sk_dns_budget> ReadBudget(const DnsBudgetRef& ref) const;
    Status CloseBudget(const DnsBudgetRef& ref);
    Status Bind(const SlotRef& ref, const DnsBinding& binding);
    // Of a slot that is freed; without effect where nothing was bound.
    Status Unbind(const SlotRef& ref);
    // Addresses of one sandbox at once: a name has some ten, and answers that come and go add up.
    static constexpr size_t kMaxPins = 4096;
    // An address that is pinned already is not written anew for less than this: half of the least grace.
    static constexpr uint64_t kPinStepNs = 30'000'000'000;
    // kResourceExhausted beyond kMaxPins that are still valid.
    Status Pin(const SlotRef& ref, const sk_dns_server& address, int family, uint16_t port, uint64_t until_ns, bool tls);
    Status Refund(const sk_dns_refund& refund);

  private:
    explicit DnsMaps(Programs* programs) : programs_(programs), pins_mutex_(std::make_unique<std::mutex>()) {}
    Status BindPins(const SlotRef& ref, std::span<const DnsPinRule> pins);
    Status ForgetRules(const SlotRef& ref);
    void ForgetPins(const SlotRef& ref);
    void ForgetAnswers(const SlotRef& ref, uint32_t pinned);

    Programs* programs_;                     // not owned
    std::vector<uint32_t> generations_;      // by budget; the one in use, or the last
    std::vector<bool> used_;                 // by budget
    std::set<uint32_t> bound_;               // slots that we have bound
    std::map<uint32_t, std::vector<uint64_t>> rules_;  // by slot: zones with a rule
    std::map<uint32_t, std::vector<uint64_t>> ports_;  // by slot: zones with ports
    struct ByBytes {
        bool operator()(const sk_dns_pin_key& a, const sk_dns_pin_key& b) const { return std::memcmp(&a, &b, sizeof(a)) < 0; }
    };
    using Pins = std::map<sk_dns_pin_key, sk_dns_pin, ByBytes>;
    std::unique_ptr<std::mutex> pins_mutex_;
    std::map<uint32_t, Pins> pins_;  // by slot; under pins_mutex_
};

}  // namespace stockade::kernel
