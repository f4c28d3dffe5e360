// The kernel's reading of answers beside a plain one, over recorded messages and what becomes of them when bytes change.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "bpf/wire/dns_scope.h"
#include "tests/dns/captures.h"
#include "tests/dns/dns_wire.h"
#include "tests/live/answer_world.h"
#include "userspace/dns/message.h"
#include "userspace/dns/stub_query.h"

namespace stockade::live {
namespace {

// As the kernel folds it: what is no letter changes, too, and both sides of a comparison alike.
std::string Folded(const sk_dns_name& name) {
    std::string out(reinterpret_cast<const char*>(name.wire), name.len);
    for (size_t at = 0; at < out.size() && out[at] != 0; at += static_cast<uint8_t>(out[at]) + 1u) {
        for (size_t i = 1; i <= static_cast<uint8_t>(out[at]); i++)
            out[at + i] = static_cast<char>(out[at + i] | 0x20);
    }
    return out;
}

// What should become of a message that comes to a socket which asked that question.
class Reference {
  public:
    explicit Reference(const std::string& message)
        : bytes_(dns::MessageBytes(message)), len_(static_cast<uint32_t>(message.size())) {}

    uint32_t End(const std::string& asked, uint16_t type) {
        sk_dns_head head;
        sk_dns_question question;
        if (sk_dns_read_head(bytes_, len_, &head) || !(head.flags & SK_DNS_QR) ||
            head.flags & SK_DNS_OPCODE || head.questions != 1)
            return SK_DNS_ANSWER_FORM;
        if (sk_dns_read_question(bytes_, len_, &at_, &question) || question.class_ != SK_DNS_CLASS_IN)
            return SK_DNS_ANSWER_FORM;
        if (Folded(question.name) != asked || question.type != type) return SK_DNS_ANSWER_UNASKED;
        if (head.flags & SK_DNS_TC) return SK_DNS_ANSWER_TRUNCATED;
        if (head.flags & SK_DNS_RCODE || !head.answers) return SK_DNS_ANSWER_EMPTY;
        if (type != SK_DNS_TYPE_A && type != SK_DNS_TYPE_AAAA && !HasHints(type)) return SK_DNS_ANSWER_EMPTY;
        if (head.answers > SK_DNS_ANSWER_RECORDS) return SK_DNS_ANSWER_LARGE;
        target_ = asked;
        for (uint32_t i = 0; i < head.answers; i++) {
            if (const uint32_t end = Record(type)) return end;
        }
        return public_ ? SK_DNS_ANSWER_PINNED : private_ ? SK_DNS_ANSWER_SCOPE : SK_DNS_ANSWER_EMPTY;
    }

  private:
    uint32_t Record(uint16_t type) {
        const bool pointer =
            at_ + 2 <= len_ && bytes_[at_] >= 0xc0 && (sk_dns_u16(bytes_ + at_) & 0x3fff) == target_at_;
        if (at_ + 2 > len_) return SK_DNS_ANSWER_BROKEN;
        if (!pointer && ++names_ > SK_DNS_ANSWER_NAMES) return SK_DNS_ANSWER_LARGE;
        sk_dns_record record;
        if (sk_dns_read_record(bytes_, len_, &at_, &record)) return SK_DNS_ANSWER_BROKEN;
        if ((!pointer && Folded(record.name) != target_) || record.class_ != SK_DNS_CLASS_IN) return 0;
        if (record.type == type) return HasHints(type) ? Hints(record) : Address(record);
        if (record.type != SK_DNS_TYPE_CNAME || public_ || private_) return 0;
        uint32_t end = record.data_at;
        sk_dns_name name;
        if (++chain_ > SK_DNS_ANSWER_CHAIN) return SK_DNS_ANSWER_BROKEN;
        if (++names_ > SK_DNS_ANSWER_NAMES) return SK_DNS_ANSWER_LARGE;
        if (sk_dns_read_name(bytes_, len_, &end, &name) || end != at_) return SK_DNS_ANSWER_BROKEN;
        target_ = Folded(name);
        target_at_ = record.data_at;
        return 0;
    }

    static bool HasHints(uint16_t type) { return type == SK_DNS_TYPE_HTTPS || type == SK_DNS_TYPE_SVCB; }

