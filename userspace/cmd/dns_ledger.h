// What sessions have spent of their DNS budgets, on disk: over a reboot, and for sessions that are idle.
//
//   SK_ASSIGN_OR_RETURN(DnsLedger ledger, DnsLedger::Open({.dir = "/var/lib/stockade/dns_budgets"}));
//   SK_RETURN_IF_ERROR(ledger.Write(budget));
//   SK_ASSIGN_OR_RETURN(std::optional<StoredDnsBudget> found, ledger.Read("session build-7"));
//
// One file for each session, named by the hash of its id. A file that is not as it was written is an error, and no
// fresh budget: who can make it unreadable would have the budget again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bpf/wire/hash.h"
#include "userspace/base/status.h"
#include "userspace/sandbox/state.pb.h"

namespace stockade::cmd {

// Zones are known to the kernel by keyed hashes: budgets on disk mean something only under the same keys.
// Nothing where `state_dir` has none yet.
StatusOr<std::optional<sk_hash_keys>> ReadHashKeys(const std::string& state_dir);
// Makes the directory. What is there already stays.
Status KeepHashKeys(const std::string& state_dir, const sk_hash_keys& keys);

// One thread.
class DnsLedger {
  public:
    struct Options {
        std::string dir;
        uint64_t keep_days =
            30;  // from its last write to the latest of any session; one that comes back later starts anew
        size_t max_budgets = 1 << 16;  // some 300 bytes each, 5 KiB at most
    };
    // Makes the directory, and forgets what is too old.
    static StatusOr<DnsLedger> Open(Options options);

    // kDataLoss, with the file's name, for one that was not written here, or not whole.
    StatusOr<std::optional<sandbox::v1::StoredDnsBudget>> Read(const std::string& id) const;
    // Synced. kResourceExhausted for a new one beyond max_budgets.
    Status Write(const sandbox::v1::StoredDnsBudget& budget);

  private:
    explicit DnsLedger(Options options) : options_(std::move(options)) {}
    std::string PathOf(const std::string& id) const;

    Options options_;
    size_t count_ = 0;
};

}  // namespace stockade::cmd
