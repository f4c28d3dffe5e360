// What user space asks of a DNS message, over the parser in bpf/wire/dns_message.h. Nothing allocates.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "bpf/wire/dns_message.h"

namespace stockade::dns {

absl::string_view FaultText(int fault);  // "class other than IN"
absl::string_view FaultName(int fault);  // "CLASS"
// "AAAA"; empty for a type without a name here.
absl::string_view TypeName(uint32_t type);

// A name as people write it, without a final dot; empty for the root. As sent, and in lower case.
// Bytes of labels stay as they are, dots among them: look at sk_dns_name::odd before trusting one.
struct HostName {
    std::array<char, SK_DNS_NAME_BYTES + 1> sent_bytes, lower_bytes;
    size_t size = 0;

    absl::string_view sent() const { return {sent_bytes.data(), size}; }
    absl::string_view lower() const { return {lower_bytes.data(), size}; }
};
void ToHostName(const sk_dns_name& name, HostName* out);

// The parts of an answer that a meter hears.
struct AnswerSummary {
    sk_dns_question question;
    uint16_t id = 0;
    uint8_t rcode = 0;
    bool truncated = false;
    uint32_t ttl_s = 0;  // least TTL of the answers; without answers that of the SOA (RFC 2308); 0: none
    uint32_t answers = 0;
    uint32_t downlink_bytes = 0;  // data of TXT and NULL records in the answer section
};

// A fault of bpf/wire/dns_message.h, or SK_DNS_OK. Messages without a question are faults: they answer nobody.
int ReadAnswer(absl::string_view message, AnswerSummary* out);

inline const uint8_t* MessageBytes(absl::string_view message) {
    return reinterpret_cast<const uint8_t*>(message.data());
}

}  // namespace stockade::dns
