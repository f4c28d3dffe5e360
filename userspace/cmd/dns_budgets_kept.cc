// Budgets between the kernel and the disk.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bpf/wire/dns_zone.h"
#include "userspace/base/clock.h"
#include "userspace/base/log.h"
#include "userspace/base/sha256.h"
#include "userspace/cmd/dns_budgets.h"

namespace stockade::cmd {
namespace {

// Times are not kept: what was asked before counts as asked now, and the day of a ranked zone begins anew with what
// it had spent. Both make a query dearer or leave it as it is.
kernel::DnsZoneSpent Restored(const sandbox::v1::StoredDnsZone& stored, uint64_t now_ns) {
    kernel::DnsZoneSpent out{.budget = {}, .zone = stored.zone(), .spent = {}};
    out.spent.last_ns = stored.asked() ? now_ns : 0;
    out.spent.spent = stored.spent();
    out.spent.names = stored.names();
    out.spent.blocked = stored.blocked();
    return out;
}

// Without its zones.
sandbox::v1::StoredDnsBudget Stored(const std::string& id, const sk_dns_budget& credit) {
    sandbox::v1::StoredDnsBudget out;
    out.set_id(id);
    out.set_total(credit.total);
    out.set_total_budget(credit.total_budget);
    out.set_zone_budget(credit.zone_budget);
    out.set_ranked_budget(credit.ranked_budget);
    out.set_reverse_budget(credit.reverse_budget);
    return out;
}

void AddZone(const kernel::DnsZoneSpent& zone, sandbox::v1::StoredDnsBudget& out) {
    sandbox::v1::StoredDnsZone& stored = *out.add_zones();
    stored.set_zone(zone.zone);
    stored.set_spent(zone.spent.spent);
    stored.set_names(zone.spent.names);
    stored.set_asked(zone.spent.last_ns != 0);
    stored.set_blocked(zone.spent.blocked != 0);
}

}  // namespace

StatusOr<kernel::DnsBudgetRef> DnsBudgets::Open(const std::string& id, const dns::Budgets& amounts, bool keep, sk_dns_budget& credit) {
    credit = {};
    credit.epoch_ns = BootNow();
    credit.total_budget = DnsUnits(amounts.total);
    credit.zone_budget = DnsUnits(amounts.zone);
    credit.ranked_budget = DnsUnits(amounts.ranked);
    credit.reverse_budget = DnsUnits(amounts.reverse);
    std::vector<kernel::DnsZoneSpent> zones;
    if (keep) {
        SK_ASSIGN_OR_RETURN(const std::optional<sandbox::v1::StoredDnsBudget> stored, options_.ledger->Read(id));
        if (stored) {
            credit.total = stored->total();
            credit.total_budget = stored->total_budget();
            credit.zone_budget = stored->zone_budget();
            credit.ranked_budget = stored->ranked_budget();
            credit.reverse_budget = stored->reverse_budget();
            for (const sandbox::v1::StoredDnsZone& zone : stored->zones()) zones.push_back(Restored(zone, credit.epoch_ns));
        } else {
            // A session that could not be kept must not begin.
            SK_RETURN_IF_ERROR(options_.ledger->Write(Stored(id, credit)));
        }
    }
    return options_.sensor->OpenDnsBudget(credit, zones);
}

StatusOr<sandbox::v1::StoredDnsBudget> DnsBudgets::ToStore(const Budget& budget, const Spent& spent) const {
    SK_ASSIGN_OR_RETURN(const sk_dns_budget credit, options_.sensor->ReadDnsBudget(budget.ref));
    sandbox::v1::StoredDnsBudget out = Stored(budget.id, credit);
    for (const kernel::DnsZoneSpent& zone : spent.zones) {
        if (zone.budget.number == budget.ref.number) AddZone(zone, out);
    }
    // The kernel gives them in no order.
    std::sort(out.mutable_zones()->begin(), out.mutable_zones()->end(), [](const auto& a, const auto& b) { return a.zone() < b.zone(); });
    return out;
}

Status DnsBudgets::Write(const kernel::DnsBudgetRef& ref, const Spent& spent, std::unique_lock<std::mutex>& lock) {
    const Budget* found = Find(ref.number, ref.generation);
    if (found == nullptr) return absl::OkStatus();
    SK_ASSIGN_OR_RETURN(const sandbox::v1::StoredDnsBudget out, ToStore(*found, spent));
    const std::string digest = Sha256Hex(out.SerializeAsString());
    if (digest != found->kept) {
        // The threads of the rings and of the stub do not wait for a disk.
        lock.unlock();
        const Status written = options_.ledger->Write(out);
        lock.lock();
        SK_RETURN_IF_ERROR(written);
    }
    Budget* budget = Find(ref.number, ref.generation);
    if (budget == nullptr) return absl::OkStatus();
    budget->kept = digest;
    budget->settled = budget->users == 0 && budget->idle_since_ns <= spent.read_ns;
    return absl::OkStatus();
}

StatusOr<DnsBudgets::Spent> DnsBudgets::ReadSpent() const {
    Spent spent{.read_ns = BootNow(), .zones = {}};
    SK_ASSIGN_OR_RETURN(spent.zones, options_.sensor->ReadDnsZones());
    return spent;
}

void DnsBudgets::Keep() {
    std::unique_lock lock(mutex_);
    const uint64_t now = BootNow();
    if (due_.empty() && now - looked_ns_ >= kKeepNs) {
        looked_ns_ = now;
        LookForDue();
    }
    WriteDue(kWritesAtOnce, lock);
}

void DnsBudgets::KeepAll() {
    std::unique_lock lock(mutex_);
    LookForDue();
    WriteDue(due_.size(), lock);
}

void DnsBudgets::LookForDue() {
    due_.clear();
    for (const auto& [number, budget] : budgets_) {
        if (budget->keep && !budget->settled) due_.push_back(budget->ref);
    }
    if (due_.empty()) return;
    StatusOr<Spent> spent = ReadSpent();
    if (!spent.ok()) due_.clear();
    if (spent.ok()) due_spent_ = *std::move(spent);
    else TellKept(spent.status());
}

void DnsBudgets::WriteDue(size_t most, std::unique_lock<std::mutex>& lock) {
    if (due_.empty()) return;
    Status status;
    for (size_t i = 0; i < most && !due_.empty(); ++i) {
        const kernel::DnsBudgetRef ref = due_.back();
        due_.pop_back();
        status.Update(Write(ref, due_spent_, lock));
    }
    TellKept(status);
}

// Told once: a full disk stays full for longer than a moment.
void DnsBudgets::TellKept(const Status& status) {
    if (status.ok() != keep_failed_) return;
    keep_failed_ = !status.ok();
    if (keep_failed_) LogError("what sessions spend of their DNS budgets would be lost in a reboot: ", status.message());
    else LogInfo("the DNS budgets of sessions are on disk again");
}

void DnsBudgets::PutAway(size_t most, std::unique_lock<std::mutex>& lock) {
    std::vector<std::pair<uint64_t, kernel::DnsBudgetRef>> idle;  // by when it became so
    for (const auto& [number, budget] : budgets_) {
        if (budget->users == 0 && budget->keep) idle.emplace_back(budget->idle_since_ns, budget->ref);
    }
    if (idle.size() <= most) return;
    std::sort(idle.begin(), idle.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    idle.resize(idle.size() - most);
    const StatusOr<Spent> spent = ReadSpent();
    Status status = spent.status();
    for (const auto& [since, ref] : idle) {
        Budget* budget = Find(ref.number, ref.generation);
        if (spent.ok() && !budget->settled) status.Update(Write(ref, *spent, lock));
        budget = Find(ref.number, ref.generation);
        if (!budget->settled) continue;  // not on disk: it stays
        const Status closed = options_.sensor->CloseDnsBudget(budget->ref);
        if (!closed.ok()) LogWarning("put a DNS budget away: ", closed.message());
        if (!closed.ok()) continue;
        numbers_.erase(budget->id);
        budgets_.erase(budget->ref.number);
    }
    TellKept(status);
    Save();
}

}  // namespace stockade::cmd
