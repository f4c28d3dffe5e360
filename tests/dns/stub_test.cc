// The stub between a client and a resolver that behaves: what goes up, what comes down, what is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "tests/dns/stub_fixture.h"

namespace stockade {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint16_t kA = 1, kCname = 5, kMx = 15, kTxt = 16, kAaaa = 28, kHttps = 65;
const std::string kFourBytes = "\x0a\x01\x02\x03";

void AnswerA(const FakeUpstream::Query& query) {
    WireAnswer answer = query.Answer();
    answer.answers = {ARecord(AtQuestion(), kFourBytes)};
    query.Reply(answer.Bytes());
}

TEST_F(StubTest, ForwardsTheNameAloneAndAnswersInTheClientsCase) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()});
    const std::string cookie = U16(10) + U16(8) + "01234567";
    // dig's flags: RD and AD.
    std::string query = WireQuery(0x1234, "WwW.Example", kA, WireOpt(4096, cookie));
    query[3] = 0x30;
    const ReadMessage answer = ReadWire(AskUdp(query));
    ASSERT_TRUE(answer.whole);
    EXPECT_EQ(answer.id, 0x1234);
    EXPECT_EQ(answer.flags, 0x8180);
    EXPECT_EQ(answer.name, WireName("WwW.Example"));
    ASSERT_THAT(answer.answers, SizeIs(1));
    EXPECT_EQ(answer.answers[0].owner, "www.example");
    EXPECT_EQ(answer.answers[0].data, kFourBytes);
    EXPECT_EQ(answer.answers[0].ttl_s, 300u);
    EXPECT_THAT(answer.additionals, SizeIs(1));

    const auto up = upstream.queries();
    ASSERT_THAT(up, SizeIs(1));
    EXPECT_EQ(up[0].bytes, WireQuery(up[0].id, "www.example", kA, WireOpt(1232)).replace(2, 2, U16(0x0100)));
    ASSERT_THAT(told(), SizeIs(1));
    EXPECT_EQ(told()[0].name, "www.example");
    EXPECT_THAT(told()[0].names, ElementsAre("www.example"));
    ASSERT_THAT(told()[0].addresses, SizeIs(1));
    EXPECT_EQ(told()[0].addresses[0].address, dns::UpstreamAddress::Parse("10.1.2.3")->address);
    EXPECT_EQ(told()[0].addresses[0].ttl_s, 300u);
    EXPECT_FALSE(told()[0].from_cache);
}

TEST_F(StubTest, EdnsComesOnlyToWhoSentIt) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()});
    EXPECT_THAT(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).additionals, IsEmpty());
}

TEST_F(StubTest, IdsAndPortsAreFreshForEachQuery) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()});
    for (int i = 0; i < 32; ++i) AskUdp(WireQuery(7, absl::StrCat("n", i, ".example"), kA));
    std::set<uint16_t> ids, ports;
    for (const auto& query : upstream.queries()) {
        ids.insert(query.id);
        ports.insert(query.peer.sin_port);
    }
    EXPECT_GT(ids.size(), 28u);
    EXPECT_GT(ports.size(), 28u);
}

TEST_F(StubTest, ARepeatIsAnsweredFromTheCacheButJudgedAndTold) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()});
    AskUdp(WireQuery(1, "a.example", kA));
    const ReadMessage again = ReadWire(AskTcp(WireQuery(2, "A.example", kA)));
    EXPECT_EQ(again.id, 2);
    EXPECT_EQ(again.name, WireName("A.example"));
    EXPECT_THAT(again.answers, SizeIs(1));
    EXPECT_THAT(upstream.queries(), SizeIs(1));
    EXPECT_THAT(judged_, SizeIs(2));
    ASSERT_THAT(told(), SizeIs(2));
    EXPECT_TRUE(told()[1].from_cache);
    EXPECT_TRUE(told()[1].tcp);
    EXPECT_EQ(counters().cache_hits, 1u);
}

