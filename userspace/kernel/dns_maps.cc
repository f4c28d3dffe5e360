#include "userspace/kernel/dns_maps.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"

namespace stockade::kernel {
namespace {

// Removes the entries of a slot that an earlier agent wrote. One that stays is of a generation that is gone.
template <typename Key>
void EraseSlot(int fd, uint32_t slot) {
    std::vector<Key> found;
    Key key{}, next{};
    for (bool more = bpf_map_get_next_key(fd, nullptr, &next) == 0; more; more = bpf_map_get_next_key(fd, &key, &next) == 0) {
        key = next;
        if (key.slot == slot) found.push_back(key);
    }
    for (const Key& gone : found) (void)bpf_map_delete_elem(fd, &gone);
}

}  // namespace

StatusOr<DnsMaps> DnsMaps::Create(Programs* programs) {
    DnsMaps maps(programs);
    maps.generations_.assign(SK_DNS_BUDGETS, 0);
    maps.used_.assign(SK_DNS_BUDGETS, false);
    maps.used_[0] = true;
    for (uint32_t i = 1; i < SK_DNS_BUDGETS; i++) {
        sk_dns_budget budget{};
        if (bpf_map_lookup_elem(programs->MapFd("dns_budgets"), &i, &budget) != 0) return ErrnoStatus(errno, "read the DNS budgets");
        maps.generations_[i] = budget.generation;
        maps.used_[i] = budget.epoch_ns != 0;  // an earlier agent's
    }
    return maps;
}

Status DnsMaps::SetKnown(std::span<const DnsKnown> known) {
    const int fd = programs_->MapFd("dns_known");
    // What an earlier agent's lists had and ours do not: a zone that is believed no longer.
    std::unordered_set<uint64_t> ours;
    for (const DnsKnown& zone : known) ours.insert(zone.zone);
    std::vector<uint64_t> gone;
    uint64_t key = 0, next = 0;
    for (bool more = bpf_map_get_next_key(fd, nullptr, &next) == 0; more; more = bpf_map_get_next_key(fd, &key, &next) == 0) {
        key = next;
        if (ours.count(key) == 0) gone.push_back(key);
    }
    for (uint64_t zone : gone) {
        SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_delete_elem(fd, &zone), "remove from the list of zones"));
    }
    for (const DnsKnown& zone : known) {
        SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(fd, &zone.zone, &zone.value, BPF_ANY), "write the list of zones"));
    }
    return absl::OkStatus();
}

// Nobody is bound to the budget before it is complete.
StatusOr<DnsBudgetRef> DnsMaps::OpenBudget(const sk_dns_budget& amounts, std::span<const DnsZoneSpent> zones) {
    const auto free = std::find(used_.begin(), used_.end(), false);
    if (free == used_.end()) {
        return absl::ResourceExhaustedError(absl::StrCat("all ", SK_DNS_BUDGETS - 1, " DNS budgets are in use: end a session first"));
    }
    const auto number = static_cast<uint32_t>(free - used_.begin());
    sk_dns_budget budget = amounts;
    budget.generation = ++generations_[number];
    budget.zones = static_cast<uint32_t>(zones.size());
    for (const DnsZoneSpent& zone : zones) {
        const sk_dns_zone_key key{.zone = zone.zone, .budget = number, .generation = budget.generation};
        SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("dns_zones"), &key, &zone.spent, BPF_ANY), "write a DNS budget's zones"));
    }
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("dns_budgets"), &number, &budget, BPF_ANY), "write a DNS budget"));
    used_[number] = true;
    return DnsBudgetRef{number, budget.generation};
}

StatusOr<sk_dns_budget> DnsMaps::ReadBudget(const DnsBudgetRef& ref) const {
    if (!Lives(ref)) return absl::NotFoundError("the DNS budget is another session's by now");
    sk_dns_budget budget{};
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_lookup_elem(programs_->MapFd("dns_budgets"), &ref.number, &budget), "read a DNS budget"));
    return budget;
}

StatusOr<std::vector<DnsZoneSpent>> DnsMaps::ReadZones() const {
    const int fd = programs_->MapFd("dns_zones");
    std::vector<DnsZoneSpent> out;
    sk_dns_zone_key key{}, next{};
    for (bool more = bpf_map_get_next_key(fd, nullptr, &next) == 0; more; more = bpf_map_get_next_key(fd, &key, &next) == 0) {
        key = next;
        DnsZoneSpent zone{.budget = {key.budget, key.generation}, .zone = key.zone, .spent = {}};
        if (!Lives(zone.budget)) continue;
        SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_lookup_elem(fd, &key, &zone.spent), "read a DNS budget's zones"));
        out.push_back(zone);
    }
    return out;
}

