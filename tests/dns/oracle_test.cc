// Our parser beside ldns, on every message of every capture: where both read one, they read the
// same; where they differ about whether it can be read, the reason is one of a short list.
#include <gtest/gtest.h>
#include <ldns/ldns.h>

#include <map>
#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/dns/captures.h"
#include "userspace/dns/message.h"

namespace stockade {
namespace {

using PacketPtr = std::unique_ptr<ldns_pkt, decltype(&ldns_pkt_free)>;

PacketPtr Oracle(const std::string& message) {
    ldns_pkt* packet = nullptr;
    const auto* bytes = reinterpret_cast<const uint8_t*>(message.data());
    if (ldns_wire2pkt(&packet, bytes, message.size()) != LDNS_STATUS_OK) packet = nullptr;
    return PacketPtr(packet, &ldns_pkt_free);
}

std::string Wire(const ldns_rdf* name) {
    return std::string(reinterpret_cast<const char*>(ldns_rdf_data(name)), ldns_rdf_size(name));
}

std::string Wire(const sk_dns_name& name) {
    return std::string(reinterpret_cast<const char*>(name.wire), name.len);
}

struct Read {
    int fault = SK_DNS_OK;
    uint32_t end = 0;
    sk_dns_head head{};
    std::vector<sk_dns_question> questions;
    std::vector<sk_dns_record> records;
};

// All sections, as far as they can be read.
Read ReadAll(const std::string& message) {
    Read out;
    const uint8_t* bytes = dns::MessageBytes(message);
    const auto len = static_cast<uint32_t>(message.size());
    uint32_t at = SK_DNS_HEAD_BYTES;
    out.fault = sk_dns_read_head(bytes, len, &out.head);
    for (int i = 0; out.fault == SK_DNS_OK && i < out.head.questions; ++i)
        out.fault = sk_dns_read_question(bytes, len, &at, &out.questions.emplace_back());
    const int records = out.head.answers + out.head.authorities + out.head.additionals;
    for (int i = 0; out.fault == SK_DNS_OK && i < records; ++i)
        out.fault = sk_dns_read_record(bytes, len, &at, &out.records.emplace_back());
    out.end = at;
    return out;
}

void ExpectSameRecord(const sk_dns_record& ours, const ldns_rr* theirs, const std::string& where) {
    EXPECT_EQ(Wire(ours.name), Wire(ldns_rr_owner(theirs))) << where;
    EXPECT_EQ(ours.type, ldns_rr_get_type(theirs)) << where;
    EXPECT_EQ(ours.class_, ldns_rr_get_class(theirs)) << where;
    EXPECT_EQ(ours.ttl, ldns_rr_ttl(theirs)) << where;
}

void ExpectSame(const Read& ours, const ldns_pkt* theirs, const std::string& where) {
    EXPECT_EQ(ours.head.id, ldns_pkt_id(theirs)) << where;
    const ldns_rr_list* questions = ldns_pkt_question(theirs);
    ASSERT_EQ(ours.questions.size(), ldns_rr_list_rr_count(questions)) << where;
    for (size_t i = 0; i < ours.questions.size(); ++i) {
        const ldns_rr* question = ldns_rr_list_rr(questions, i);
        EXPECT_EQ(Wire(ours.questions[i].name), Wire(ldns_rr_owner(question))) << where;
        EXPECT_EQ(ours.questions[i].type, ldns_rr_get_type(question)) << where;
    }
    // ldns takes OPT and TSIG out of the additional section.
    size_t next = 0;
    for (const ldns_rr_list* section :
         {ldns_pkt_answer(theirs), ldns_pkt_authority(theirs), ldns_pkt_additional(theirs)}) {
        for (size_t i = 0; i < ldns_rr_list_rr_count(section); ++i, ++next) {
            while (next < ours.records.size() && (ours.records[next].type == LDNS_RR_TYPE_OPT ||
                                                  ours.records[next].type == LDNS_RR_TYPE_TSIG))
                ++next;
            ASSERT_LT(next, ours.records.size()) << where;
            ExpectSameRecord(ours.records[next], ldns_rr_list_rr(section, i), where);
        }
    }
}

// ldns also cuts the data of each record into its fields, ours does not look into data: so ldns may
// refuse more than ours in other captures than these.
TEST(Oracle, EveryCaptureIsReadAsLdnsReadsIt) {
    size_t messages = 0, both = 0, ours_only = 0;
    std::map<std::string, int> faults;
    for (const char* folder : {"corner-cases", "tunnel-captures"}) {
        for (const std::string& file : CapturesIn(folder)) {
            const Status done = ForEachMessage(file, [&](const CapturedMessage& message) {
                ++messages;
                const Read ours = ReadAll(message.bytes);
                const PacketPtr theirs = Oracle(message.bytes);
                if (ours.fault == SK_DNS_OK && theirs) {
                    ++both;
                    ExpectSame(ours, theirs.get(), message.where);
                } else if (ours.fault == SK_DNS_OK) {
                    ++ours_only;
                } else if (theirs) {
                    ++faults[absl::StrCat(std::string(dns::FaultName(ours.fault)), ": ", message.where)];
                }
            });
            ASSERT_TRUE(done.ok()) << file << ": " << done;
        }
    }
    std::cout << messages << " messages: " << both << " read alike, " << ours_only << " by ours alone, "
              << faults.size() << " by ldns alone\n";
    for (const auto& [fault, count] : faults)
        std::cout << "  ldns alone: " << fault << " (" << count << ")\n";
    EXPECT_GT(both, 3000u);
    EXPECT_EQ(ours_only, 0u);
    // ldns follows pointers that go forward.
    ASSERT_EQ(faults.size(), 1u);
    EXPECT_EQ(faults.begin()->first, "POINTER_FORWARD: dns-forward-pointer--input.pcap, byte 24");
}

}  // namespace
}  // namespace stockade
