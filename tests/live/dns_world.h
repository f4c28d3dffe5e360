// For tests: a network namespace of the process's own with something that hears port 53, and sandboxes that ask it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bpf/wire/dns.h"
#include "tests/live/sandbox.h"
#include "userspace/dns/meter.h"

namespace stockade::live {

struct Asked {
    Result result;                 // output: '.' for each message that left, 'x' for each refused
    std::vector<sk_dns> records;   // one for each message that came to the hook
    uint64_t epoch_ns = 0;         // of the budget
};

// The name of a record from a place in it on; "?" where it does not end.
std::string NameAt(const sk_dns& record, size_t at);

class DnsWorld {
  public:
    // Null, and a test failure, where it cannot be had. The process moves into the namespace for good.
    static std::unique_ptr<DnsWorld> Create();

    struct Ask {
        sk_dns_mode mode = SK_DNS_OPEN;
        std::vector<std::string> exact = {}, below = {};  // names that the policy lists
        kernel::DnsBudgetRef budget = {};                 // number 0: one of its own
        uint32_t zone_budget = 256 * SK_DNS_BYTE, total_budget = 2048 * SK_DNS_BYTE;
        std::string trigger = "dns4";
        bool bound = true;   // the sandbox has DNS at all
        bool pinned = true;  // loopback is its resolver
    };
    // A sandbox that sends the messages one after the other.
    Asked Ask(const struct Ask& how, const std::vector<std::string>& messages);
    // The same by as many sandboxes as it takes for the kernel to tell of each message: it tells of a hundred
    // violations a second.
    Asked AskMany(const struct Ask& how, const std::vector<std::string>& messages);
    StatusOr<kernel::DnsBudgetRef> OpenBudget(const struct Ask& how);
    // Datagrams that came to port 53 since the last call.
    int Arrived();

    const dns::Knowledge& knowledge() const { return knowledge_; }
    // A canonical query.
    static std::string Query(const std::string& name, uint16_t type);

  private:
    explicit DnsWorld(dns::Knowledge knowledge) : knowledge_(std::move(knowledge)) {}
    Status Start();

    dns::Knowledge knowledge_;
    Fd four_, six_;
    uint64_t epoch_ns_ = 0;
};

}  // namespace stockade::live
