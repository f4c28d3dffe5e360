// Any bytes as a message: no crash; what passes as canonical is what its parts say, and its name has
// a zone, a cost and a verdict.
#include <cstdlib>
#include <cstring>

#include "userspace/dns/knowledge.h"
#include "userspace/dns/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace stockade::dns;
    static const auto* const knowledge = new Knowledge(*MakeKnowledge({}));
    const absl::string_view message(reinterpret_cast<const char*>(data), size);
    AnswerSummary answer;
    const int answer_fault = ReadAnswer(message, &answer);
    sk_dns_query query;
    const int fault = sk_dns_check_query(data, static_cast<uint32_t>(size), SK_DNS_ALLOW_UPPER, &query);
    if (fault < 0 || fault > SK_DNS_FAULT_LAST) abort();
    if (fault != SK_DNS_OK) return 0;
    // The stricter reader's result is one of the wider one's.
    if (answer_fault != SK_DNS_OK ||
        memcmp(answer.question.name.wire, query.question.name.wire, query.question.name.len) != 0)
        abort();
    HostName name;
    ToHostName(query.question.name, &name);
    if (name.size + 2 != query.question.name.len && query.question.name.len != 1) abort();
    const sk_hash_keys keys = {3, 5, 7};
    Meter meter(*knowledge, MeterState(keys));
    const Query asked = {
        .name = name.lower(), .sent = name.sent(), .type = query.question.type, .time_ns = 1};
    const Decision first = meter.Ask(asked), second = meter.Ask(asked);
    if (first.settled > first.charged || second.spent < first.spent) abort();
    return 0;
}