TEST_F(StubTest, TheSameQuestionTwiceAtOnceGoesUpOnce) {
    std::vector<FakeUpstream::Query> held;
    // Answers the first question when another has come.
    FakeUpstream upstream([&](const FakeUpstream::Query& query) {
        if (query.name == WireName("go.example")) AnswerA(held.front());
        held.push_back(query);
    });
    Start({upstream.address()}, {.retry_ms = 10000, .deadline_ms = 15000});
    const Fd one = UdpClient(), two = UdpClient(), go = UdpClient();
    const std::string query = WireQuery(1, "a.example", kA), other = WireQuery(2, "go.example", kA);
    send(one.get(), query.data(), query.size(), 0);
    send(two.get(), query.data(), query.size(), 0);
    send(go.get(), other.data(), other.size(), 0);
    EXPECT_THAT(ReadWire(ReceiveUdp(one)).answers, SizeIs(1));
    EXPECT_THAT(ReadWire(ReceiveUdp(two)).answers, SizeIs(1));
    EXPECT_EQ(counters().joined, 1u);
    EXPECT_THAT(upstream.queries(), SizeIs(2));
}

TEST_F(StubTest, PolicyAnswersWithoutAnUpstream) {
    FakeUpstream upstream(AnswerA);
    policy_ = dns::StubPolicy::kRefuse;
    Start({upstream.address()});
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), 5);
    EXPECT_EQ(ReadWire(AskTcp(WireQuery(1, "a.example", kA))).rcode(), 5);
    EXPECT_FALSE(judged_[0].tcp);
    EXPECT_TRUE(judged_[1].tcp);
    {
        const std::lock_guard lock(mutex_);
        policy_ = dns::StubPolicy::kNoSuchName;
    }
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), 3);
    EXPECT_THAT(upstream.queries(), IsEmpty());
    EXPECT_THAT(told(), IsEmpty());
}

TEST_F(StubTest, FromTheCacheNobodyIsAsked) {
    FakeUpstream upstream(AnswerA);
    policy_ = dns::StubPolicy::kFromCache;
    Start({upstream.address()});
    EXPECT_EQ(ReadWire(AskTcp(WireQuery(1, "a.example", kA))).rcode(), 5);
    EXPECT_THAT(upstream.queries(), IsEmpty());
    const auto set = [&](dns::StubPolicy policy) {
        const std::lock_guard lock(mutex_);
        policy_ = policy;
    };
    set(dns::StubPolicy::kForward);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), 0);
    set(dns::StubPolicy::kFromCache);
    EXPECT_THAT(ReadWire(AskTcp(WireQuery(1, "a.example", kA))).answers, SizeIs(1));
    EXPECT_EQ(ReadWire(AskTcp(WireQuery(1, "b.example", kA))).rcode(), 5);
    EXPECT_THAT(upstream.queries(), SizeIs(1));
}

TEST_F(StubTest, AnAnswerThatIsNotLetThroughIsServfail) {
    FakeUpstream upstream(AnswerA);
    let_through_ = false;
    Start({upstream.address()});
    const ReadMessage answer = ReadWire(AskUdp(WireQuery(1, "a.example", kA)));
    EXPECT_EQ(answer.rcode(), 2);
    EXPECT_THAT(answer.answers, IsEmpty());
    EXPECT_EQ(counters().withheld, 1u);
}

TEST_F(StubTest, TransfersAndWildcardsAreNotImplemented) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()});
    for (const uint16_t type : {0, 41, 250, 251, 252, 255})
        EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", type))).rcode(), 4) << type;
    EXPECT_THAT(upstream.queries(), IsEmpty());
}

