#include "userspace/cmd/dns_budgets.h"

#include <cstring>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bpf/wire/dns_zone.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/base/log.h"
#include "userspace/dns/charge.h"
#include "userspace/dns/zone_hash.h"
#include "userspace/model/text.h"

namespace stockade::cmd {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;  // 4,096 lines of a session label (128 bytes, escaped) and two numbers

uint32_t Bytes(uint64_t units) { return static_cast<uint32_t>((units + SK_DNS_BYTE - 1) / SK_DNS_BYTE); }

uint32_t WholeBytes(uint32_t units) {
    return units == SK_DNS_UNLIMITED ? dns::Budgets::kUnlimited : units / SK_DNS_BYTE;
}

// What a policy had given to the budget's first sandbox.
dns::Budgets AmountsOf(const sk_dns_budget& credit) {
    dns::Budgets out;
    out.zone = WholeBytes(credit.zone_budget);
    out.ranked = WholeBytes(credit.ranked_budget);
    out.total = WholeBytes(credit.total_budget);
    out.reverse = WholeBytes(credit.reverse_budget);
    return out;
}

// Labels from `at` on, as sent. Empty where they do not end in the root's.
std::string NameOf(const sk_dns& record, size_t at) {
    std::string out;
    while (at < record.name_len && record.name_len <= sizeof(record.name)) {
        const uint8_t len = record.name[at++];
        if (len == 0) return out;
        if (len > SK_DNS_LABEL_BYTES || at + len > record.name_len) break;
        if (!out.empty()) out.push_back('.');
        out.append(reinterpret_cast<const char*>(record.name) + at, len);
        at += len;
    }
    return {};
}

std::string Lower(std::string name) {
    for (char& c : name) c = static_cast<char>(sk_dns_lower(static_cast<uint8_t>(c)));
    return name;
}

bool Passed(const sk_dns& record) { return record.head.outcome == SK_OUTCOME_DONE; }

}  // namespace

uint32_t DnsUnits(uint32_t bytes) {
    return bytes > (SK_DNS_UNLIMITED - 1) / SK_DNS_BYTE ? SK_DNS_UNLIMITED : bytes * SK_DNS_BYTE;
}

StatusOr<std::unique_ptr<DnsBudgets>> DnsBudgets::Create(Options options) {
    std::unique_ptr<DnsBudgets> budgets(new DnsBudgets(std::move(options)));
    budgets->since_ns_ = BootNow();
    SK_RETURN_IF_ERROR(budgets->Load());
    return budgets;
}

// Lines "number generation id".
Status DnsBudgets::Load() {
    if (options_.file.empty()) return absl::OkStatus();
    const StatusOr<std::string> text = ReadFile(options_.file, kMaxFileBytes);
    if (absl::IsNotFound(text.status())) return absl::OkStatus();
    SK_RETURN_IF_ERROR(text.status());
    for (absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
        const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
        auto budget = std::make_unique<Budget>();
        if (words.size() != 3 || !absl::SimpleAtoi(words[0], &budget->ref.number) ||
            !absl::SimpleAtoi(words[1], &budget->ref.generation) || !absl::CUnescape(words[2], &budget->id)) {
            return absl::DataLossError(absl::StrCat(options_.file, ": not written by an agent: '", line, "'"));
        }
        const StatusOr<sk_dns_budget> credit = options_.sensor->ReadDnsBudget(budget->ref);
        if (!credit.ok()) continue;  // the maps are other ones by now
        budget->keep = absl::StartsWith(budget->id, "session ");
        budget->meter = std::make_unique<dns::Meter>(
            *options_.knowledge, dns::MeterState(options_.sensor->keys(), BootNow()), AmountsOf(*credit));
        budget->idle_since_ns = BootNow();
        numbers_[budget->id] = budget->ref.number;
        budgets_[budget->ref.number] = std::move(budget);
    }
    return absl::OkStatus();
}

void DnsBudgets::Save() {
    if (options_.file.empty()) return;
    std::string text;
    for (const auto& [number, budget] : budgets_) {
        absl::StrAppend(&text, number, " ", budget->ref.generation, " ", absl::CHexEscape(budget->id), "\n");
    }
    const Status written = ReplaceFile(options_.file, text, 0600);
    if (!written.ok()) LogError("a next agent will not know the sessions' DNS budgets: ", written.message());
}

StatusOr<kernel::DnsBudgetRef> DnsBudgets::Use(const std::string& id, const dns::Budgets& amounts, bool keep) {
    std::unique_lock lock(mutex_);
    if (const auto found = numbers_.find(id); found != numbers_.end()) {
        Budget& budget = *budgets_[found->second];
        ++budget.users;
        budget.settled = false;
        return budget.ref;
    }
    PutAway(kMaxIdle, lock);
    auto budget = std::make_unique<Budget>();
    sk_dns_budget credit{};
    StatusOr<kernel::DnsBudgetRef> opened = Open(id, amounts, keep, credit);
    if (absl::IsResourceExhausted(opened.status())) {
        PutAway(0, lock);
        opened = Open(id, amounts, keep, credit);
    }
    SK_ASSIGN_OR_RETURN(budget->ref, std::move(opened));
    budget->id = id;
    budget->users = 1;
    budget->keep = keep;
    budget->meter = std::make_unique<dns::Meter>(
        *options_.knowledge, dns::MeterState(options_.sensor->keys(), credit.epoch_ns), AmountsOf(credit));
    const kernel::DnsBudgetRef ref = budget->ref;
    numbers_[id] = ref.number;
    budgets_[ref.number] = std::move(budget);
    Save();
    return ref;
}

