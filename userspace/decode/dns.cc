#include "bpf/wire/dns.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "bpf/wire/dns_zone.h"
#include "userspace/decode/payload.h"
#include "userspace/model/text.h"

namespace stockade::decode {
namespace {

std::string TypeText(uint16_t type) {
    switch (type) {
#define X(number, NAME) \
    case number: return #NAME;
        SK_DNS_TYPES(X)
#undef X
        default: return absl::StrCat(type);
    }
}

absl::string_view FaultText(uint16_t fault) {
    switch (fault) {
#define X(number, NAME, text) \
    case number: return text;
        SK_DNS_FAULTS(X)
#undef X
        default: return "unknown";
    }
}

std::string AddressText(const sk_dns& record) {
    char text[INET6_ADDRSTRLEN];
    if (record.family != AF_INET && record.family != AF_INET6) return {};
    return inet_ntop(record.family, record.server, text, sizeof(text)) ? text : "";
}

// Labels from `at` on, with dots between them and in lower case. False where they do not end in the root's.
bool NameText(const sk_dns& record, size_t at, std::string* raw) {
    while (at < record.name_len) {
        const uint8_t len = record.name[at++];
        if (len == 0) return at == record.name_len;
        if (len > SK_DNS_LABEL_BYTES || at + len > record.name_len) return false;
        if (!raw->empty()) raw->push_back('.');
        for (size_t i = 0; i < len; ++i) raw->push_back(static_cast<char>(sk_dns_lower(record.name[at + i])));
        at += len;
    }
    return false;
}

uint32_t Bits(uint32_t charge) { return (charge + SK_DNS_BIT - 1) / SK_DNS_BIT; }
uint32_t Bytes(uint32_t charge) { return charge / SK_DNS_BYTE + (charge % SK_DNS_BYTE != 0); }

}  // namespace

Status DecodePayload(const sk_dns& record, Context& context, v1::Event* event) {
    if (record.name_len > SK_DNS_NAME_BYTES || record.zone_at > SK_DNS_NAME_BYTES) {
        return context.Fail(Reason::STRING, absl::StrCat("a DNS name of ", record.name_len, " bytes"));
    }
    v1::Dns* dns = event->mutable_dns();
    dns->set_server(AddressText(record));
    dns->set_quiet(record.quiet != 0);
    std::string name;
    // Of a query that is not canonical the name may be half read: then there is none.
    const bool whole = NameText(record, 0, &name);
    if (!whole && record.fault == 0) return context.Fail(Reason::STRING, "a DNS name without an end");
    if (whole) dns->set_escaped(model::AppendEscaped(name, dns->mutable_name()));
    if (record.fault != 0) {
        dns->set_fault(std::string(FaultText(record.fault)));
        return absl::OkStatus();
    }
    dns->set_type(TypeText(record.type));
    SK_ASSIGN_OR_RETURN(const absl::string_view tier, Word(model::DnsTiers(), record.tier, "tier", context));
    dns->set_tier(std::string(tier));
    if (record.limit == 0) return absl::OkStatus();
    std::string zone;
    (void)NameText(record, record.zone_at, &zone);
    dns->set_zone(zone);
    dns->set_charged_bits(Bits(record.charged[0]));
    dns->set_spent_bytes(Bytes(record.spent));
    dns->set_budget_bytes(Bytes(record.limit));
    return absl::OkStatus();
}

}  // namespace stockade::decode
