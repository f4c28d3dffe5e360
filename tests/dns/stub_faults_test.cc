// The stub before resolvers that fail, lie, or are somebody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/dns/stub_fixture.h"

namespace stockade {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint16_t kA = 1, kPtr = 12, kMx = 15, kTxt = 16;
constexpr int kServfail = 2;
constexpr uint16_t kTruncated = 0x0200;
const std::string kFourBytes = "\x0a\x01\x02\x03";

std::string RightAnswer(const FakeUpstream::Query& query) {
    WireAnswer answer = query.Answer();
    answer.answers = {ARecord(AtQuestion(), kFourBytes)};
    return answer.Bytes();
}

std::string WithFlags(const FakeUpstream::Query& query, uint16_t flags) {
    WireAnswer answer = query.Answer();
    answer.flags |= flags;
    return answer.Bytes();
}

// Nothing is tried again meanwhile, so each query that comes up has a reason of its own.
constexpr dns::StubOptions kPatient = {.retry_ms = 10000, .upstream_tcp_ms = 10000, .deadline_ms = 15000};

class StubFaultsTest : public StubTest {
  protected:
    // The answer's rcode when the upstream gives this one.
    int RcodeOf(std::function<std::string(const FakeUpstream::Query&)> reply, uint16_t type = kA) {
        FakeUpstream upstream([&](const FakeUpstream::Query& query) { query.Reply(reply(query)); });
        Start({upstream.address()}, kPatient);
        const ReadMessage answer = ReadWire(AskUdp(WireQuery(1, "a.example", type)));
        EXPECT_TRUE(answer.whole);
        stub_.reset();
        return answer.whole ? answer.rcode() : -1;
    }
};

TEST_F(StubFaultsTest, WhatIsNoAnswerToTheQuestionIsPassedOver) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        const std::string right = RightAnswer(query);
        WireAnswer other = query.Answer();
        other.id ^= 1;
        other.answers = {ARecord(AtQuestion(), "\x06\x06\x06\x06")};
        query.Reply(other.Bytes());
        other.id = query.id;
        other.name = "b.example";
        query.Reply(other.Bytes());
        other.name = "a.example";
        other.type = 28;
        query.Reply(other.Bytes());
        query.Reply(query.bytes);  // a query, not a response
        query.Reply("garbage");
        query.Reply("");
        query.Reply(right.substr(0, 20));
        query.Reply(std::string(5000, 'x'));
        query.Reply(right);
    });
    Start({upstream.address()}, kPatient);
    const ReadMessage answer = ReadWire(AskUdp(WireQuery(1, "a.example", kA)));
    ASSERT_THAT(answer.answers, SizeIs(1));
    EXPECT_EQ(answer.answers[0].data, kFourBytes);
    EXPECT_EQ(counters().strays, 8u);
    EXPECT_THAT(upstream.queries(), SizeIs(1));
}

TEST_F(StubFaultsTest, WhatComesFromAnotherPortIsNotHeard) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        WireAnswer other = query.Answer();
        other.answers = {ARecord(AtQuestion(), "\x06\x06\x06\x06")};
        query.ReplyFromElsewhere(other.Bytes());
        query.Reply(RightAnswer(query));
    });
    Start({upstream.address()}, kPatient);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).answers[0].data, kFourBytes);
}

TEST_F(StubFaultsTest, AGuesserIsLeftForTcp) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        if (query.tcp) return query.Reply(RightAnswer(query));
        for (int i = 1; i < 100; ++i) query.Reply(RightAnswer(query).replace(0, 2, U16(query.id + i)));
    });
    Start({upstream.address()}, kPatient);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).answers[0].data, kFourBytes);
    EXPECT_EQ(counters().strays, static_cast<uint64_t>(dns::kStubStrays));
    EXPECT_EQ(counters().guessed, 1u);
}

TEST_F(StubFaultsTest, TruncatedIsAskedAgainOverTcp) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        query.Reply(query.tcp ? RightAnswer(query) : WithFlags(query, kTruncated));
    });
    Start({upstream.address()}, kPatient);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).answers[0].data, kFourBytes);
    const auto up = upstream.queries();
    ASSERT_THAT(up, SizeIs(2));
    EXPECT_TRUE(up[1].tcp);
    EXPECT_NE(up[0].id, up[1].id);
}

TEST_F(StubFaultsTest, TcpThatFailsIsServfail) {
    using Script = FakeUpstream::Script;
    const std::vector<Script> scripts = {
        [](const FakeUpstream::Query& query) { query.Reply(WithFlags(query, kTruncated)); },
        [](const FakeUpstream::Query& query) {
            query.tcp ? query.SendRaw("") : query.Reply(WithFlags(query, kTruncated));
        },
        [](const FakeUpstream::Query& query) {
            query.tcp ? query.SendRaw(U16(500) + "short") : query.Reply(WithFlags(query, kTruncated));
        },
        [](const FakeUpstream::Query& query) {
            query.tcp ? query.Reply(RightAnswer(query).replace(0, 2, U16(query.id + 1)))
                      : query.Reply(WithFlags(query, kTruncated));
        },
        [](const FakeUpstream::Query& query) {
            query.tcp ? query.SendRaw(U16(0)) : query.Reply(WithFlags(query, kTruncated));
        },
    };
    for (const Script& script : scripts) {
        FakeUpstream upstream(script);
        Start({upstream.address()}, kPatient);
        EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), kServfail);
        stub_.reset();
    }
}

