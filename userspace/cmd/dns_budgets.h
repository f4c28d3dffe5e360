// The DNS budgets of sessions: in the kernel the credit, here the true length of what was asked.
//
// The kernel charges each query in the worst case before it leaves, and tells of it by a record. Here the record
// is settled by the frozen model, and what was too much is given back. Nobody waits for that: late or dead, it
// only leaves the kernel stricter.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bpf/wire/dns.h"
#include "userspace/base/status.h"
#include "userspace/cmd/dns_ledger.h"
#include "userspace/dns/meter.h"
#include "userspace/kernel/sensor.h"
#include "userspace/model/event.pb.h"

namespace stockade::cmd {

// Sixteenths of a bit, as the kernel counts; SK_DNS_UNLIMITED for more than they can say.
uint32_t DnsUnits(uint32_t bytes);

// OnRecord and OnAnswer may be called from any thread, all else from one.
class DnsBudgets {
  public:
    struct Options {
        kernel::Sensor* sensor = nullptr;             // not owned
        const dns::Knowledge* knowledge = nullptr;    // not owned
        std::function<void(v1::Event)> publish;       // findings
        std::string file;                             // which session has which budget, for a next agent
        DnsLedger* ledger = nullptr;                  // not owned
    };
    // Takes up what an earlier agent has written.
    static StatusOr<std::unique_ptr<DnsBudgets>> Create(Options options);

    // The budget of a session, made where there is none; amounts count only then. `keep`: it stays when the last
    // user is gone, for the session's next sandbox.
    StatusOr<kernel::DnsBudgetRef> Use(const std::string& id, const dns::Budgets& amounts, bool keep);
    void Release(const std::string& id);
    // Those of sandboxes that an earlier agent had and that are gone.
    void CloseUnused();
    // Writes to the ledger what has changed, a little at each call: every file is synced, and who calls has
    // kills to order. Cheap where no session asks.
    void Keep();
    // All of it.
    void KeepAll();

    // A record of a ring; those of other kinds are passed over.
    void OnRecord(std::span<const uint8_t> record);
    // An answer that the stub is about to give to the slot's sandbox. `from_cache`: to a query over UDP, which was
    // charged, and it asked nobody. Its TTL must be 0: whether others have a cache is not believed.
    void OnAnswer(const kernel::DnsBudgetRef& ref, const kernel::SlotRef& slot, const dns::Answer& answer, bool from_cache);

  private:
    struct Zone {
        uint64_t first_ns = 0;
        uint64_t last_ns = 0;
        uint64_t allowed = 0;  // queries
        bool told = false;     // of its block
        bool warned = false;
    };
    struct Budget {
        kernel::DnsBudgetRef ref;
        std::string id;
        int users = 0;
        bool keep = false;
        uint64_t idle_since_ns = 0;  // boot time
        bool settled = false;        // on disk as it is: nobody has used it since
        std::string kept;            // digest of what is on disk
        std::unique_ptr<dns::Meter> meter;
        std::map<std::string, Zone> zones;  // asked of; at most kMaxToldZones
    };
    struct Spent {
        uint64_t read_ns = 0;  // boot time, before
        std::vector<kernel::DnsZoneSpent> zones;
    };
    // What a session spends between two of these is forgotten when the power fails.
    static constexpr uint64_t kKeepNs = 10'000'000'000;
    // Of Keep, which is called ten times a second: 400 sessions that ask are written in time, more take longer.
    static constexpr size_t kWritesAtOnce = 4;
    // Zones of a session that findings can tell of; the kernel keeps fewer.
    static constexpr size_t kMaxToldZones = 512;
    // Sessions without a sandbox whose budgets stay in the kernel, where the next one finds them with all names that
    // were asked: each holds up to 16 KiB here and 15 there.
    static constexpr size_t kMaxIdle = 1024;

    explicit DnsBudgets(Options options) : options_(std::move(options)) {}
    Status Load();
    void Save();
    StatusOr<kernel::DnsBudgetRef> Open(const std::string& id, const dns::Budgets& amounts, bool keep, sk_dns_budget& credit);
    StatusOr<Spent> ReadSpent() const;
    StatusOr<sandbox::v1::StoredDnsBudget> ToStore(const Budget& budget, const Spent& spent) const;
    // Lets go of the lock while it writes.
    Status Write(const kernel::DnsBudgetRef& ref, const Spent& spent, std::unique_lock<std::mutex>& lock);
    void LookForDue();
    void WriteDue(size_t most, std::unique_lock<std::mutex>& lock);
    void TellKept(const Status& status);
    // Of the idle ones those that were used least lately go to disk, until `most` stay.
    void PutAway(size_t most, std::unique_lock<std::mutex>& lock);
    Budget* Find(uint32_t number, uint32_t generation);
    void Settle(Budget& budget, const sk_dns& record, const std::string& name, const std::string& sent);
    void Tell(Budget& budget, const sk_dns& record, const std::string& name,
              absl::string_view severity, absl::string_view what);
    void TellDownlink(const kernel::SlotRef& slot, const dns::Decision& heard);
    void GiveBack(Budget& budget, const sk_dns_refund& refund);
    Zone& ZoneOf(Budget& budget, const std::string& zone);

    const Options options_;
    uint64_t since_ns_ = 0;  // records from before were settled by an earlier agent, or stay charged
    std::mutex mutex_;
    bool keep_failed_ = false;
    uint64_t looked_ns_ = 0;  // boot time
    std::vector<kernel::DnsBudgetRef> due_;  // not written yet of what was found then
    Spent due_spent_;
    std::map<uint32_t, std::unique_ptr<Budget>> budgets_;  // by number
    std::map<std::string, uint32_t> numbers_;              // by id
};

}  // namespace stockade::cmd
