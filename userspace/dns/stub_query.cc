#include "userspace/dns/stub_query.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "userspace/dns/message.h"

namespace stockade::dns {

void AppendU16(std::string* out, uint32_t value) {
    out->push_back(static_cast<char>(value >> 8));
    out->push_back(static_cast<char>(value));
}

void AppendU32(std::string* out, uint32_t value) {
    AppendU16(out, value >> 16);
    AppendU16(out, value & 0xffff);
}

std::string LowerWire(const sk_dns_name& name) {
    std::string out(name.len, '\0');
    // Length bytes are below 'A', so they stay as they are.
    std::transform(name.wire, name.wire + name.len, out.begin(),
                   [](uint8_t byte) { return static_cast<char>(sk_dns_lower(byte)); });
    return out;
}

std::string PrintedName(absl::string_view wire) {
    std::string out;
    for (size_t at = 0; at < wire.size() && wire[at] != 0;) {
        const auto label = static_cast<uint8_t>(wire[at++]);
        if (!out.empty()) out.push_back('.');
        for (const char c : wire.substr(at, label)) {
            const uint8_t byte = sk_dns_lower(static_cast<uint8_t>(c));
            if (sk_dns_is_plain(byte))
                out.push_back(static_cast<char>(byte));
            else
                absl::StrAppendFormat(&out, "\\%03d", byte);
        }
        at += label;
    }
    return out;
}

int ReadStubQuery(absl::string_view message, StubQuery* out) {
    *out = StubQuery();
    const uint8_t* bytes = MessageBytes(message);
    sk_dns_query query{};
    const auto len = static_cast<uint32_t>(std::min<size_t>(message.size(), SK_DNS_QUERY_BYTES + 1));
    if (const int fault = sk_dns_check_query(bytes, len, SK_DNS_ALLOW_UPPER, &query)) return fault;
    out->question = query.question;
    out->name = PrintedName(LowerWire(query.question.name));
    out->id = query.id;
    out->recursion_desired = sk_dns_u16(bytes + 2) & SK_DNS_RD;
    out->has_opt = query.has_opt;
    if (query.has_opt) {
        // A canonical query's OPT stands right behind type and class: the root's name, type, payload size.
        const uint32_t opt_at = SK_DNS_HEAD_BYTES + query.question.name.len + 4;
        out->udp_bytes =
            std::clamp<size_t>(sk_dns_u16(bytes + opt_at + 3), kStubPlainUdpBytes, kStubUdpBytes);
    }
    return SK_DNS_OK;
}

std::string WriteFormError(absl::string_view message) {
    sk_dns_head head;
    const auto len = static_cast<uint32_t>(std::min<size_t>(message.size(), SK_DNS_HEAD_BYTES));
    if (sk_dns_read_head(MessageBytes(message), len, &head) != SK_DNS_OK || head.flags & SK_DNS_QR) return {};
    std::string out;
    AppendU16(&out, head.id);
    AppendU16(&out, SK_DNS_QR | SK_DNS_RA | (head.flags & (SK_DNS_OPCODE | SK_DNS_RD)) | kStubFormError);
    out.append(8, '\0');
    return out;
}

bool IsMetaType(uint16_t type) {
    return type == 0 || type == SK_DNS_TYPE_OPT || (type >= 128 && type <= SK_DNS_TYPE_ANY);
}

std::string WriteUpstreamQuery(const sk_dns_question& question, uint16_t id) {
    std::string out;
    AppendU16(&out, id);
    AppendU16(&out, SK_DNS_RD);
    AppendU16(&out, 1);  // questions
    AppendU32(&out, 0);  // answers, authorities
    AppendU16(&out, 1);  // additionals: the OPT record
    out += LowerWire(question.name);
    AppendU16(&out, question.type);
    AppendU16(&out, SK_DNS_CLASS_IN);
    out.push_back('\0');
    AppendU16(&out, SK_DNS_TYPE_OPT);
    AppendU16(&out, kStubUdpBytes);
    AppendU32(&out, 0);  // extended rcode, version, flags: no DO, the stub does not validate
    AppendU16(&out, 0);
    return out;
}

}  // namespace stockade::dns
