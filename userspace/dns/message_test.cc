#include "userspace/dns/message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stockade::dns {
namespace {

std::string U16(uint32_t value) { return {static_cast<char>(value >> 8), static_cast<char>(value & 0xff)}; }

std::string Labels(absl::string_view name) {
    std::string out;
    if (!name.empty()) {
        for (absl::string_view label : absl::StrSplit(name, '.'))
            absl::StrAppend(&out, std::string(1, static_cast<char>(label.size())), label);
    }
    return out + std::string(1, '\0');
}

// A query as clients send it; each test changes one thing.
struct Message {
    uint32_t flags = SK_DNS_RD, questions = 1, answers = 0, authorities = 0, additionals = 0;
    std::string name = Labels("www.example.com");
    uint32_t type = 1, class_ = 1;
    std::string tail = "";

    std::string Bytes() const {
        return absl::StrCat(U16(0x1234), U16(flags), U16(questions), U16(answers), U16(authorities),
                            U16(additionals), name, U16(type), U16(class_), tail);
    }
};

int CheckBytes(const std::string& bytes, uint32_t allow = 0) {
    sk_dns_query query;
    return sk_dns_check_query(MessageBytes(bytes), static_cast<uint32_t>(bytes.size()), allow, &query);
}
int Check(const Message& message, uint32_t allow = 0) { return CheckBytes(message.Bytes(), allow); }

std::string Opt(const std::string& options, uint32_t flags = 0) {
    return absl::StrCat(std::string(1, '\0'), U16(41), U16(1232), U16(0), U16(flags),
                        U16(static_cast<uint32_t>(options.size())), options);
}
std::string Option(uint32_t code, const std::string& data) {
    return absl::StrCat(U16(code), U16(static_cast<uint32_t>(data.size())), data);
}

TEST(Canonical, AnOrdinaryQueryPasses) {
    const std::string bytes = Message().Bytes();
    sk_dns_query query;
    ASSERT_EQ(sk_dns_check_query(MessageBytes(bytes), static_cast<uint32_t>(bytes.size()), 0, &query),
              SK_DNS_OK);
    HostName name;
    ToHostName(query.question.name, &name);
    EXPECT_EQ(name.lower(), "www.example.com");
    EXPECT_EQ(query.id, 0x1234);
    EXPECT_EQ(query.question.type, SK_DNS_TYPE_A);
    EXPECT_FALSE(query.has_opt);
}

TEST(Canonical, BitsThatAClientMaySetPass) {
    EXPECT_EQ(Check({.flags = SK_DNS_RD | SK_DNS_AD | SK_DNS_CD}), SK_DNS_OK);
    EXPECT_EQ(Check({.flags = 0}), SK_DNS_OK);
}

TEST(Canonical, EachFaultOfTheHeaderIsNamed) {
    EXPECT_EQ(CheckBytes(std::string(11, '\0')), SK_DNS_FAULT_SHORT);
    EXPECT_EQ(CheckBytes(std::string(513, '\0')), SK_DNS_FAULT_LONG);
    EXPECT_EQ(Check({.flags = SK_DNS_QR}), SK_DNS_FAULT_RESPONSE);
    EXPECT_EQ(Check({.flags = 5 << 11}), SK_DNS_FAULT_OPCODE);
    for (const uint32_t bit : {SK_DNS_AA, SK_DNS_TC, SK_DNS_RA, SK_DNS_Z, 1})
        EXPECT_EQ(Check({.flags = bit}), SK_DNS_FAULT_FLAGS) << bit;
    EXPECT_EQ(Check({.questions = 0}), SK_DNS_FAULT_QUESTIONS);
    EXPECT_EQ(Check({.questions = 2}), SK_DNS_FAULT_QUESTIONS);
    EXPECT_EQ(Check({.answers = 1}), SK_DNS_FAULT_ANSWERS);
    EXPECT_EQ(Check({.authorities = 1}), SK_DNS_FAULT_AUTHORITIES);
    EXPECT_EQ(Check({.additionals = 2}), SK_DNS_FAULT_ADDITIONALS);
}

TEST(Canonical, EachFaultOfTheQuestionIsNamed) {
    const std::string whole = Message().Bytes();
    EXPECT_EQ(CheckBytes(whole.substr(0, whole.size() - 1)), SK_DNS_FAULT_QUESTION_CUT);
    EXPECT_EQ(Check({.name = std::string("\x3f", 1)}), SK_DNS_FAULT_NAME_CUT);
    EXPECT_EQ(Check({.name = std::string("\xc0\x0c", 2)}), SK_DNS_FAULT_POINTER);
    EXPECT_EQ(Check({.name = std::string("\1a\xc0\x00", 4)}), SK_DNS_FAULT_POINTER);
    EXPECT_EQ(Check({.name = std::string("\x41", 1) + std::string(65, 'a')}), SK_DNS_FAULT_LABEL_TYPE);
    const std::string label = std::string(1, '\x3f') + std::string(63, 'a');
    EXPECT_EQ(Check({.name = absl::StrCat(label, label, label, label, std::string(1, '\0'))}),
              SK_DNS_FAULT_NAME_LONG);
    for (const char c : {'\0', '.', ' ', '*', '/', '\x80', '\xff'})
        EXPECT_EQ(Check({.name = absl::StrCat("\2a", std::string(1, c), Labels("com"))}),
                  SK_DNS_FAULT_CHARACTER)
            << int{c};
    EXPECT_EQ(Check({.name = Labels("wWw.example.com")}), SK_DNS_FAULT_UPPER_CASE);
    EXPECT_EQ(Check({.name = Labels("wWw.example.com")}, SK_DNS_ALLOW_UPPER), SK_DNS_OK);
    EXPECT_EQ(Check({.class_ = 3}), SK_DNS_FAULT_CLASS);
    EXPECT_EQ(Check({.tail = "x"}), SK_DNS_FAULT_TRAILING);
}

TEST(Canonical, TheLongestNameStillPasses) {
    const std::string label = std::string(1, '\x3f') + std::string(63, 'a');
    const std::string name =
        absl::StrCat(label, label, label, "\x3d", std::string(61, 'a'), std::string(1, '\0'));
    ASSERT_EQ(name.size(), 255u);
    EXPECT_EQ(Check({.name = name}), SK_DNS_OK);
    EXPECT_EQ(Check({.name = Labels("")}), SK_DNS_OK);
    EXPECT_EQ(Check({.name = Labels("_dmarc.a-b.c_d")}), SK_DNS_OK);
}

TEST(Canonical, OptPassesWithoutOptionsOrWithHarmlessOnes) {
    const auto with = [](const std::string& opt) { return Check({.additionals = 1, .tail = opt}); };
    EXPECT_EQ(with(Opt("")), SK_DNS_OK);
    EXPECT_EQ(with(Opt("", 0x8000)), SK_DNS_OK);
    EXPECT_EQ(with(Opt(Option(10, std::string(8, 'c')))), SK_DNS_OK);
    EXPECT_EQ(with(Opt(absl::StrCat(Option(3, ""), Option(10, std::string(24, 'c')), Option(11, "")))),
              SK_DNS_OK);

    EXPECT_EQ(with(Opt(Option(8, std::string("\0\1\0\0", 4)))), SK_DNS_FAULT_OPT_OPTION);
    EXPECT_EQ(with(Opt(Option(12, std::string(8, '\0')))), SK_DNS_FAULT_OPT_OPTION);
    EXPECT_EQ(with(Opt(Option(3, "x"))), SK_DNS_FAULT_OPT_OPTION);
    EXPECT_EQ(with(Opt(Option(10, "12345"))), SK_DNS_FAULT_OPT_OPTION);
    EXPECT_EQ(with(Opt(absl::StrCat(Option(3, ""), Option(3, "")))), SK_DNS_FAULT_OPT_TWICE);
    EXPECT_EQ(with(Opt(absl::StrCat(U16(10), U16(9), "12345678"))), SK_DNS_FAULT_OPT_CUT);
    EXPECT_EQ(with(Opt("", 1)), SK_DNS_FAULT_OPT_FORM);
    EXPECT_EQ(with(Opt("").substr(0, 9)), SK_DNS_FAULT_RECORD_CUT);
    EXPECT_EQ(with(Opt("") + "x"), SK_DNS_FAULT_TRAILING);
    EXPECT_EQ(with("\1" + Opt("")), SK_DNS_FAULT_OPT_FORM);
    std::string other = Opt("");
    other[2] = 16;
    EXPECT_EQ(with(other), SK_DNS_FAULT_NOT_OPT);
}

TEST(Names, PointersGoBackOnlyAndEnd) {
    // "com" at 0, then "a" and a pointer to it, then one to that.
    const std::string bytes = std::string("\3com\0\1a\xc0\x00\1b\xc0\x05", 13);
    sk_dns_name name;
    uint32_t at = 9;
    ASSERT_EQ(sk_dns_read_name(MessageBytes(bytes), 13, &at, &name), SK_DNS_OK);
    HostName text;
    ToHostName(name, &text);
    EXPECT_EQ(text.lower(), "b.a.com");
    EXPECT_EQ(at, 13u);
    EXPECT_EQ(name.hops, 2);

    const std::string self("\xc0\x00", 2);
    at = 0;
    EXPECT_EQ(sk_dns_read_name(MessageBytes(self), 2, &at, &name), SK_DNS_FAULT_POINTER_FORWARD);
}

std::string Record(uint32_t type, uint32_t ttl, const std::string& data) {
    return absl::StrCat(std::string("\xc0\x0c", 2), U16(type), U16(1), U16(ttl >> 16), U16(ttl & 0xffff),
                        U16(static_cast<uint32_t>(data.size())), data);
}

TEST(Answers, TheLeastTtlAndTheBytesOfTextAreTold) {
    AnswerSummary summary;
    const Message message = {.flags = SK_DNS_QR,
                             .answers = 3,
                             .tail = absl::StrCat(Record(5, 300, "\1x" + std::string("\xc0\x0c", 2)),
                                                  Record(16, 60, "\4text"), Record(1, 90, "1234"))};
    ASSERT_EQ(ReadAnswer(message.Bytes(), &summary), SK_DNS_OK);
    EXPECT_EQ(summary.ttl_s, 60u);
    EXPECT_EQ(summary.downlink_bytes, 5u);
    EXPECT_EQ(summary.answers, 3u);
}

TEST(Answers, ANegativeAnswerLivesAsItsSoaSays) {
    const std::string soa =
        absl::StrCat(std::string("\xc0\x0c\xc0\x0c", 4), std::string(16, '\0'), U16(0), U16(40));
    AnswerSummary summary;
    ASSERT_EQ(
        ReadAnswer(Message{.flags = SK_DNS_QR | 3, .authorities = 1, .tail = Record(6, 900, soa)}.Bytes(),
                   &summary),
        SK_DNS_OK);
    EXPECT_EQ(summary.ttl_s, 40u);
    EXPECT_EQ(summary.rcode, 3);
    // A TTL with its top bit set is none.
    ASSERT_EQ(
        ReadAnswer(Message{.flags = SK_DNS_QR, .answers = 1, .tail = Record(1, 0x80000005, "1234")}.Bytes(),
                   &summary),
        SK_DNS_OK);
    EXPECT_EQ(summary.ttl_s, 0u);
    EXPECT_EQ(
        ReadAnswer(Message{.flags = SK_DNS_QR, .answers = 2, .tail = Record(1, 5, "1234")}.Bytes(), &summary),
        SK_DNS_FAULT_NAME_CUT);
}

// The kernel looks at eight characters at once; each must count, wherever it stands.
TEST(Names, EightCharactersAreWhatEachOfThemIs) {
    for (uint32_t length = 1; length <= SK_DNS_LABEL_BYTES; ++length) {
        for (uint32_t at = 0; at < length; ++at) {
            for (uint32_t c = 0; c < 256; ++c) {
                uint8_t label[64];
                std::memset(label, 0xff, sizeof(label));  // what lies behind it does not count
                std::memset(label, at % 2 ? '_' : 'z', length);
                label[at] = static_cast<uint8_t>(c);
                const bool lower = sk_dns_is_plain(label[at]) && !sk_dns_is_upper(label[at]);
                ASSERT_EQ(sk_dns_is_lower_label(label, length) != 0, lower) << length << " " << at << " " << c;
            }
        }
    }
}

}  // namespace
}  // namespace stockade::dns