TEST_F(StubFaultsTest, ALateAnswerToTheFirstTryIsTaken) {
    std::vector<FakeUpstream::Query> held;
    FakeUpstream upstream([&](const FakeUpstream::Query& query) {
        held.push_back(query);
        if (query.number == 2) held[0].Reply(RightAnswer(held[0]));
    });
    Start({upstream.address()});
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).answers[0].data, kFourBytes);
    EXPECT_EQ(counters().retries, 1u);
}

TEST_F(StubFaultsTest, SilenceIsServfailAfterAFewFreshTries) {
    FakeUpstream upstream([](const FakeUpstream::Query&) {});
    Start({upstream.address()}, {.retry_ms = 50, .deadline_ms = 1000});
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), kServfail);
    std::set<std::pair<uint16_t, uint16_t>> fresh;
    for (const auto& query : upstream.queries()) fresh.emplace(query.id, query.peer.sin_port);
    EXPECT_EQ(fresh.size(), static_cast<size_t>(dns::kStubTries));
    ASSERT_THAT(told(), SizeIs(1));
    EXPECT_EQ(told()[0].rcode, kServfail);
    EXPECT_EQ(told()[0].ttl_s, 0u);
}

TEST_F(StubFaultsTest, SilenceMovesOnToTheNextUpstream) {
    FakeUpstream silent([](const FakeUpstream::Query&) {});
    FakeUpstream upstream([](const FakeUpstream::Query& query) { query.Reply(RightAnswer(query)); });
    Start({silent.address(), upstream.address()}, {.retry_ms = 50});
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), 0);
    EXPECT_THAT(silent.queries(), SizeIs(1));
}

TEST_F(StubFaultsTest, FailuresMoveOnAtOnce) {
    FakeUpstream failing([](const FakeUpstream::Query& query) { query.Reply(WithFlags(query, kServfail)); });
    FakeUpstream refusing([](const FakeUpstream::Query& query) { query.Reply(WithFlags(query, 5)); });
    FakeUpstream upstream([](const FakeUpstream::Query& query) { query.Reply(RightAnswer(query)); });
    const uint16_t closed = PortOf(BoundSocket(SOCK_DGRAM, 0).get());
    Start({*dns::UpstreamAddress::Parse("127.0.0.1", closed), failing.address(), refusing.address(),
           upstream.address()},
          kPatient);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), 0);
    EXPECT_EQ(counters().upstream_errors, 3u);
    EXPECT_EQ(counters().retries, 0u);
}

TEST_F(StubFaultsTest, ServfailIsNotKept) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        query.Reply(query.number == 1 ? WithFlags(query, kServfail) : RightAnswer(query));
    });
    Start({upstream.address()}, kPatient);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), kServfail);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), 0);
}

TEST_F(StubFaultsTest, AQuestionEchoedInUpperCaseIsTheQuestion) {
    EXPECT_EQ(RcodeOf([](const FakeUpstream::Query& query) {
                  WireAnswer answer = query.Answer();
                  answer.name = "A.EXAMPLE";
                  answer.answers = {ARecord(WireName("a.eXample"), kFourBytes)};
                  return answer.Bytes();
              }),
              0);
    EXPECT_THAT(told()[0].addresses, SizeIs(1));
}

TEST_F(StubFaultsTest, TtlsAreWithinBounds) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        WireAnswer answer = query.Answer();
        answer.answers = {ARecord(AtQuestion(), kFourBytes, 0), ARecord(AtQuestion(), kFourBytes, 0xffffffff),
                          ARecord(AtQuestion(), kFourBytes, 0x7fffffff)};
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()}, kPatient);
    const ReadMessage answer = ReadWire(AskUdp(WireQuery(1, "a.example", kA)));
    ASSERT_THAT(answer.answers, SizeIs(3));
    EXPECT_EQ(answer.answers[0].ttl_s, 30u);
    EXPECT_EQ(answer.answers[1].ttl_s, 30u);
    EXPECT_EQ(answer.answers[2].ttl_s, 86400u);
    EXPECT_EQ(told()[0].ttl_s, 30u);
}

// An answer with so many CNAMEs and an address at the end.
std::string Chain(const FakeUpstream::Query& query, int links) {
    WireAnswer answer = query.Answer();
    std::string owner = "a.example";
    for (int i = 0; i < links; ++i) {
        const std::string target = absl::StrCat("c", i, ".example");
        answer.answers.push_back(Cname(owner, target));
        owner = target;
    }
    answer.answers.push_back(ARecord(WireName(owner), kFourBytes));
    return answer.Bytes();
}

