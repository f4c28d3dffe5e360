// For tests: what a sandbox without a stub asks, and what its resolver says to it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/dns/dns_wire.h"
#include "tests/live/answer_world.h"

namespace stockade::live {

inline constexpr uint16_t kA = SK_DNS_TYPE_A, kAaaa = SK_DNS_TYPE_AAAA;

inline std::string Bytes4(int a, int b, int c, int d) {
    return {static_cast<char>(a), static_cast<char>(b), static_cast<char>(c), static_cast<char>(d)};
}

inline WireRecord Address(const std::string& owner, const std::string& bytes, uint32_t ttl_s = 300) {
    return {owner, kA, ttl_s, bytes};
}

inline WireAnswer AnswerTo(uint16_t id, const std::string& name, std::vector<WireRecord> records,
                           uint16_t type = kA) {
    WireAnswer answer;
    answer.id = id;
    answer.name = name;
    answer.type = type;
    answer.answers = std::move(records);
    return answer;
}

// An address that no test before has opened.
struct Fresh {
    std::string text, bytes;
};
inline Fresh FreshAddress() {
    static int count = 0;
    count++;
    return {absl::StrCat("203.", 1 + count / 60000, ".", count / 200 % 250, ".", 1 + count % 200),
            Bytes4(203, 1 + count / 60000, count / 200 % 250, 1 + count % 200)};
}

class DnsAnswers : public ::testing::Test {
  protected:
    void SetUp() override {
        world_ = AnswerWorld::Get();
        ASSERT_NE(world_, nullptr);
        (void)AnswersSince();
    }
    // Asks on socket 0, which it opens, and has the resolver hear it.
    void Ask(Client& client, const std::string& name, uint16_t id, uint16_t type = kA) {
        ASSERT_TRUE(client.ok());
        ASSERT_EQ(client.Do("open 0 4"), ".");
        ASSERT_EQ(client.Send(0, kResolver, 53, WireQuery(id, name, type)), ".");
        ASSERT_FALSE(world_->resolver.Hear().empty());
    }
    // The same, and what the resolver says to it, until the client has it.
    void Resolve(Client& client, const std::string& name, const std::vector<WireRecord>& records,
                 uint16_t type = kA) {
        const uint16_t id = ++id_;
        Ask(client, name, id, type);
        world_->resolver.Say(AnswerTo(id, name, records, type).Bytes());
        ASSERT_EQ(client.Do("hear 0"), absl::StrCat(absl::Hex(id, absl::kZeroPad4)));
    }
    AnswerWorld* world_ = nullptr;
    uint16_t id_ = 0x4000;
};

}  // namespace stockade::live