TEST_F(StubTest, WhatIsNotCanonicalIsAFormErrorOrNothing) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()});
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(9, "a b.example", kA))).rcode(), 1);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(9, "a.example", kA) + "tail")).rcode(), 1);
    EXPECT_EQ(
        ReadWire(AskUdp(WireQuery(9, "a.example", kA, WireOpt(1232, U16(65001) + U16(4) + "data")))).rcode(),
        1);
    const std::string none = AskUdp(std::string("\x00\x09\x01\x00", 4) + std::string(8, '\0'));
    EXPECT_EQ(ReadWire(none).rcode(), 1);
    EXPECT_EQ(ReadWire(none).id, 9);
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(9, "a.example", kA) + std::string(2000, 'x'))).rcode(), 1);
    EXPECT_EQ(counters().not_canonical, 5u);

    // A response and three bytes get nothing: the query behind them is what is answered.
    const Fd fd = UdpClient();
    const std::string response =
        WireAnswer{.id = 5, .name = "a.example", .answers = {}, .authorities = {}}.Bytes();
    const std::string query = WireQuery(6, "a.example", kA);
    send(fd.get(), response.data(), response.size(), 0);
    send(fd.get(), "abc", 3, 0);
    send(fd.get(), "", 0, 0);
    send(fd.get(), query.data(), query.size(), 0);
    EXPECT_EQ(ReadWire(ReceiveUdp(fd)).id, 6);
    EXPECT_EQ(counters().not_messages, 3u);
    EXPECT_THAT(upstream.queries(), SizeIs(1));
}

TEST_F(StubTest, NegativeAnswersKeepTheirSoaAndAreCached) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        WireAnswer answer = query.Answer();
        if (query.name == WireName("no.example")) answer.flags |= 3;
        answer.authorities = {Soa("example", 3600, 60)};
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()});
    for (int i = 0; i < 2; ++i) {
        const ReadMessage nodata = ReadWire(AskUdp(WireQuery(1, "a.example", kAaaa)));
        EXPECT_EQ(nodata.rcode(), 0);
        ASSERT_THAT(nodata.authorities, SizeIs(1));
        EXPECT_EQ(nodata.authorities[0].owner, "example");
        EXPECT_EQ(nodata.authorities[0].ttl_s, 60u);
        EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "no.example", kA))).rcode(), 3);
    }
    EXPECT_THAT(upstream.queries(), SizeIs(2));
    EXPECT_EQ(told()[0].ttl_s, 60u);
}

TEST_F(StubTest, NegativeAnswersWithoutSoaAreNotCached) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) { query.Reply(query.Answer().Bytes()); });
    Start({upstream.address()});
    for (int i = 0; i < 2; ++i) EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), 0);
    EXPECT_THAT(upstream.queries(), SizeIs(2));
}

TEST_F(StubTest, ChainIsFollowedAndTold) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        WireAnswer answer = query.Answer();
        answer.answers = {ARecord(WireName("C.example"), kFourBytes, 40), Cname("b.example", "c.example", 50),
                          ARecord(WireName("evil.example"), "\x7f\x01\x01\x01"),
                          Cname("a.example", "B.example", 90)};
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()});
    const ReadMessage answer = ReadWire(AskUdp(WireQuery(1, "a.example", kA)));
    ASSERT_TRUE(answer.whole);
    ASSERT_THAT(answer.answers, SizeIs(3));
    EXPECT_EQ(answer.answers[0].type, kCname);
    EXPECT_EQ(answer.answers[1].owner, "b.example");
    EXPECT_EQ(answer.answers[2].owner, "c.example");
    EXPECT_EQ(answer.answers[2].data, kFourBytes);
    EXPECT_THAT(told()[0].names, ElementsAre("a.example", "b.example", "c.example"));
    EXPECT_THAT(told()[0].addresses, SizeIs(1));
    EXPECT_EQ(told()[0].ttl_s, 40u);
}