void DnsBudgets::Release(const std::string& id) {
    std::lock_guard lock(mutex_);
    const auto found = numbers_.find(id);
    if (found == numbers_.end()) return;
    Budget& budget = *budgets_[found->second];
    if (--budget.users > 0) return;
    budget.idle_since_ns = BootNow();
    if (budget.keep) return;
    const Status closed = options_.sensor->CloseDnsBudget(budget.ref);
    if (!closed.ok()) LogWarning("close a DNS budget: ", closed.message());
    budgets_.erase(found->second);
    numbers_.erase(found);
    Save();
}

void DnsBudgets::CloseUnused() {
    std::vector<std::string> unused;
    {
        std::lock_guard lock(mutex_);
        for (const auto& [number, budget] : budgets_) {
            if (budget->users == 0 && !budget->keep) unused.push_back(budget->id);
        }
    }
    for (const std::string& id : unused) Release(id);
}

DnsBudgets::Budget* DnsBudgets::Find(uint32_t number, uint32_t generation) {
    const auto found = budgets_.find(number);
    return found != budgets_.end() && found->second->ref.generation == generation ? found->second.get() : nullptr;
}

DnsBudgets::Zone& DnsBudgets::ZoneOf(Budget& budget, const std::string& zone) {
    if (budget.zones.size() >= kMaxToldZones && budget.zones.count(zone) == 0) return budget.zones["(others)"];
    return budget.zones[zone];
}

void DnsBudgets::OnRecord(std::span<const uint8_t> bytes) {
    sk_dns record;
    if (bytes.size() < sizeof(record)) return;
    std::memcpy(&record, bytes.data(), sizeof(record));
    if (record.head.kind != SK_KIND_DNS || record.head.abi != SK_RECORD_ABI || record.fault != 0) return;
    const std::string sent = NameOf(record, 0), name = Lower(sent);
    std::lock_guard lock(mutex_);
    Budget* budget = Find(record.budget, record.generation);
    if (budget == nullptr) return;
    if (Passed(record) && record.head.code == SK_CODE_OK) return Settle(*budget, record, name, sent);
    const uint32_t code = record.head.code;
    if (code == SK_CODE_DNS_ZONE_BUDGET || code == SK_CODE_DNS_NAME_LONG || code == SK_CODE_DNS_TOTAL_BUDGET) {
        Tell(*budget, record, name, "high", "dns-exfil block");
    }
}

void DnsBudgets::Settle(Budget& budget, const sk_dns& record, const std::string& name, const std::string& sent) {
    const std::string zone = Lower(NameOf(record, record.zone_at));
    Zone& told = ZoneOf(budget, zone);
    if (told.allowed++ == 0) told.first_ns = record.head.boot_ns;
    told.last_ns = record.head.boot_ns;
    if (record.limit == 0 || record.head.boot_ns < since_ns_) return;
    const dns::Zone cut = options_.knowledge->suffixes.Find(name);
    const std::string zones[2] = {zone.empty() ? "." : zone, std::string(cut.icann)};
    const bool reverse = dns::IsReverseName(name);
    const sk_hash_keys keys = options_.sensor->keys();
    bool found[2];
    const auto spent = [&](int i) -> uint32_t {
        size_t index = dns::kReverseZone;
        found[i] = reverse ? i == 0 : budget.meter->state().FindZone(zones[i], &index);
        // Charged to the record that zones share: it is not this one's to give back.
        const uint64_t key = dns::ZoneHash(keys, zones[i] == "." ? absl::string_view() : zones[i]);
        found[i] = found[i] && record.zone_key[i] == (reverse ? SK_DNS_ZONE_REVERSE : sk_dns_zone_key_of(key));
        return found[i] ? budget.meter->state().zone(index).spent : 0;
    };
    const uint32_t before[2] = {spent(0), spent(1)}, total = budget.meter->state().total;
    dns::Query query{.name = name, .sent = sent, .type = record.type, .time_ns = record.head.boot_ns};
    if (record.tier == SK_DNS_TIER_GRANTED) query.granted_bytes = WholeBytes(record.limit);
    const dns::Decision decision = budget.meter->Ask(query);
    // Charged differently here: the kernel's word stands, and nothing is given back.
    if (decision.verdict == dns::Verdict::kDrop) return;
    sk_dns_refund refund{};
    refund.budget = record.budget;
    refund.generation = record.generation;
    for (int i = 0; i < 2; ++i) {
        // Less than before: a day of its own has begun. Not found: it shares a record, and nothing is known of it.
        const uint32_t after = spent(i), settled = after >= before[i] ? after - before[i] : after;
        refund.zone_key[i] = record.zone_key[i];
        refund.amount[i] = found[i] && record.charged[i] > settled ? record.charged[i] - settled : 0;
    }
    const uint32_t total_after = budget.meter->state().total, settled = total_after > total ? total_after - total : 0;
    refund.total = record.charged_total > settled ? record.charged_total - settled : 0;
    GiveBack(budget, refund);
    if (decision.verdict == dns::Verdict::kWarn) Tell(budget, record, name, "medium", dns::CauseText(decision.cause));
}

