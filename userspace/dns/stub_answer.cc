#include "userspace/dns/stub_answer.h"

#include <algorithm>
#include <utility>

#include "userspace/dns/message.h"

namespace stockade::dns {
namespace {

// A record of class IN; its data are still in the message.
struct Raw {
    std::string owner;  // lower case
    uint16_t type;
    uint32_t ttl_s;
    uint32_t data_at, data_end;
};

// Types whose data may hold compressed names (RFC 3597 section 4, of those that are still met): bytes
// before the names, their number, bytes behind them.
struct Layout {
    uint16_t type;
    uint8_t before, names, behind;
};
constexpr Layout kWithNames[] = {
    {SK_DNS_TYPE_NS, 0, 1, 0},  {SK_DNS_TYPE_CNAME, 0, 1, 0}, {SK_DNS_TYPE_SOA, 0, 2, 20},
    {SK_DNS_TYPE_PTR, 0, 1, 0}, {SK_DNS_TYPE_MX, 2, 1, 0},    {SK_DNS_TYPE_SRV, 6, 1, 0},
    {39 /* DNAME */, 0, 1, 0},
};

class Reader {
  public:
    Reader(absl::string_view message, uint32_t min_ttl_s)
        : bytes_(MessageBytes(message)), len_(static_cast<uint32_t>(message.size())), min_ttl_s_(min_ttl_s) {}

    bool ReadSection(uint32_t count, uint32_t* at, std::vector<Raw>* out) {
        sk_dns_record record;
        for (uint32_t i = 0; i < count; ++i) {
            if (sk_dns_read_record(bytes_, len_, at, &record) != SK_DNS_OK) return false;
            if (record.class_ != SK_DNS_CLASS_IN) continue;
            out->push_back({.owner = LowerWire(record.name),
                            .type = record.type,
                            .ttl_s = sk_dns_ttl(record.ttl),
                            .data_at = record.data_at,
                            .data_end = record.data_at + record.data_len});
        }
        return true;
    }

    // The data without compression. False: they are not what their type is, or too large together.
    bool ReadData(const Raw& raw, StubAnswer::Data* out) {
        out->ttl_s = std::clamp(raw.ttl_s, std::min(min_ttl_s_, kStubMaxTtl), kStubMaxTtl);
        const auto* layout = std::find_if(std::begin(kWithNames), std::end(kWithNames),
                                          [&](const Layout& row) { return row.type == raw.type; });
        if (layout == std::end(kWithNames)) {
            if (!IsPlain(raw)) return false;
            Append(raw.data_at, raw.data_end, &out->bytes);
        } else if (!ReadNames(raw, *layout, &out->bytes)) {
            return false;
        }
        // A small message of pointers can be large without them.
        expanded_ += out->bytes.size();
        return expanded_ <= kStubMessageBytes;
    }

  private:
    static bool IsPlain(const Raw& raw) {
        if (raw.type == SK_DNS_TYPE_A) return raw.data_end - raw.data_at == 4;
        if (raw.type == SK_DNS_TYPE_AAAA) return raw.data_end - raw.data_at == 16;
        return true;
    }

    bool ReadNames(const Raw& raw, const Layout& layout, std::string* out) const {
        uint32_t at = raw.data_at + layout.before;
        if (at > raw.data_end) return false;
        Append(raw.data_at, at, out);
        sk_dns_name name;
        for (int i = 0; i < layout.names; ++i) {
            if (sk_dns_read_name(bytes_, raw.data_end, &at, &name) != SK_DNS_OK) return false;
            out->append(reinterpret_cast<const char*>(name.wire), name.len);
        }
        if (raw.data_end - at != layout.behind) return false;
        Append(at, raw.data_end, out);
        return true;
    }

    void Append(uint32_t from, uint32_t to, std::string* out) const {
        out->append(reinterpret_cast<const char*>(bytes_) + from, to - from);
    }