TEST_F(StubFaultsTest, AChainHasAnEnd) {
    EXPECT_EQ(RcodeOf([](const auto& query) { return Chain(query, 8); }), 0);
    EXPECT_THAT(told().back().names, SizeIs(9));
    EXPECT_EQ(RcodeOf([](const auto& query) { return Chain(query, 9); }), kServfail);
    EXPECT_EQ(RcodeOf([](const auto& query) {
                  WireAnswer answer = query.Answer();
                  answer.answers = {Cname("a.example", "b.example"), Cname("b.example", "A.example")};
                  return answer.Bytes();
              }),
              kServfail);
}

TEST_F(StubFaultsTest, DataThatAreNotTheirTypeAreServfail) {
    const auto with = [](uint16_t type, const std::string& data) {
        return [=](const FakeUpstream::Query& query) {
            WireAnswer answer = query.Answer();
            answer.answers = {{.owner = AtQuestion(), .type = type, .ttl_s = 300, .data = data}};
            return answer.Bytes();
        };
    };
    EXPECT_EQ(RcodeOf(with(kA, "abc")), kServfail);
    EXPECT_EQ(RcodeOf(with(28, "abcd"), 28), kServfail);
    EXPECT_EQ(RcodeOf(with(kMx, "a"), kMx), kServfail);
    EXPECT_EQ(RcodeOf(with(kMx, U16(1) + "\x02mx"), kMx), kServfail);
    EXPECT_EQ(RcodeOf(with(kMx, U16(1) + WireName("mx") + "more"), kMx), kServfail);
    // Pointers at themselves, ahead, and beyond the end.
    for (const uint16_t target : {39, 41, 60, 0x3fff})
        EXPECT_EQ(RcodeOf(with(kPtr, U16(0xc000 | target)), kPtr), kServfail) << target;
    EXPECT_EQ(RcodeOf([](const FakeUpstream::Query& query) {
                  WireAnswer answer = query.Answer();
                  answer.answers = {ARecord(U16(0xc000 | 27), kFourBytes)};
                  return answer.Bytes();
              }),
              kServfail);
    EXPECT_EQ(RcodeOf([](const FakeUpstream::Query& query) {
                  std::string bytes = RightAnswer(query);
                  bytes[7] = 50;  // answers that are not there
                  return bytes;
              }),
              kServfail);
}

TEST_F(StubFaultsTest, ANameThatPrintsLikeAnotherIsToldApart) {
    EXPECT_EQ(RcodeOf([](const FakeUpstream::Query& query) {
                  WireAnswer answer = query.Answer();
                  answer.answers = {Cname("a.example", "x")};
                  answer.answers[0].data =
                      "\x0b"
                      "good.exampl" +
                      WireName("E");
                  return answer.Bytes();
              }),
              0);
    EXPECT_THAT(told()[0].names, ElementsAre("a.example", "good\\046exampl.e"));
}

TEST_F(StubFaultsTest, AnSoaOfAnotherZoneStaysOutside) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        WireAnswer answer = query.Answer();
        answer.authorities = {Soa("other", 300, 300), Soa("e", 300, 300)};
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()}, kPatient);
    EXPECT_THAT(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).authorities, IsEmpty());
}

TEST_F(StubFaultsTest, HugeAnswersComeOverTcpOnly) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        if (!query.tcp) return query.Reply(WithFlags(query, kTruncated));
        WireAnswer answer = query.Answer();
        answer.answers.assign(
            60, {.owner = AtQuestion(), .type = kTxt, .ttl_s = 300, .data = std::string(1000, '\x03')});
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()}, kPatient);
    const ReadMessage udp = ReadWire(AskUdp(WireQuery(1, "a.example", kTxt, WireOpt(65535))));
    ASSERT_TRUE(udp.whole);
    EXPECT_TRUE(udp.truncated());
    EXPECT_THAT(udp.answers, IsEmpty());
    EXPECT_THAT(ReadWire(AskTcp(WireQuery(1, "a.example", kTxt))).answers, SizeIs(60));
    EXPECT_TRUE(told()[0].truncated);
    EXPECT_EQ(told()[0].downlink_bytes, 0u);
    EXPECT_EQ(told()[1].downlink_bytes, 60000u);
    EXPECT_EQ(counters().truncated, 1u);
}

TEST_F(StubFaultsTest, WhatGrowsBeyondAMessageIsServfail) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        if (!query.tcp) return query.Reply(WithFlags(query, kTruncated));
        WireAnswer answer = query.Answer();
        const std::string full(63, 'x');
        const std::string first = U16(1) + WireName(absl::StrCat(full, ".", full, ".", full));
        answer.answers.assign(
            3000, {.owner = AtQuestion(), .type = kMx, .ttl_s = 300, .data = U16(1) + U16(0xc000 | 41)});
        answer.answers[0].data = first;
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()}, kPatient);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kMx))).rcode(), kServfail);
    EXPECT_EQ(counters().broken_answers, 1u);
}

}  // namespace
}  // namespace stockade
