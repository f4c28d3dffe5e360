// Any bytes as an upstream's answer: no crash; what comes out for the client is a whole message within its
// bound, and reads again as the same answer.
// BUILT_FROM message.cc stub_query.cc stub_answer.cc stub_write.cc
#include <cstdlib>

#include "userspace/dns/message.h"
#include "userspace/dns/stub_answer.h"

namespace {

using namespace stockade::dns;

void CheckWhole(const std::string& message) {
    const uint8_t* bytes = MessageBytes(message);
    const auto len = static_cast<uint32_t>(message.size());
    sk_dns_head head;
    sk_dns_question question;
    sk_dns_record record;
    uint32_t at = SK_DNS_HEAD_BYTES;
    if (sk_dns_read_head(bytes, len, &head) || head.questions != 1) abort();
    if (sk_dns_read_question(bytes, len, &at, &question)) abort();
    for (int i = head.answers + head.authorities + head.additionals; i > 0; --i) {
        if (sk_dns_read_record(bytes, len, &at, &record)) abort();
    }
    if (at != len) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const absl::string_view message(reinterpret_cast<const char*>(data), size);
    StubQuery query;
    query.has_opt = size % 2;
    uint32_t at = SK_DNS_HEAD_BYTES;
    const auto len = static_cast<uint32_t>(size);
    if (len < SK_DNS_HEAD_BYTES || sk_dns_read_question(data, len, &at, &query.question)) return 0;
    query.name = PrintedName(LowerWire(query.question.name));
    StubAnswer answer;
    const uint16_t id = sk_dns_u16(data);
    if (ReadStubAnswer(message, query.question, id, 30, &answer) != StubReading::kAnswer) return 0;
    const StubAnswered told = DescribeStubAnswer(query, answer, 5);
    if (told.names.size() != answer.chain.size() + 1 || told.names.size() > kStubChain + 1) abort();
    for (const size_t limit : {kStubPlainUdpBytes, kStubUdpBytes, kStubMessageBytes}) {
        const std::string out = WriteStubAnswer(query, answer, 5, limit);
        CheckWhole(out);
        if (out.size() > limit) abort();
    }
    query.id = id;
    const std::string out = WriteStubAnswer(query, answer, 0, kStubMessageBytes);
    if (IsTruncated(out)) return 0;
    StubAnswer again;
    if (ReadStubAnswer(out, query.question, id, 30, &again) != StubReading::kAnswer) abort();
    if (again.rcode != answer.rcode || again.records.size() != answer.records.size() ||
        again.chain.size() != answer.chain.size() || again.soa.has_value() != answer.soa.has_value() ||
        again.TtlSeconds() != answer.TtlSeconds())
        abort();
    return 0;
}