    const uint8_t* bytes_;
    const uint32_t len_;
    const uint32_t min_ttl_s_;
    size_t expanded_ = 0;
};

std::string Lower(std::string wire) {
    std::transform(wire.begin(), wire.end(), wire.begin(),
                   [](char c) { return static_cast<char>(sk_dns_lower(c)); });
    return wire;
}

// Whether `name` is `zone` or below it.
bool IsIn(absl::string_view name, absl::string_view zone) {
    while (name.size() > zone.size()) name.remove_prefix(1 + static_cast<uint8_t>(name[0]));
    return name == zone;
}

// Follows the CNAMEs from *last to where records of `type` are, or to nothing; *last is then the chain's last
// name. False: broken.
bool Follow(Reader& reader, const std::vector<Raw>& section, uint16_t type, std::string* last,
            StubAnswer* out) {
    std::string& name = *last;
    std::vector<std::string> seen = {name};
    for (;;) {
        const Raw* alias = nullptr;
        for (const Raw& raw : section) {
            if (raw.owner != name) continue;
            if (raw.type == SK_DNS_TYPE_CNAME && !alias) alias = &raw;
            if (raw.type != type) continue;
            if (!reader.ReadData(raw, &out->records.emplace_back())) return false;
        }
        if (!out->records.empty() || !alias) return true;
        if (out->chain.size() == kStubChain) return false;
        if (!reader.ReadData(*alias, &out->chain.emplace_back())) return false;
        name = Lower(out->chain.back().bytes);
        if (std::find(seen.begin(), seen.end(), name) != seen.end()) return false;
        seen.push_back(name);
    }
}

bool ReadSoa(Reader& reader, const std::vector<Raw>& authority, absl::string_view name, uint32_t min_ttl_s,
             StubAnswer* out) {
    for (const Raw& raw : authority) {
        if (raw.type != SK_DNS_TYPE_SOA || !IsIn(name, raw.owner)) continue;
        StubAnswer::Soa soa{.owner = raw.owner, .data = {}};
        if (!reader.ReadData(raw, &soa.data)) return false;
        const auto* end = MessageBytes(soa.data.bytes) + soa.data.bytes.size();
        const uint32_t ttl_s = std::min(raw.ttl_s, sk_dns_ttl(sk_dns_u32(end - 4)));
        soa.data.ttl_s = std::clamp(ttl_s, std::min(min_ttl_s, kStubMaxNegativeTtl), kStubMaxNegativeTtl);
        out->soa = std::move(soa);
        return true;
    }
    return true;
}

bool SameQuestion(const sk_dns_question& one, const sk_dns_question& other) {
    return one.type == other.type && one.class_ == other.class_ &&
           LowerWire(one.name) == LowerWire(other.name);
}

}  // namespace

uint32_t StubAnswer::TtlSeconds() const {
    const bool positive = rcode == kStubNoError && !records.empty();
    if (!positive && !soa) return 0;
    uint32_t least = soa ? soa->data.ttl_s : kStubMaxTtl;
    for (const Data& data : chain) least = std::min(least, data.ttl_s);
    for (const Data& data : records) least = std::min(least, data.ttl_s);
    return least;
}

size_t StubAnswer::Bytes() const {
    size_t bytes = sizeof(*this) + (soa ? soa->owner.size() + soa->data.bytes.size() : 0);
    for (const Data& data : chain) bytes += sizeof(data) + data.bytes.size();
    for (const Data& data : records) bytes += sizeof(data) + data.bytes.size();
    return bytes;
}

StubReading ReadStubAnswer(absl::string_view message, const sk_dns_question& asked, uint16_t id,
                           uint32_t min_ttl_s, StubAnswer* out) {
    *out = StubAnswer();
    if (message.size() > kStubMessageBytes) return StubReading::kStray;
    const auto len = static_cast<uint32_t>(message.size());
    const uint8_t* bytes = MessageBytes(message);
    sk_dns_head head;
    sk_dns_question question;
    uint32_t at = SK_DNS_HEAD_BYTES;
    if (sk_dns_read_head(bytes, len, &head) != SK_DNS_OK || head.id != id || !(head.flags & SK_DNS_QR) ||
        head.flags & SK_DNS_OPCODE || head.questions != 1)
        return StubReading::kStray;
    if (sk_dns_read_question(bytes, len, &at, &question) != SK_DNS_OK || !SameQuestion(question, asked))
        return StubReading::kStray;
    if (head.flags & SK_DNS_TC) return StubReading::kTruncated;
    const uint8_t rcode = head.flags & SK_DNS_RCODE;
    if (rcode != kStubNoError && rcode != kStubNoSuchName) return StubReading::kFailure;

    Reader reader(message, min_ttl_s);
    std::vector<Raw> answers, authorities;
    std::string name = LowerWire(asked.name);
    if (!reader.ReadSection(head.answers, &at, &answers) ||
        !reader.ReadSection(head.authorities, &at, &authorities) ||
        !Follow(reader, answers, asked.type, &name, out) ||
        (out->records.empty() && !ReadSoa(reader, authorities, name, min_ttl_s, out))) {
        *out = StubAnswer();
        return StubReading::kBroken;
    }
    // A name that has records is there, whatever the header says.
    out->rcode = out->records.empty() ? rcode : static_cast<uint8_t>(kStubNoError);
    return StubReading::kAnswer;
}

}  // namespace stockade::dns