// Its zones go with it: nobody may be charged for what an earlier session spent.
Status DnsMaps::CloseBudget(const DnsBudgetRef& ref) {
    if (!Lives(ref)) return absl::OkStatus();
    const int fd = programs_->MapFd("dns_zones");
    sk_dns_zone_key key{}, next{};
    std::vector<sk_dns_zone_key> gone;
    for (bool more = bpf_map_get_next_key(fd, nullptr, &next) == 0; more; more = bpf_map_get_next_key(fd, &key, &next) == 0) {
        key = next;
        if (key.budget == ref.number) gone.push_back(key);
    }
    for (const sk_dns_zone_key& zone : gone) (void)bpf_map_delete_elem(fd, &zone);  // a generation that is not back yet hides it
    const sk_dns_budget none{.epoch_ns = 0, .generation = ref.generation, .zones = 0, .total = 0, .total_budget = 0,
                             .zone_budget = 0, .ranked_budget = 0, .reverse_budget = 0, .pad = 0};
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("dns_budgets"), &ref.number, &none, BPF_ANY), "close a DNS budget"));
    used_[ref.number] = false;
    return absl::OkStatus();
}

Status DnsMaps::BindPins(const SlotRef& ref, std::span<const DnsPinRule> pins) {
    std::map<uint64_t, sk_dns_ports> ports;
    for (const DnsPinRule& rule : pins) {
        sk_dns_port_list& list = rule.below ? ports[rule.zone].below : ports[rule.zone].exact;
        for (const uint16_t port : rule.ports) {
            // Where a rule with `tls_name: strict` and one without open the same port, it is open.
            const auto known = static_cast<uint64_t>(std::find(list.port, list.port + list.count, port) - list.port);
            if (known != list.count) {
                if (!rule.tls) list.tls &= ~(uint64_t{1} << known);
                continue;
            }
            if (list.count == SK_DNS_RULE_PORTS) {
                return absl::InvalidArgumentError(absl::StrCat("more than ", SK_DNS_RULE_PORTS, " ports for a name"));
            }
            if (rule.tls) list.tls |= uint64_t{1} << list.count;
            list.port[list.count++] = port;
        }
    }
    for (const auto& [zone, value] : ports) {
        const sk_dns_rule_key key{.zone = zone, .slot = ref.slot, .generation = ref.generation};
        SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("dns_ports"), &key, &value, BPF_ANY),
                                          "write the ports that a name opens"));
        ports_[ref.slot].push_back(zone);
    }
    return absl::OkStatus();
}

Status DnsMaps::Bind(const SlotRef& ref, const DnsBinding& binding) {
    SK_RETURN_IF_ERROR(Unbind(ref));
    if (binding.servers.size() > SK_DNS_RESOLVERS) {
        return absl::InvalidArgumentError(absl::StrCat("more than ", SK_DNS_RESOLVERS, " resolvers"));
    }
    const int fd = programs_->MapFd("dns_rules");
    for (const DnsRule& rule : binding.rules) {
        const sk_dns_rule_key key{.zone = rule.zone, .slot = ref.slot, .generation = ref.generation};
        const int rc = bpf_map_update_elem(fd, &key, &rule.rule, BPF_ANY);
        if (rc != 0) {
            (void)ForgetRules(ref);  // the failure to write is told
            return NegErrnoStatus(rc, "write the names that a policy allows");
        }
        rules_[ref.slot].push_back(rule.zone);
    }
    if (const Status status = BindPins(ref, binding.pins); !status.ok()) {
        (void)ForgetRules(ref);  // the failure to write is told
        return status;
    }
    sk_dns_binding slot{};
    slot.generation = ref.generation;
    slot.budget = binding.budget.number;
    slot.mode = static_cast<uint8_t>(binding.mode);
    slot.servers = static_cast<uint8_t>(binding.servers.size());
    slot.tcp = binding.tcp;
    slot.answers = binding.answers;
    slot.rules = !binding.rules.empty();
    std::copy(binding.servers.begin(), binding.servers.end(), slot.server);
    bound_.insert(ref.slot);
    return NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("dns_slots"), &ref.slot, &slot, BPF_ANY), "bind a sandbox's DNS");
}

Status DnsMaps::ForgetRules(const SlotRef& ref) {
    int failed = 0;
    for (auto [map, zones] : {std::pair{"dns_rules", &rules_}, std::pair{"dns_ports", &ports_}}) {
        for (uint64_t zone : (*zones)[ref.slot]) {
            const sk_dns_rule_key key{.zone = zone, .slot = ref.slot, .generation = ref.generation};
            const int rc = bpf_map_delete_elem(programs_->MapFd(map), &key);
            if (rc != 0 && rc != -ENOENT) failed = rc;
        }
        zones->erase(ref.slot);
    }
    return NegErrnoStatus(failed, "remove the names that a policy allows");
}

