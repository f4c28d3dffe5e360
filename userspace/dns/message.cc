#include "userspace/dns/message.h"

#include <algorithm>

namespace stockade::dns {
namespace {

// MNAME and RNAME may be compressed; after them SERIAL, REFRESH, RETRY, EXPIRE, MINIMUM.
int ReadSoaMinimum(absl::string_view message, const sk_dns_record& record, uint32_t* minimum) {
    const uint8_t* bytes = MessageBytes(message);
    const uint32_t end = record.data_at + record.data_len;
    uint32_t at = record.data_at;
    sk_dns_name name;
    for (int i = 0; i < 2; ++i) {
        if (const int fault = sk_dns_read_name(bytes, end, &at, &name)) return fault;
    }
    if (end - at < 20) return SK_DNS_FAULT_RECORD_CUT;
    *minimum = sk_dns_ttl(sk_dns_u32(bytes + at + 16));
    return SK_DNS_OK;
}

int ReadRecords(absl::string_view message, const sk_dns_head& head, uint32_t at, AnswerSummary* out) {
    const uint8_t* bytes = MessageBytes(message);
    const auto len = static_cast<uint32_t>(message.size());
    uint32_t least = UINT32_MAX;
    sk_dns_record record;
    for (uint32_t i = 0; i < head.answers; ++i) {
        if (const int fault = sk_dns_read_record(bytes, len, &at, &record)) return fault;
        least = std::min(least, sk_dns_ttl(record.ttl));
        ++out->answers;
        if (record.type == SK_DNS_TYPE_TXT || record.type == SK_DNS_TYPE_NULL)
            out->downlink_bytes += record.data_len;
    }
    for (uint32_t i = 0; i < head.authorities; ++i) {
        if (const int fault = sk_dns_read_record(bytes, len, &at, &record)) return fault;
        if (head.answers || record.type != SK_DNS_TYPE_SOA) continue;
        uint32_t minimum;
        if (const int fault = ReadSoaMinimum(message, record, &minimum)) return fault;
        least = std::min({least, minimum, sk_dns_ttl(record.ttl)});
    }
    out->ttl_s = least == UINT32_MAX ? 0 : least;
    return SK_DNS_OK;
}

}  // namespace

absl::string_view FaultText(int fault) {
    switch (fault) {
        case SK_DNS_OK:
            return "canonical";
#define X(number, NAME, text) \
    case SK_DNS_FAULT_##NAME: \
        return text;
            SK_DNS_FAULTS(X)
#undef X
        default:
            return "?";
    }
}

absl::string_view FaultName(int fault) {
    switch (fault) {
#define X(number, NAME, text) \
    case SK_DNS_FAULT_##NAME: \
        return #NAME;
        SK_DNS_FAULTS(X)
#undef X
        default:
            return "OK";
    }
}

absl::string_view TypeName(uint32_t type) {
    switch (type) {
#define X(number, NAME) \
    case number:        \
        return #NAME;
        SK_DNS_TYPES(X)
#undef X
        default:
            return {};
    }
}

void ToHostName(const sk_dns_name& name, HostName* out) {
    out->size = 0;
    for (size_t at = 0; at + 1 < name.len;) {
        const size_t label = name.wire[at++];
        if (out->size > 0) {
            out->sent_bytes[out->size] = out->lower_bytes[out->size] = '.';
            ++out->size;
        }
        for (size_t i = 0; i < label; ++i, ++at, ++out->size) {
            out->sent_bytes[out->size] = static_cast<char>(name.wire[at]);
            out->lower_bytes[out->size] = static_cast<char>(sk_dns_lower(name.wire[at]));
        }
    }
}

int ReadAnswer(absl::string_view message, AnswerSummary* out) {
    *out = AnswerSummary();
    const auto len = static_cast<uint32_t>(std::min<size_t>(message.size(), UINT16_MAX));
    sk_dns_head head;
    uint32_t at = SK_DNS_HEAD_BYTES;
    if (const int fault = sk_dns_read_head(MessageBytes(message), len, &head)) return fault;
    if (head.questions != 1) return SK_DNS_FAULT_QUESTIONS;
    if (const int fault = sk_dns_read_question(MessageBytes(message), len, &at, &out->question)) return fault;
    out->id = head.id;
    out->rcode = head.flags & SK_DNS_RCODE;
    out->truncated = head.flags & SK_DNS_TC;
    return ReadRecords(message.substr(0, len), head, at, out);
}

}  // namespace stockade::dns
