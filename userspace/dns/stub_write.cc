// An answer as the client gets it, and as its owner is told of it.
#include <algorithm>

#include "userspace/dns/message.h"
#include "userspace/dns/stub_answer.h"

namespace stockade::dns {
namespace {

constexpr uint32_t kPointer = 0xc000;
constexpr uint16_t kSvcbIpv4Hint = 4, kSvcbIpv6Hint = 6;  // RFC 9460 section 14.3.2

uint32_t Left(const StubAnswer::Data& data, uint32_t age_s) {
    return data.ttl_s - std::min(data.ttl_s, age_s);
}

std::string WriteHead(const StubQuery& query, uint32_t flags, size_t answers, size_t authorities) {
    std::string out;
    AppendU16(&out, query.id);
    AppendU16(&out, SK_DNS_QR | SK_DNS_RA | (query.recursion_desired ? SK_DNS_RD : 0) | flags);
    AppendU16(&out, 1);
    AppendU16(&out, answers);
    AppendU16(&out, authorities);
    AppendU16(&out, query.has_opt ? 1 : 0);
    out.append(reinterpret_cast<const char*>(query.question.name.wire), query.question.name.len);
    AppendU16(&out, query.question.type);
    AppendU16(&out, query.question.class_);
    return out;
}

// Type, class, TTL, data. Returns where the data begin.
size_t AppendRecord(uint16_t type, const StubAnswer::Data& data, uint32_t age_s, std::string* out) {
    AppendU16(out, type);
    AppendU16(out, SK_DNS_CLASS_IN);
    AppendU32(out, Left(data, age_s));
    AppendU16(out, data.bytes.size());
    out->append(data.bytes);
    return out->size() - data.bytes.size();
}

void AppendOpt(const StubQuery& query, std::string* out) {
    if (!query.has_opt) return;
    out->push_back('\0');
    AppendU16(out, SK_DNS_TYPE_OPT);
    AppendU16(out, kStubUdpBytes);
    AppendU32(out, 0);
    AppendU16(out, 0);
}

void AddAddress(absl::string_view bytes, uint32_t ttl_s, StubAnswered* out) {
    StubAnswered::Pinned& pinned = out->addresses.emplace_back();
    pinned.address.family = bytes.size() == 4 ? 4 : 6;
    std::copy(bytes.begin(), bytes.end(), pinned.address.bytes.begin());
    pinned.ttl_s = ttl_s;
}

void AddAddresses(absl::string_view list, size_t size, uint32_t ttl_s, StubAnswered* out) {
    for (; list.size() >= size; list.remove_prefix(size)) AddAddress(list.substr(0, size), ttl_s, out);
}

// SvcPriority, TargetName, then (key, length, value) (RFC 9460 section 2.2). Hints behind the first fault are not
// told of: whoever takes them all the same finds their addresses closed.
void AddHints(absl::string_view data, uint32_t ttl_s, StubAnswered* out) {
    const uint8_t* bytes = MessageBytes(data);
    const auto len = static_cast<uint32_t>(data.size());
    uint32_t at = 2;
    sk_dns_name target;
    if (sk_dns_read_name(bytes, len, &at, &target) != SK_DNS_OK) return;
    while (len - at >= 4) {
        const uint32_t key = sk_dns_u16(bytes + at), size = sk_dns_u16(bytes + at + 2);
        at += 4;
        if (size > len - at) return;
        if (key == kSvcbIpv4Hint) AddAddresses(data.substr(at, size), 4, ttl_s, out);
        if (key == kSvcbIpv6Hint) AddAddresses(data.substr(at, size), 16, ttl_s, out);
        at += size;
    }
}

}  // namespace

bool IsTruncated(absl::string_view message) {
    sk_dns_head head;
    const auto len = static_cast<uint32_t>(std::min<size_t>(message.size(), kStubMessageBytes));
    return sk_dns_read_head(MessageBytes(message), len, &head) == SK_DNS_OK && head.flags & SK_DNS_TC;
}

std::string WriteStubError(const StubQuery& query, StubRcode rcode) {
    std::string out = WriteHead(query, rcode, 0, 0);
    AppendOpt(query, &out);
    return out;
}

std::string WriteStubAnswer(const StubQuery& query, const StubAnswer& answer, uint32_t age_s,
                            size_t max_bytes) {
    std::string out =
        WriteHead(query, answer.rcode, answer.chain.size() + answer.records.size(), answer.soa ? 1 : 0);
    // Each owner is where it was read first: the question's name, or the target of the CNAME before. All of these
    // are in the first 4 KiB, in reach of a pointer.
    size_t owner_at = SK_DNS_HEAD_BYTES;
    for (const StubAnswer::Data& data : answer.chain) {
        AppendU16(&out, kPointer | owner_at);
        owner_at = AppendRecord(SK_DNS_TYPE_CNAME, data, age_s, &out);
    }
    for (const StubAnswer::Data& data : answer.records) {
        AppendU16(&out, kPointer | owner_at);
        AppendRecord(query.question.type, data, age_s, &out);
        if (out.size() > max_bytes) break;
    }
    if (answer.soa) {
        out += answer.soa->owner;
        AppendRecord(SK_DNS_TYPE_SOA, answer.soa->data, age_s, &out);
    }
    AppendOpt(query, &out);
    if (out.size() <= max_bytes) return out;
    out = WriteHead(query, SK_DNS_TC | answer.rcode, 0, 0);
    AppendOpt(query, &out);
    return out;
}

StubAnswered DescribeStubAnswer(const StubQuery& query, const StubAnswer& answer, uint32_t age_s) {
    const uint16_t type = query.question.type;
    StubAnswered out;
    out.name = query.name;
    out.type = type;
    out.rcode = answer.rcode;
    out.ttl_s = answer.TtlSeconds() - std::min(answer.TtlSeconds(), age_s);
    out.names.push_back(query.name);
    for (const StubAnswer::Data& data : answer.chain) out.names.push_back(PrintedName(data.bytes));
    for (const StubAnswer::Data& data : answer.records) {
        if (type == SK_DNS_TYPE_A || type == SK_DNS_TYPE_AAAA)
            AddAddress(data.bytes, Left(data, age_s), &out);
        if (type == SK_DNS_TYPE_HTTPS || type == SK_DNS_TYPE_SVCB)
            AddHints(data.bytes, Left(data, age_s), &out);
        if (type == SK_DNS_TYPE_TXT || type == SK_DNS_TYPE_NULL) out.downlink_bytes += data.bytes.size();
    }
    return out;
}

}  // namespace stockade::dns
