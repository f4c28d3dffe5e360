#include "tests/dns/dns_wire.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/dns/message.h"
#include "userspace/dns/stub_query.h"

namespace stockade {
namespace {

std::string Bytes(const std::vector<WireRecord>& records) {
    std::string out;
    for (const WireRecord& record : records) {
        absl::StrAppend(&out, record.owner, U16(record.type), U16(record.record_class), U32(record.ttl_s),
                        U16(record.data.size()), record.data);
    }
    return out;
}

}  // namespace

std::string U16(uint32_t value) { return {static_cast<char>(value >> 8), static_cast<char>(value)}; }

std::string U32(uint32_t value) { return U16(value >> 16) + U16(value & 0xffff); }

std::string WireName(absl::string_view name) {
    std::string out;
    if (!name.empty()) {
        for (const absl::string_view label : absl::StrSplit(name, '.')) {
            out.push_back(static_cast<char>(label.size()));
            absl::StrAppend(&out, label);
        }
    }
    out.push_back('\0');
    return out;
}

std::string WireQuery(uint16_t id, absl::string_view name, uint16_t type, const std::string& opt) {
    return absl::StrCat(U16(id), U16(0x0100), U16(1), U16(0), U16(0), U16(opt.empty() ? 0 : 1),
                        WireName(name), U16(type), U16(kClassIn), opt);
}

std::string WireOpt(uint16_t udp_bytes, const std::string& options) {
    return absl::StrCat(std::string(1, '\0'), U16(41), U16(udp_bytes), U32(0), U16(options.size()), options);
}

std::string WireAnswer::Bytes() const {
    return absl::StrCat(U16(id), U16(flags), U16(1), U16(answers.size()), U16(authorities.size()), U16(0),
                        WireName(name), U16(type), U16(kClassIn), stockade::Bytes(answers),
                        stockade::Bytes(authorities));
}

ReadMessage ReadWire(absl::string_view message) {
    ReadMessage out;
    const uint8_t* bytes = dns::MessageBytes(message);
    const auto len = static_cast<uint32_t>(message.size());
    sk_dns_head head;
    sk_dns_question question{};
    uint32_t at = SK_DNS_HEAD_BYTES;
    if (sk_dns_read_head(bytes, len, &head) != SK_DNS_OK) return out;
    out.id = head.id;
    out.flags = head.flags;
    out.whole = true;
    for (int i = 0; i < head.questions && out.whole; ++i) {
        out.whole = sk_dns_read_question(bytes, len, &at, &question) == SK_DNS_OK;
        out.type = question.type;
        out.name.assign(reinterpret_cast<const char*>(question.name.wire), question.name.len);
    }
    const auto read = [&](int count, std::vector<ReadMessage::Record>* records) {
        sk_dns_record record;
        for (int i = 0; i < count && out.whole; ++i) {
            out.whole = sk_dns_read_record(bytes, len, &at, &record) == SK_DNS_OK;
            if (!out.whole) return;
            records->push_back({.owner = dns::PrintedName(dns::LowerWire(record.name)),
                                .type = record.type,
                                .ttl_s = record.ttl,
                                .data = std::string(message.substr(record.data_at, record.data_len))});
        }
    };
    read(head.answers, &out.answers);
    read(head.authorities, &out.authorities);
    read(head.additionals, &out.additionals);
    out.whole = out.whole && at == len;
    return out;
}

WireRecord ARecord(const std::string& owner, const std::string& four_bytes, uint32_t ttl_s) {
    return {.owner = owner, .type = 1, .ttl_s = ttl_s, .data = four_bytes};
}

WireRecord Cname(absl::string_view owner, absl::string_view target, uint32_t ttl_s) {
    return {.owner = WireName(owner), .type = 5, .ttl_s = ttl_s, .data = WireName(target)};
}

WireRecord Soa(absl::string_view zone, uint32_t ttl_s, uint32_t minimum) {
    return {.owner = WireName(zone),
            .type = 6,
            .ttl_s = ttl_s,
            .data = WireName("ns." + std::string(zone)) + WireName("admin." + std::string(zone)) + U32(1) +
                    U32(2) + U32(3) + U32(4) + U32(minimum)};
}

}  // namespace stockade
