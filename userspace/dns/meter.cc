#include "userspace/dns/meter.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "userspace/dns/charge.h"

namespace stockade::dns {
namespace {

constexpr uint32_t kDayQuanta = static_cast<uint32_t>((24ull * 3600 * 1'000'000'000) >> SK_DNS_QUANTUM_SHIFT);
// Longer TTLs are not believed: a resolver forgets, too.
constexpr uint32_t kMaxTtlSeconds = 24 * 3600;
// Seconds are rounded at the resolver, and to ticks here.
constexpr uint32_t kTtlSlackTicks = 1;

uint32_t Units(uint32_t bytes) { return bytes > UINT32_MAX / SK_DNS_BYTE ? UINT32_MAX : bytes * SK_DNS_BYTE; }

// The part of `name` before `.zone`.
absl::string_view Below(absl::string_view name, absl::string_view zone) {
    return name.size() > zone.size() ? name.substr(0, name.size() - zone.size() - 1) : absl::string_view();
}

// Names under "." are charged whole: the root and the registries are asked for them.
constexpr absl::string_view kRootZone = ".";

}  // namespace

absl::string_view VerdictName(Verdict verdict) {
    return verdict == Verdict::kAllow ? "allow" : verdict == Verdict::kWarn ? "warn" : "block";
}

absl::string_view CauseName(Cause cause) {
    switch (cause) {
#define X(name, code, text) \
    case Cause::name:       \
        return code;
        SK_DNS_CAUSES(X)
#undef X
    }
    return "?";
}

absl::string_view CauseText(Cause cause) {
    switch (cause) {
#define X(name, code, text) \
    case Cause::name:       \
        return text;
        SK_DNS_CAUSES(X)
#undef X
    }
    return "?";
}

uint32_t Meter::BudgetOf(Tier tier, uint32_t granted_bytes) const {
    const Budgets& budgets = budgets_;
    switch (tier) {
        case Tier::kRanked:
            return Units(budgets.ranked);
        case Tier::kGranted:
            return Units(granted_bytes);
        case Tier::kReverse:
            return Units(budgets.reverse);
        default:
            return Units(budgets.zone);
    }
}

void Meter::OpenZone(absl::string_view zone, absl::string_view name, Tiers::Entry entry, bool primary,
                     Accounts& out) {
    Account& account = out.list[out.count++];
    account.zone = state_.Zone(zone, entry.tier);
    account.name = zone;
    // A zone without a record of its own says itself with each name.
    account.sub = account.zone == kOverflowZone || zone == kRootZone ? name : Below(name, zone);
    account.tier = account.zone == kOverflowZone ? Tier::kUnranked : entry.tier;
    account.budget = BudgetOf(account.tier, entry.budget_bytes);
    account.counts_for_total = primary && account.tier == Tier::kUnranked;
}

template <typename Asked>
Meter::Accounts Meter::Open(const Asked& asked) {
    Accounts out;
    const absl::string_view name = asked.name;
    const Tiers::Entry entry = asked.granted_bytes ? Tiers::Entry{Tier::kGranted, *asked.granted_bytes}
                                                   : knowledge_.tiers.Find(name);
    if (!IsCharged(entry.tier)) return out;
    if (IsReverseName(name)) {
        const absl::string_view root = ReverseRoot(name);
        out.list[out.count++] = {.zone = kReverseZone,
                                 .name = root,
                                 .sub = Below(name, root),
                                 .tier = Tier::kReverse,
                                 .budget = BudgetOf(Tier::kReverse, 0)};
    } else {
        const Zone zone = knowledge_.suffixes.Find(name);
        const absl::string_view primary = zone.registered.empty() ? zone.icann : zone.registered;
        OpenZone(primary.empty() ? kRootZone : primary, name, entry, true, out);
        // Many names below one provider's suffix are many zones to their owners and one to the provider.
        if (zone.icann.size() < primary.size() && entry.tier != Tier::kGranted)
            OpenZone(zone.icann, name, knowledge_.tiers.Find(zone.icann), false, out);
    }
    const uint32_t fingerprint = state_.Fingerprint(asked.sent);
    for (size_t i = 0; i < out.count; ++i) {
        out.list[i].fingerprint = fingerprint;
        out.list[i].record = state_.FindName(out.list[i].zone, fingerprint);
    }
    return out;
}

// A budget of a day starts again; those of a session never do.
void Meter::StartDay(ZoneRecord& zone, uint64_t time_ns) const {
    const auto day = static_cast<uint16_t>(state_.Quanta(time_ns) / kDayQuanta);
    if (zone.tier != Tier::kRanked || day <= zone.day) return;
    zone.day = day;
    zone.spent = 0;
    zone.blocked = zone.warned = 0;
}

// A zone's first query is placed in the life of the session.
uint32_t Meter::GapCharge(const ZoneRecord& zone, uint64_t time_ns) const {
    const uint32_t now = state_.Quanta(time_ns), last = zone.asked ? zone.last : 0;
    return sk_dns_charge_gap(static_cast<uint64_t>(now > last ? now - last : 0) << SK_DNS_QUANTUM_SHIFT);
}

bool Meter::WasAsked(const Account& account, uint16_t type) {
    return account.record != MeterState::kNoName && (state_.name(account.record).types & TypeBit(type));
}

bool Meter::IsCached(const Account& account, const Query& query) {
    const uint32_t bit = TypeBit(query.type);
    // Only A and AAAA have room for a time.
    return WasAsked(account, query.type) && bit <= 2 &&
           state_.Ticks(query.time_ns) < state_.name(account.record).cached_until[bit - 1];
}

uint32_t Meter::WorstCase(const Account& account, const Query& query) {
    const ZoneRecord& zone = state_.zone(account.zone);
    const uint32_t gap = GapCharge(zone, query.time_ns);
    if (WasAsked(account, query.type)) return sk_dns_charge_repeat(zone.names) + gap;
    if (account.tier == Tier::kReverse) {
        if (const uint32_t bits = ReverseBits(query.name))
            return SK_DNS_CHARGE_NAME + sk_dns_charge_type(query.type) + bits * SK_DNS_BIT + gap;
    }
    const auto chars = static_cast<uint32_t>(account.sub.size());
    return sk_dns_charge_new(chars, query.sent != query.name, query.type) + gap;
}

// Which zone it is, at its first query.
uint32_t Meter::WorstCaseOfTotal(const Account& account) const {
    if (state_.zone(account.zone).asked || account.zone == kOverflowZone) return 0;
    return sk_dns_charge_new(static_cast<uint32_t>(account.name.size()), 0, SK_DNS_TYPE_A);
}

uint32_t Meter::TrueCost(const Account& account, const Query& query, uint32_t worst) {
    const ZoneRecord& zone = state_.zone(account.zone);
    // A cache keeps the moment to itself.
    if (IsCached(account, query)) return sk_dns_charge_repeat(zone.names) + SK_DNS_CHARGE_GAP_BURST;
    if (WasAsked(account, query.type)) return worst;
    const uint32_t gap = GapCharge(zone, query.time_ns);
    const bool known = account.record != MeterState::kNoName;
    if (known && zone.last_name == account.fingerprint && IsSibling(zone.last_type, query.type))
        return kChargeSibling + gap;
    uint32_t cost = worst;
    if (known) cost = std::min(cost, ChargeRetype(zone.names, query.type) + gap);
    if (query.sent == query.name && account.tier != Tier::kReverse) {
        const uint32_t labels = knowledge_.model.Name(account.sub);
        cost = std::min(cost, kChargeModel + sk_dns_charge_type(query.type) + labels + gap);
    }
    return cost;
}

// Whether a cache really has it is shown by the answer; until then the repeat is charged.
void Meter::Hold(const Account& account, uint32_t charge) {
    ZoneRecord& zone = state_.zone(account.zone);
    if (zone.held == UINT16_MAX) return;
    ++zone.held;
    zone.held_charges += charge;
}

// The answer to one of the repeats held is there. They are not told apart: each has its share.
void Meter::Release(const Account& account, bool refund) {
    ZoneRecord& zone = state_.zone(account.zone);
    if (zone.held == 0) return;
    const uint32_t share = zone.held_charges / zone.held;
    zone.held_charges -= share;
    --zone.held;
    if (!refund) return;
    zone.spent -= std::min(zone.spent, share);
    if (account.counts_for_total) state_.total -= std::min(state_.total, share);
}

void Meter::Remember(Account& account, const Query& query) {
    ZoneRecord& zone = state_.zone(account.zone);
    zone.last = std::max(zone.asked ? zone.last : 0, state_.Quanta(query.time_ns));
    zone.asked = 1;
    const uint32_t bit = TypeBit(query.type);
    zone.last_name = account.fingerprint;
    zone.last_type = bit <= 2 ? bit : 0;
    // One of the many other types is new each time.
    if (bit == 0 || WasAsked(account, query.type)) return;
    if (account.record == MeterState::kNoName)
        account.record = state_.AddName(account.zone, account.fingerprint);
    if (account.record == MeterState::kNoName) return;
    NameRecord& name = state_.name(account.record);
    name.types = static_cast<uint16_t>(name.types | bit);
    if (zone.names < UINT16_MAX) ++zone.names;
}

Decision Meter::Refuse(const Account& account, Cause cause) const {
    return {.verdict = Verdict::kDrop,
            .cause = cause,
            .tier = account.tier,
            .zone = account.name,
            .spent = state_.zone(account.zone).spent,
            .budget = account.budget};
}

Decision Meter::Uncharged(absl::string_view name) const {
    const absl::string_view zone = knowledge_.suffixes.Find(name).registered;
    return {.tier = knowledge_.tiers.Find(name).tier, .zone = zone.empty() ? name : zone};
}

Decision Meter::Charge(const Accounts& accounts, const Query& query) {
    if (accounts.count == 0) return Uncharged(query.name);
    uint32_t worst[2] = {}, of_total = 0;
    for (size_t i = 0; i < accounts.count; ++i) {
        const Account& account = accounts.list[i];
        ZoneRecord& zone = state_.zone(account.zone);
        StartDay(zone, query.time_ns);
        if (zone.blocked) return Refuse(account, Cause::kZoneBlocked);
        if (account.sub.size() > SK_DNS_SUBDOMAIN_CHARS && account.tier != Tier::kGranted)
            return Refuse(account, Cause::kNameLong);
        worst[i] = WorstCase(account, query);
        if (worst[i] > account.budget || zone.spent > account.budget - worst[i]) {
            zone.blocked = 1;
            return Refuse(account, Cause::kZoneBudget);
        }
        if (!account.counts_for_total) continue;
        of_total = worst[i] + WorstCaseOfTotal(account);
        const uint32_t budget = Units(budgets_.total);
        if (of_total > budget || state_.total > budget - of_total)
            return Refuse(account, Cause::kTotalBudget);
    }
    // All or nothing: a query that one budget refuses is charged to none.
    for (size_t i = 0; i < accounts.count; ++i) state_.zone(accounts.list[i].zone).spent += worst[i];
    state_.total += of_total;
    const Account& primary = accounts.list[0];
    return {.tier = primary.tier,
            .zone = primary.name,
            .charged = worst[0],
            .settled = worst[0],
            .spent = state_.zone(primary.zone).spent,
            .budget = primary.budget};
}

void Meter::Warn(const Account& account, Decision& decision) {
    ZoneRecord& zone = state_.zone(account.zone);
    const Budgets& budgets = budgets_;
    const uint32_t limit = account.tier == Tier::kRanked     ? Units(budgets.warn_ranked)
                           : account.tier == Tier::kUnranked ? Units(budgets.warn_zone)
                                                             : account.budget / 2;
    if (decision.settled >= Units(budgets.warn_name) && account.tier == Tier::kUnranked) {
        decision.verdict = Verdict::kWarn;
        decision.cause = Cause::kWarnName;
    }
    if (zone.warned || zone.spent < limit) return;
    zone.warned = 1;
    decision.verdict = Verdict::kWarn;
    decision.cause = Cause::kWarnZone;
}

void Meter::Settle(Accounts& accounts, const Query& query, Decision& decision) {
    for (size_t i = 0; i < accounts.count; ++i) {
        Account& account = accounts.list[i];
        ZoneRecord& zone = state_.zone(account.zone);
        const uint32_t worst = WorstCase(account, query), cost = TrueCost(account, query, worst);
        zone.spent -= std::min(zone.spent, worst - cost);
        if (account.counts_for_total) {
            const uint32_t zone_worst = WorstCaseOfTotal(account);
            uint32_t zone_cost = zone_worst;
            if (zone_worst > 0)
                zone_cost = std::min(zone_worst, kChargeNewZone + knowledge_.model.Name(account.name));
            state_.total -= std::min(state_.total, worst - cost + zone_worst - zone_cost);
        }
        if (IsCached(account, query)) {
            Hold(account, cost);
        } else {
            Remember(account, query);
        }
        if (i > 0) continue;
        decision.settled = cost;
        decision.spent = zone.spent;
        if (decision.verdict != Verdict::kDrop) Warn(account, decision);
    }
}

Decision Meter::Charge(const Query& query) { return Charge(Open(query), query); }

void Meter::Settle(const Query& query, Decision& decision) {
    Accounts accounts = Open(query);
    Settle(accounts, query, decision);
}

Decision Meter::Ask(const Query& query) {
    Accounts accounts = Open(query);
    Decision decision = Charge(accounts, query);
    if (decision.verdict != Verdict::kDrop) Settle(accounts, query, decision);
    return decision;
}

void Meter::Forgive(const Answer& answer) {
    const Accounts accounts = Open(answer);
    // What every repeat of a name that is remembered has settled at, or more. One that found no room is new each
    // time, which can be cheaper: giving this back would pay the sandbox for asking.
    const uint32_t amount = SK_DNS_CHARGE_REPEAT + SK_DNS_CHARGE_GAP_BURST;
    for (size_t i = 0; i < accounts.count; ++i) {
        if (!WasAsked(accounts.list[i], answer.type)) continue;
        ZoneRecord& zone = state_.zone(accounts.list[i].zone);
        zone.spent -= std::min(zone.spent, amount);
        if (accounts.list[i].counts_for_total) state_.total -= std::min(state_.total, amount);
    }
}

Decision Meter::Hear(const Answer& answer) {
    const Accounts accounts = Open(answer);
    Decision decision = Uncharged(answer.name);
    const uint32_t bit = TypeBit(answer.type), now = state_.Ticks(answer.time_ns);
    // Ticks() leaves room for a day, which is as long as any TTL is believed.
    const uint32_t until = now + std::min(answer.ttl_s, kMaxTtlSeconds) / kTickSeconds;
    for (size_t i = 0; i < accounts.count; ++i) {
        const Account& account = accounts.list[i];
        ZoneRecord& zone = state_.zone(account.zone);
        if (WasAsked(account, answer.type) && bit <= 2) {
            uint16_t& cached_until = state_.name(account.record).cached_until[bit - 1];
            // A cache counts down. An answer that lives longer than the one that should still have
            // been there came from the zone's name server: the repeat stays charged.
            if (now < cached_until) Release(account, until <= cached_until + kTtlSlackTicks);
            cached_until = std::max(cached_until, static_cast<uint16_t>(until));
        }
        const uint32_t downlink = zone.downlink_bytes + std::min<uint32_t>(answer.downlink_bytes, UINT16_MAX);
        zone.downlink_bytes = static_cast<uint16_t>(std::min<uint32_t>(downlink, UINT16_MAX));
        if (i > 0) continue;
        decision = {
            .tier = account.tier, .zone = account.name, .spent = zone.spent, .budget = account.budget};
        if (!zone.downlink_warned && zone.downlink_bytes > budgets_.warn_downlink) {
            zone.downlink_warned = 1;
            decision.verdict = Verdict::kWarn;
            decision.cause = Cause::kWarnDownlink;
        }
    }
    return decision;
}

}  // namespace stockade::dns
