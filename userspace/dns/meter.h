// The information budget of one budget id (a session): what its queries can have told each zone.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "bpf/wire/dns_budget.h"
#include "userspace/base/status.h"
#include "userspace/dns/code_model.h"
#include "userspace/dns/meter_state.h"
#include "userspace/dns/suffix_list.h"
#include "userspace/dns/tiers.h"

namespace stockade::dns {

// In bytes. The defaults are those of DESIGN.md section 9.
struct Budgets {
    static constexpr uint32_t kUnlimited = UINT32_MAX;
    uint32_t zone = 256;      // an unranked zone, for the life of the budget id
    uint32_t ranked = 4096;   // a ranked zone, a day
    uint32_t total = 2048;    // all unranked zones together
    uint32_t reverse = 2048;  // look-ups of addresses
    // Above these a query is let through with a warning, once a zone.
    uint32_t warn_zone = 128;
    uint32_t warn_ranked = 512;
    uint32_t warn_name = 40;
    uint32_t warn_downlink = 1024;  // bytes of TXT and NULL answers
};

// What all meters share; it outlives them.
struct Knowledge {
    SuffixList suffixes;
    CodeModel model;
    Tiers tiers;
    Budgets budgets;
};

enum class Verdict : uint8_t { kAllow, kWarn, kDrop };
absl::string_view VerdictName(Verdict verdict);

#define SK_DNS_CAUSES(X)                                                                 \
    X(kNone, "none", "")                                                                 \
    X(kWarnZone, "warn-zone", "half of the zone's budget is spent")                      \
    X(kWarnName, "warn-name", "a single name that could hold much")                      \
    X(kWarnDownlink, "warn-downlink", "many bytes in TXT or NULL answers")               \
    X(kZoneBudget, "zone-budget", "the zone's budget does not suffice")                  \
    X(kZoneBlocked, "zone-blocked", "the zone's budget was passed before")               \
    X(kTotalBudget, "total-budget", "the budget of all unranked zones does not suffice") \
    X(kNameLong, "name-long", "a subdomain of more than 96 characters")                  \
    X(kNotCanonical, "not-canonical", "a query that is not of the canonical form")

enum class Cause : uint8_t {
#define X(name, code, text) name,
    SK_DNS_CAUSES(X)
#undef X
};
absl::string_view CauseName(Cause cause);  // "zone-budget": stable
absl::string_view CauseText(Cause cause);  // for a person

// A canonical query. Names without a final dot; empty for the root.
struct Query {
    absl::string_view name;  // lower case
    absl::string_view sent;  // as sent; differs from `name` in case only
    uint16_t type = 0;
    uint64_t time_ns = 0;
    // The budget of its zone, in bytes, where the asker's policy grants one: before what the lists say.
    std::optional<uint32_t> granted_bytes = std::nullopt;
};

struct Answer {
    absl::string_view name;  // of the question, as in Query
    absl::string_view sent;
    uint16_t type = 0;
    uint64_t time_ns = 0;
    uint32_t ttl_s = 0;           // the least of the answer's records, or of a negative answer; 0: none told
    uint32_t downlink_bytes = 0;  // of TXT and NULL records
    std::optional<uint32_t> granted_bytes = std::nullopt;  // as in Query
};

struct Decision {
    Verdict verdict = Verdict::kAllow;
    Cause cause = Cause::kNone;
    Tier tier = Tier::kUnranked;
    absl::string_view zone;  // part of Query::name
    uint32_t charged = 0;    // sixteenths of a bit, before the refund
    uint32_t settled = 0;    // what stays
    uint32_t spent = 0;      // by the zone, after this query
    uint32_t budget = 0;     // of the zone, in sixteenths of a bit; 0: not charged
};

// Two steps, which in a sandbox are taken by two parties: Charge is what the kernel does with a
// query before it leaves, in the worst case; Settle is what user space does after, with the true
// code length. `Ask` is both. Without Settle the meter is only stricter.
//
//   Meter meter(knowledge, MeterState(keys, now));
//   Decision d = meter.Ask({.name = "a.example.com", .sent = "a.example.com", .type = 1, .time_ns = now});
//   if (d.verdict == Verdict::kDrop) ...
//
// One thread. It reads no clock: times are those of the queries, and a time before the last one
// counts as that. It does NOT check the canonical form (bpf/wire/dns_message.h) or types.
class Meter {
  public:
    // `knowledge` is not owned; its budgets hold where none are given.
    Meter(const Knowledge& knowledge, MeterState state) : Meter(knowledge, std::move(state), knowledge.budgets) {}
    Meter(const Knowledge& knowledge, MeterState state, const Budgets& budgets)
        : knowledge_(knowledge), budgets_(budgets), state_(std::move(state)) {}

    Decision Ask(const Query& query);
    Decision Charge(const Query& query);
    // `decision` is that of Charge, or of the kernel, for the same query, and let it pass.
    void Settle(const Query& query, Decision& decision);
    // An answer from the resolver to a query that passed: what it holds costs nothing to ask again
    // until its TTL is over. kWarn once the zone has answered with many bytes.
    Decision Hear(const Answer& answer);
    // A repeat of this name did not go further than a cache of our own: what says that it is one is given back,
    // its moment is not.
    void Forgive(const Answer& answer);

    const MeterState& state() const { return state_; }

  private:
    // One of the budgets that a query is charged to.
    struct Account {
        size_t zone = 0;
        absl::string_view name;  // of the zone
        absl::string_view sub;   // what is charged for
        Tier tier = Tier::kUnranked;
        uint32_t budget = 0;  // sixteenths of a bit
        bool counts_for_total = false;
        uint32_t fingerprint = 0;  // of the name asked for
        size_t record = MeterState::kNoName;
    };
    struct Accounts {
        Account list[2];
        size_t count = 0;
    };

    // `Asked` is a Query or an Answer.
    template <typename Asked>
    Accounts Open(const Asked& asked);
    void OpenZone(absl::string_view zone, absl::string_view name, Tiers::Entry entry, bool primary,
                  Accounts& out);
    Decision Charge(const Accounts& accounts, const Query& query);
    void Settle(Accounts& accounts, const Query& query, Decision& decision);
    uint32_t BudgetOf(Tier tier, uint32_t granted_bytes) const;
    uint32_t GapCharge(const ZoneRecord& zone, uint64_t time_ns) const;
    bool WasAsked(const Account& account, uint16_t type);
    // Whether a cache should have the answer.
    bool IsCached(const Account& account, const Query& query);
    uint32_t WorstCase(const Account& account, const Query& query);
    uint32_t WorstCaseOfTotal(const Account& account) const;
    uint32_t TrueCost(const Account& account, const Query& query, uint32_t worst);
    void Hold(const Account& account, uint32_t charge);
    void Release(const Account& account, bool refund);
    void Remember(Account& account, const Query& query);
    void StartDay(ZoneRecord& zone, uint64_t time_ns) const;
    Decision Uncharged(absl::string_view name) const;
    Decision Refuse(const Account& account, Cause cause) const;
    void Warn(const Account& account, Decision& decision);

    const Knowledge& knowledge_;
    const Budgets budgets_;
    MeterState state_;
};

}  // namespace stockade::dns