    uint32_t Address(const sk_dns_record& record) {
        const uint32_t size = record.type == SK_DNS_TYPE_A ? 4 : 16;
        if (record.data_len != size) return SK_DNS_ANSWER_BROKEN;
        Count(record.data_at, size);
        return 0;
    }

    void Count(uint32_t from, uint32_t size) {
        const uint8_t* at = bytes_ + from;
        const bool is_public = size == 4
                                   ? sk_dns_public4(sk_dns_u32(at))
                                   : sk_dns_public6(uint64_t{sk_dns_u32(at)} << 32 | sk_dns_u32(at + 4));
        (is_public ? public_ : private_)++;
    }

    uint32_t Hints(const sk_dns_record& record) {
        uint32_t at = record.data_at + 2;
        const uint32_t end = record.data_at + record.data_len;
        sk_dns_name target;
        if (++names_ > SK_DNS_ANSWER_NAMES) return SK_DNS_ANSWER_LARGE;
        if (record.data_len < 3 || sk_dns_read_name(bytes_, len_, &at, &target) || at > end)
            return SK_DNS_ANSWER_BROKEN;
        for (int steps = 0; steps < SK_DNS_HINT_STEPS && end - at >= 4; steps++) {
            const uint32_t key = sk_dns_u16(bytes_ + at), size = sk_dns_u16(bytes_ + at + 2),
                           each = key == SK_DNS_SVCB_IPV4HINT ? 4 : 16;
            at += 4;
            if (size > end - at) return 0;
            if (key != SK_DNS_SVCB_IPV4HINT && key != SK_DNS_SVCB_IPV6HINT) {
                at += size;
                continue;
            }
            for (const uint32_t stop = at + size; at < stop; at += each) {
                if (stop - at < each || ++steps >= SK_DNS_HINT_STEPS) return 0;
                Count(at, each);
            }
        }
        return 0;
    }

