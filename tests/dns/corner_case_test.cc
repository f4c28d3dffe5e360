// Every capture of corner-cases/ through the parser: no crash (also under ASan), and only what is
// canonical passes as such.
#include <gtest/gtest.h>

#include <map>

#include "tests/dns/captures.h"
#include "userspace/dns/message.h"

namespace stockade {
namespace {

// What a canonical query is, checked again in another way than the parser's: built from the parts.
std::string Rebuilt(const sk_dns_query& query, const std::string& message) {
    std::string out = message.substr(0, 12);
    out.append(reinterpret_cast<const char*>(query.question.name.wire), query.question.name.len);
    out.push_back(static_cast<char>(query.question.type >> 8));
    out.push_back(static_cast<char>(query.question.type & 0xff));
    out += std::string("\0\1", 2);
    return out;
}

int Check(const std::string& message, sk_dns_query* query) {
    return sk_dns_check_query(dns::MessageBytes(message), static_cast<uint32_t>(message.size()),
                              SK_DNS_ALLOW_UPPER, query);
}

TEST(CornerCases, EachMessageIsCanonicalOrHasAReason) {
    std::map<std::string, int> reasons;
    for (const char* folder : {"corner-cases", "tunnel-captures"}) {
        for (const std::string& file : CapturesIn(folder)) {
            const Status done = ForEachMessage(file, [&](const CapturedMessage& message) {
                sk_dns_query query;
                const int fault = Check(message.bytes, &query);
                ASSERT_GE(fault, 0) << message.where;
                ASSERT_LE(fault, SK_DNS_FAULT_LAST) << message.where;
                ++reasons[std::string(dns::FaultName(fault))];
                if (fault != SK_DNS_OK) return;
                const std::string rebuilt = Rebuilt(query, message.bytes);
                EXPECT_EQ(message.bytes.substr(0, rebuilt.size()), rebuilt) << message.where;
                EXPECT_TRUE(query.has_opt || message.bytes.size() == rebuilt.size()) << message.where;
                dns::AnswerSummary summary;
                EXPECT_EQ(dns::ReadAnswer(message.bytes, &summary), SK_DNS_OK) << message.where;
            });
            ASSERT_TRUE(done.ok()) << file << ": " << done;
        }
    }
    for (const auto& [reason, count] : reasons) std::cout << "  " << reason << " " << count << "\n";
    // The reasons that the captures were made for.
    for (const char* reason : {"OK", "RESPONSE", "OPCODE", "FLAGS", "QUESTIONS", "ANSWERS", "ADDITIONALS",
                               "NAME_CUT", "CHARACTER", "POINTER", "OPT_OPTION"})
        EXPECT_GT(reasons[reason], 0) << reason;
}

TEST(CornerCases, EveryPrefixOfEveryMessageIsReadWithoutHarm) {
    size_t read = 0;
    for (const std::string& file : CapturesIn("corner-cases")) {
        const Status done = ForEachMessage(file, [&](const CapturedMessage& message) {
            ++read;
            sk_dns_query whole;
            const bool canonical = Check(message.bytes, &whole) == SK_DNS_OK;
            for (size_t len = 0; len < std::min<size_t>(message.bytes.size(), 300); ++len) {
                // A copy of just that size: reading beyond it is an error under ASan.
                const std::string prefix = message.bytes.substr(0, len);
                sk_dns_query query;
                dns::AnswerSummary summary;
                const int fault = Check(prefix, &query);
                (void)dns::ReadAnswer(prefix, &summary);
                // A query that lost its end is none.
                EXPECT_TRUE(!canonical || fault != SK_DNS_OK) << message.where << " cut to " << len;
            }
        });
        EXPECT_TRUE(done.ok()) << file << ": " << done;
    }
    EXPECT_GT(read, 100u);
}

}  // namespace
}  // namespace stockade
