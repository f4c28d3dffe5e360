// Queries, as the stub reads them from a client and writes them to an upstream.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "bpf/wire/dns_message.h"
#include "userspace/dns/stub_types.h"

namespace stockade::dns {

// A canonical query.
struct StubQuery {
    sk_dns_question question{};  // in the client's case
    std::string name;            // lower case, no final dot
    uint16_t id = 0;
    bool recursion_desired = false;
    bool has_opt = false;
    size_t udp_bytes = kStubPlainUdpBytes;  // that an answer over UDP may have
};

// SK_DNS_OK, or why these bytes are no canonical query.
int ReadStubQuery(absl::string_view message, StubQuery* out);
// A FORMERR for what is no canonical query. Empty for what must not be answered: bytes without a header,
// and responses, or two stubs could answer each other for ever.
std::string WriteFormError(absl::string_view message);
// Types that ask for a transfer, a transaction or all there is (RFC 6895 section 3.1), and OPT.
bool IsMetaType(uint16_t type);

// The question in lower case with an EDNS record of our own; nothing of the client's bytes but the name.
std::string WriteUpstreamQuery(const sk_dns_question& question, uint16_t id);

// A name's bytes on the wire, in lower case.
std::string LowerWire(const sk_dns_name& name);
// As StubAnswered::names: lower case, with \DDD for what host names do not have.
std::string PrintedName(absl::string_view wire);

void AppendU16(std::string* out, uint32_t value);
void AppendU32(std::string* out, uint32_t value);

}  // namespace stockade::dns