Status DnsMaps::Pin(const SlotRef& ref, const sk_dns_server& address, int family, uint16_t port, uint64_t until_ns, bool tls) {
    const sk_dns_pin_key key{.hi = address.hi, .lo = address.lo, .slot = ref.slot, .generation = ref.generation,
                             .port = port, .family = static_cast<uint32_t>(family)};
    std::lock_guard lock(*pins_mutex_);
    const int fd = programs_->MapFd("dns_pins");
    Pins& pins = pins_[ref.slot];
    const auto known = pins.find(key);
    // A sandbox can ask for the same answer thousands of times a second.
    sk_dns_pin pin = known != pins.end() ? known->second : sk_dns_pin{};
    if (until_ns < (tls ? pin.until_ns : pin.plain_until_ns) + kPinStepNs && known != pins.end()) return absl::OkStatus();
    if (known == pins.end() && pins.size() >= kMaxPins) {
        const uint64_t now = BootNow();
        std::erase_if(pins, [&](const auto& pin) { return pin.second.until_ns < now && bpf_map_delete_elem(fd, &pin.first) == 0; });
        if (pins.size() >= kMaxPins) return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxPins, " addresses by name in one sandbox"));
    }
    pin.until_ns = std::max<uint64_t>(pin.until_ns, until_ns);
    if (!tls) pin.plain_until_ns = std::max<uint64_t>(pin.plain_until_ns, until_ns);
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(fd, &key, &pin, BPF_ANY), "pin an address"));
    pins[key] = pin;
    return absl::OkStatus();
}

void DnsMaps::ForgetPins(const SlotRef& ref) {
    std::lock_guard lock(*pins_mutex_);
    const auto pins = pins_.find(ref.slot);
    if (pins == pins_.end()) return;
    // One that stays is of a generation that does not come back soon.
    for (const auto& [key, pin] : pins->second) (void)bpf_map_delete_elem(programs_->MapFd("dns_pins"), &key);
    pins_.erase(pins);
}

// What the kernel has pinned. An answer that is being read now may leave a pin behind, of a generation that
// does not come back soon.
void DnsMaps::ForgetAnswers(const SlotRef& ref, uint32_t pinned) {
    for (uint32_t place = 0; place < std::min<uint32_t>(pinned, SK_DNS_PINS); place++) {
        const sk_dns_pinned_key at{.slot = ref.slot, .generation = ref.generation, .place = place, .pad = 0};
        sk_dns_pin_key pin{};
        if (bpf_map_lookup_elem(programs_->MapFd("dns_places"), &at, &pin) != 0) continue;
        (void)bpf_map_delete_elem(programs_->MapFd("dns_pins"), &pin);
        (void)bpf_map_delete_elem(programs_->MapFd("dns_places"), &at);
    }
}

Status DnsMaps::Unbind(const SlotRef& ref) {
    ForgetPins(ref);
    sk_dns_binding bound{};
    if (bpf_map_lookup_elem(programs_->MapFd("dns_slots"), &ref.slot, &bound) != 0) return ErrnoStatus(errno, "read a sandbox's DNS");
    if (bound.generation != 0 && bound_.count(ref.slot) == 0) {
        EraseSlot<sk_dns_rule_key>(programs_->MapFd("dns_rules"), ref.slot);
        EraseSlot<sk_dns_rule_key>(programs_->MapFd("dns_ports"), ref.slot);
        EraseSlot<sk_dns_pin_key>(programs_->MapFd("dns_pins"), ref.slot);
        EraseSlot<sk_dns_pinned_key>(programs_->MapFd("dns_places"), ref.slot);
    }
    bound_.erase(ref.slot);
    SK_RETURN_IF_ERROR(ForgetRules(ref));
    const sk_dns_binding none{};
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_map_update_elem(programs_->MapFd("dns_slots"), &ref.slot, &none, BPF_ANY), "unbind a sandbox's DNS"));
    // From here on nothing is added.
    if (bound.answers) ForgetAnswers({ref.slot, bound.generation}, bound.pinned);
    return absl::OkStatus();
}

Status DnsMaps::Refund(const sk_dns_refund& refund) {
    sk_dns_refund context = refund;
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &context, .ctx_size_in = sizeof(context));
    SK_RETURN_IF_ERROR(NegErrnoStatus(bpf_prog_test_run_opts(programs_->ProgramFd("dns_refund"), &options), "call dns_refund"));
    if (options.retval != 0) return absl::NotFoundError("the DNS budget is another session's by now");
    return absl::OkStatus();
}

}  // namespace stockade::kernel
