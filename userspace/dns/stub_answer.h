// An upstream's answer: taken apart into what belongs to the question, and built anew for the client.
// Nothing is relayed: records that do not follow from the question do not get past here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/dns/stub_query.h"
#include "userspace/dns/stub_types.h"

namespace stockade::dns {

// Names are bytes on the wire, without compression; data hold no compressed name either.
struct StubAnswer {
    struct Data {
        std::string bytes;
        uint32_t ttl_s = 0;
    };
    struct Soa {
        std::string owner;
        Data data;
    };
    uint8_t rcode = kStubServerFailure;
    std::vector<Data> chain;    // targets of CNAMEs, from the question's name on
    std::vector<Data> records;  // of the asked type, at the chain's end
    std::optional<Soa> soa;     // of a negative answer

    // For how long it may be kept: the least TTL; 0 for SERVFAIL and for a negative answer without SOA.
    uint32_t TtlSeconds() const;
    // About what it takes in memory.
    size_t Bytes() const;
};

enum class StubReading {
    kAnswer,     // NOERROR or NXDOMAIN
    kStray,      // no answer to this question: another id, another name or type, no response at all
    kTruncated,  // ask again over TCP
    kFailure,    // SERVFAIL and its like
    kBroken,     // cannot be read, a loop, or a chain of more than kStubChain
};

// `asked` in any case. TTLs come out between `min_ttl_s` and kStubMaxTtl.
StubReading ReadStubAnswer(absl::string_view message, const sk_dns_question& asked, uint16_t id,
                           uint32_t min_ttl_s, StubAnswer* out);

// For the client: its question as it sent it, TTLs less `age_s`. Of more than `max_bytes` there are only
// the question and TC.
std::string WriteStubAnswer(const StubQuery& query, const StubAnswer& answer, uint32_t age_s,
                            size_t max_bytes);
bool IsTruncated(absl::string_view message);
std::string WriteStubError(const StubQuery& query, StubRcode rcode);

// What the client's owner is told; `tcp` and `from_cache` are left to the caller.
StubAnswered DescribeStubAnswer(const StubQuery& query, const StubAnswer& answer, uint32_t age_s);

}  // namespace stockade::dns