void DnsBudgets::OnAnswer(const kernel::DnsBudgetRef& ref, const kernel::SlotRef& slot, const dns::Answer& answer,
                          bool from_cache) {
    std::lock_guard lock(mutex_);
    Budget* budget = Find(ref.number, ref.generation);
    if (budget == nullptr) return;
    const sk_hash_keys keys = options_.sensor->keys();
    const dns::Zone cut = options_.knowledge->suffixes.Find(answer.name);
    const absl::string_view primary = cut.registered.empty() ? cut.icann : cut.registered;
    const absl::string_view zones[2] = {primary, cut.icann.size() < primary.size() ? cut.icann : absl::string_view()};
    const dns::MeterState& state = budget->meter->state();
    const auto spent = [&](absl::string_view zone) -> uint32_t {
        size_t index = 0;
        return !zone.empty() && state.FindZone(zone, &index) ? state.zone(index).spent : 0;
    };
    const uint32_t before[2] = {spent(zones[0]), spent(zones[1])}, total = state.total;
    const dns::Decision heard = budget->meter->Hear(answer);
    if (heard.verdict == dns::Verdict::kWarn) TellDownlink(slot, heard);
    if (!from_cache || dns::IsReverseName(answer.name)) return;
    budget->meter->Forgive(answer);
    sk_dns_refund refund{};
    refund.budget = ref.number;
    refund.generation = ref.generation;
    bool any = false;
    for (int i = 0; i < 2; ++i) {
        const uint32_t after = spent(zones[i]);
        if (after >= before[i]) continue;
        refund.zone_key[i] = sk_dns_zone_key_of(dns::ZoneHash(keys, zones[i]));
        refund.amount[i] = before[i] - after;
        any = true;
    }
    refund.total = total > state.total ? total - state.total : 0;
    if (any) GiveBack(*budget, refund);
}

void DnsBudgets::GiveBack(Budget& budget, const sk_dns_refund& refund) {
    if (refund.amount[0] == 0 && refund.amount[1] == 0 && refund.total == 0) return;
    const Status status = options_.sensor->RefundDns(refund);
    if (!status.ok()) LogWarning("refund of ", budget.id, ": ", status.message());
}

void DnsBudgets::TellDownlink(const kernel::SlotRef& slot, const dns::Decision& heard) {
    v1::Event event;
    event.set_kind("finding");
    event.set_boot_ns(BootNow());
    event.mutable_sandbox()->set_slot(slot.slot);
    event.mutable_sandbox()->set_generation(slot.generation);
    v1::Finding& finding = *event.mutable_finding();
    finding.set_rule("dns-downlink");
    finding.set_severity("medium");
    finding.set_title(absl::StrCat(dns::CauseText(heard.cause), ": ", heard.zone));
    options_.publish(std::move(event));
}

void DnsBudgets::Tell(Budget& budget, const sk_dns& record, const std::string& name,
                      absl::string_view severity, absl::string_view what) {
    const std::string zone = Lower(NameOf(record, record.zone_at));
    Zone& told = ZoneOf(budget, zone);
    bool& said = severity == "high" ? told.told : told.warned;
    if (said) return;
    said = true;
    v1::Event event;
    event.set_kind("finding");
    event.set_boot_ns(record.head.boot_ns);
    event.mutable_sandbox()->set_slot(record.head.slot);
    event.mutable_sandbox()->set_generation(record.head.generation);
    event.mutable_process()->set_pid(record.head.tgid);
    event.mutable_process()->set_tid(record.head.tid);
    event.mutable_process()->set_start_boot_ns(record.head.start_boot_ns);
    const size_t comm = strnlen(record.head.comm, sizeof(record.head.comm));
    event.mutable_process()->set_escaped(
        model::AppendEscaped({record.head.comm, comm}, event.mutable_process()->mutable_comm()));
    v1::Finding& finding = *event.mutable_finding();
    finding.set_rule("dns-budget");
    finding.set_title(absl::StrCat(what, ": ", zone.empty() ? name : zone));
    finding.set_severity(std::string(severity));
    const uint64_t ms = told.allowed > 1 ? (told.last_ns - told.first_ns) / 1'000'000 : 0;
    std::string detail = absl::StrCat(what, " zone=", zone, " spent=", Bytes(record.spent), "B/", Bytes(record.limit),
                                      "B names=", told.allowed, " in ", ms, " ms, name ");
    (void)model::AppendEscaped(name, &detail);
    absl::StrAppend(&detail, ", pid=", record.head.tgid, " ", event.process().comm(), "; last allowed query #", told.allowed);
    finding.set_detail(detail);
    options_.publish(std::move(event));
}

}  // namespace stockade::cmd