    const uint8_t* bytes_;
    const uint32_t len_;
    uint32_t at_ = SK_DNS_HEAD_BYTES, target_at_ = SK_DNS_HEAD_BYTES;
    std::string target_;
    int names_ = 0, chain_ = 0, public_ = 0, private_ = 0;
};

struct Hostile {
    std::string bytes;
    std::string name = "x.unrelated.test";  // of its question, where that could have been asked
    uint16_t type = SK_DNS_TYPE_A;
};

// Answers, with their question in a form that a sandbox may ask.
std::vector<Hostile> Recorded() {
    std::vector<Hostile> out;
    std::map<std::string, int> seen;  // by question: a tunnel's all look alike
    for (const char* folder : {"corner-cases", "tunnel-captures"}) {
        for (const std::string& file : CapturesIn(folder)) {
            const Status read = ForEachMessage(file, [&](const CapturedMessage& message) {
                if (message.bytes.size() > 4000 || message.bytes.size() < 2 || out.size() >= 800) return;
                Hostile hostile{.bytes = message.bytes};
                const ReadMessage whole = ReadWire(message.bytes);
                sk_dns_question question;
                uint32_t at = SK_DNS_HEAD_BYTES;
                const auto len = static_cast<uint32_t>(message.bytes.size());
                if (sk_dns_read_question(dns::MessageBytes(message.bytes), len, &at, &question) ==
                        SK_DNS_OK &&
                    !question.name.odd && !question.name.hops && question.name.labels > 1) {
                    hostile.name = dns::PrintedName(dns::LowerWire(question.name));
                    hostile.type = question.type;
                }
                if (message.is_query_side && seen[file]++ > 5) return;
                if (seen[absl::StrCat(hostile.name, whole.flags, whole.answers.size())]++ < 3)
                    out.push_back(hostile);
            });
            EXPECT_TRUE(read.ok()) << file << ": " << read;
        }
    }
    return out;
}

TEST(DnsHostile, TheKernelReadsAnAnswerAsItIs) {
    AnswerWorld* world = AnswerWorld::Get();
    ASSERT_NE(world, nullptr);
    std::vector<Hostile> messages = Recorded();
    ASSERT_GT(messages.size(), 150u);
    std::mt19937 random(1);
    const size_t recorded = messages.size();
    for (size_t i = 0; i < 3 * recorded; i++) {
        Hostile changed = messages[i % recorded];
        if (random() % 3 == 0) changed.bytes.resize(2 + random() % (changed.bytes.size() - 1));
        // Behind the id: that is what the socket asked with.
        for (int k = 0; k < 2 && changed.bytes.size() > 2; k++)
            changed.bytes[2 + random() % (changed.bytes.size() - 2)] = static_cast<char>(random());
        messages.push_back(changed);
    }
    std::set<std::string> tops;
    for (const Hostile& message : messages) tops.insert(message.name.substr(message.name.rfind('.') + 1));
    Client client({.exact = {}, .below = {tops.begin(), tops.end()}});
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    (void)AnswersSince();
    std::vector<uint64_t> all(SK_DNS_ANSWER_COUNT);
    for (size_t i = 0; i < messages.size(); i++) {
        Hostile& message = messages[i];
        const auto id = static_cast<uint16_t>(sk_dns_u16(dns::MessageBytes(message.bytes)));
        const std::string query = WireQuery(id, message.name, message.type);
        if (client.Send(0, kResolver, 53, query) != ".") continue;  // too long a name for a zone
        ASSERT_EQ(world->resolver.Hear(), query);
        world->resolver.Say(message.bytes);
        world->resolver.Say("\x77\x77 next");
        // A message that is dropped is not there; the next is.
        while (client.Do("hear 0") != "7777") {
        }
        sk_dns_question question;
        uint32_t at = SK_DNS_HEAD_BYTES;
        ASSERT_EQ(sk_dns_read_question(dns::MessageBytes(query), static_cast<uint32_t>(query.size()), &at,
                                       &question),
                  SK_DNS_OK);
        const uint32_t expected = Reference(message.bytes).End(Folded(question.name), message.type);
        std::vector<uint64_t> counted = AnswersSince();
        counted[SK_DNS_ANSWER_FORM]--;  // the one after it
        counted[SK_DNS_ANSWER_FORGOTTEN] = 0;
        std::vector<uint64_t> one(SK_DNS_ANSWER_COUNT);
        one[expected] = 1;
        ASSERT_EQ(counted, one) << i << " " << message.name << " type " << message.type << ": "
                                << absl::CHexEscape(message.bytes);
        all[expected]++;
    }
    for (const auto end : {SK_DNS_ANSWER_PINNED, SK_DNS_ANSWER_EMPTY, SK_DNS_ANSWER_FORM,
                           SK_DNS_ANSWER_UNASKED, SK_DNS_ANSWER_TRUNCATED, SK_DNS_ANSWER_BROKEN}) {
        EXPECT_GT(all[end], 0u) << end;
    }
    for (size_t end = 0; end < all.size(); end++)
        RecordProperty(absl::StrCat("end_", end), static_cast<int>(all[end]));
}

// A pointer for each record, each to another: what it costs to read is bounded.
TEST(DnsHostile, AMessageOfPointersIsReadUpToABound) {
    AnswerWorld* world = AnswerWorld::Get();
    ASSERT_NE(world, nullptr);
    Client client({});
    ASSERT_TRUE(client.ok());
    ASSERT_EQ(client.Do("open 0 4"), ".");
    (void)AnswersSince();
    for (const auto& [records, expected] : {std::pair{int{SK_DNS_ANSWER_NAMES}, SK_DNS_ANSWER_EMPTY},
                                            std::pair{int{SK_DNS_ANSWER_NAMES} + 1, SK_DNS_ANSWER_LARGE},
                                            std::pair{int{SK_DNS_ANSWER_RECORDS} + 1, SK_DNS_ANSWER_LARGE}}) {
        WireAnswer answer;
        answer.id = static_cast<uint16_t>(0x7100 + records);
        answer.name = "good.test";
        for (int i = 0; i < records; i++)
            answer.answers.push_back(ARecord(WireName(absl::StrCat("n", i)), "\xcb\xc9\x01\x01"));
        ASSERT_EQ(client.Send(0, kResolver, 53, WireQuery(answer.id, "good.test", SK_DNS_TYPE_A)), ".");
        ASSERT_FALSE(world->resolver.Hear().empty());
        world->resolver.Say(answer.Bytes());
        world->resolver.Say("\x77\x77 next");
        while (client.Do("hear 0") != "7777") {
        }
        EXPECT_EQ(AnswersSince()[static_cast<size_t>(expected)], 1u) << records;
    }
}

}  // namespace
}  // namespace stockade::live