TEST_F(StubTest, HintsOfHttpsAreTold) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        WireAnswer answer = query.Answer();
        const std::string data = U16(1) + WireName("") + U16(1) + U16(3) + "\x02h2" + U16(4) + U16(8) +
                                 "\x0a\x01\x02\x03" + "\x0a\x01\x02\x04" + U16(6) + U16(16) +
                                 std::string(16, '\x20');
        answer.answers = {{.owner = AtQuestion(), .type = kHttps, .ttl_s = 300, .data = data}};
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()});
    EXPECT_THAT(ReadWire(AskUdp(WireQuery(1, "a.example", kHttps))).answers, SizeIs(1));
    ASSERT_THAT(told()[0].addresses, SizeIs(3));
    EXPECT_EQ(told()[0].addresses[1].address.bytes[3], 4);
    EXPECT_EQ(told()[0].addresses[2].address.family, 6);
}

TEST_F(StubTest, CompressedNamesInDataAreWrittenInFull) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        WireAnswer answer = query.Answer();
        answer.answers = {
            {.owner = AtQuestion(), .type = kMx, .ttl_s = 300, .data = U16(10) + "\x02mx" + AtQuestion()}};
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()});
    const ReadMessage answer = ReadWire(AskUdp(WireQuery(1, "a.example", kMx)));
    ASSERT_THAT(answer.answers, SizeIs(1));
    EXPECT_EQ(answer.answers[0].data, U16(10) + WireName("mx.a.example"));
}

TEST_F(StubTest, TextIsCounted) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        WireAnswer answer = query.Answer();
        answer.answers = {{.owner = AtQuestion(), .type = kTxt, .ttl_s = 300, .data = "\x05hello"}};
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()});
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kTxt))).answers[0].data, "\x05hello");
    EXPECT_EQ(told()[0].downlink_bytes, 6u);
}

TEST_F(StubTest, AfterRemoveNothingAnswersAndTheKeyIsFree) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()});
    AskUdp(WireQuery(1, "a.example", kA));
    auto [udp, tcp] = BoundPair();
    const dns::StubClient client = {
        .upstreams = {upstream.address()},
        .judge = [](const dns::StubQuestion&) { return dns::StubPolicy::kRefuse; },
        .answered = [](const dns::StubAnswered&) { return true; }};
    EXPECT_EQ(stub_->Add(1, *Fd::Dup(udp.get()), *Fd::Dup(tcp.get()), client).code(),
              absl::StatusCode::kAlreadyExists);
    const Fd connection = TcpClient();
    stub_->Remove(1);
    EXPECT_TRUE(IsClosed(connection));
    port_ = PortOf(udp.get());
    EXPECT_TRUE(stub_->Add(1, std::move(udp), std::move(tcp), client).ok());
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "a.example", kA))).rcode(), 5);
    stub_->Remove(1);
    stub_->Remove(1);
}

TEST_F(StubTest, AddRefusesWhatItCannotServe) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()});
    const dns::StubClient client = {
        .upstreams = {upstream.address()},
        .judge = [](const dns::StubQuestion&) { return dns::StubPolicy::kForward; },
        .answered = [](const dns::StubAnswered&) { return true; }};
    const auto add = [&](int udp_type, int tcp_type, const dns::StubClient& with) {
        return stub_->Add(2, BoundSocket(udp_type, 0), BoundSocket(tcp_type, 0), with).code();
    };
    constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
    EXPECT_EQ(add(SOCK_STREAM, SOCK_STREAM, client), kInvalid);
    EXPECT_EQ(add(SOCK_DGRAM, SOCK_DGRAM, client), kInvalid);
    EXPECT_EQ(
        add(SOCK_DGRAM, SOCK_STREAM, {.upstreams = {}, .judge = client.judge, .answered = client.answered}),
        kInvalid);
    EXPECT_EQ(add(SOCK_DGRAM, SOCK_STREAM,
                  {.upstreams = client.upstreams, .judge = {}, .answered = client.answered}),
              kInvalid);
    EXPECT_FALSE(stub_->Add(2, Fd(), Fd(), client).ok());
    EXPECT_EQ(add(SOCK_DGRAM, SOCK_STREAM, client), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace stockade
