// The stub before clients that are many, slow, greedy or hostile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/dns/stub_fixture.h"

namespace stockade {
namespace {

using testing::SizeIs;

constexpr uint16_t kA = 1, kTxt = 16;
constexpr dns::StubOptions kPatient = {.retry_ms = 10000, .upstream_tcp_ms = 10000, .deadline_ms = 15000};

void AnswerA(const FakeUpstream::Query& query) {
    WireAnswer answer = query.Answer();
    answer.answers = {ARecord(AtQuestion(), "\x0a\x01\x02\x03")};
    query.Reply(answer.Bytes());
}

std::string Frame(const std::string& message) { return U16(message.size()) + message; }

class StubClientsTest : public StubTest {
  protected:
    void ExpectAlive() {
        EXPECT_THAT(ReadWire(AskUdp(WireQuery(1, "alive.example", kA))).answers, SizeIs(1));
    }
};

TEST_F(StubClientsTest, ManyQueriesOnOneConnection) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()}, kPatient);
    const Fd fd = TcpClient();
    std::string all;
    constexpr int kMany = 200;  // far beyond kStubPipelined
    for (int i = 0; i < kMany; ++i) all += Frame(WireQuery(i, absl::StrCat("n", i % 50, ".example"), kA));
    SendTcp(fd, all);
    std::set<uint16_t> ids;
    for (int i = 0; i < kMany; ++i) {
        const ReadMessage answer = ReadWire(ReceiveTcp(fd));
        ASSERT_THAT(answer.answers, SizeIs(1)) << i;
        ids.insert(answer.id);
    }
    EXPECT_THAT(ids, SizeIs(kMany));
    EXPECT_EQ(counters().over_client_limit, 0u);
}

TEST_F(StubClientsTest, AQueryByteByByteAndAPeerThatHasSentAll) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()}, kPatient);
    const Fd fd = TcpClient();
    for (const char c : Frame(WireQuery(5, "a.example", kA))) SendTcp(fd, std::string(1, c));
    EXPECT_EQ(ReadWire(ReceiveTcp(fd)).id, 5);
    SendTcp(fd, Frame(WireQuery(6, "b.example", kA)) + Frame(WireQuery(7, "b.example", kA)) + "x");
    shutdown(fd.get(), SHUT_WR);
    EXPECT_EQ(ReadWire(ReceiveTcp(fd)).id, 6);
    EXPECT_EQ(ReadWire(ReceiveTcp(fd)).id, 7);
    EXPECT_TRUE(IsClosed(fd));
}

TEST_F(StubClientsTest, WhatIsNoQueryClosesTheConnection) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()}, kPatient);
    const std::string response = WireAnswer{.name = "a.example", .answers = {}, .authorities = {}}.Bytes();
    for (const std::string& bytes :
         {U16(0), U16(513), U16(0xffff) + std::string(600, 'x'), Frame("abc"), Frame(response)}) {
        const Fd fd = TcpClient();
        SendTcp(fd, bytes);
        EXPECT_TRUE(IsClosed(fd));
    }
    const Fd fd = TcpClient();
    SendTcp(fd, Frame(WireQuery(5, "a b", kA)));
    EXPECT_EQ(ReadWire(ReceiveTcp(fd)).rcode(), 1);
    ExpectAlive();
}

TEST_F(StubClientsTest, IdleConnectionsAreClosedHalfQueriesOrNot) {
    FakeUpstream upstream(AnswerA);
    dns::StubOptions options = kPatient;
    options.idle_ms = 100;
    Start({upstream.address()}, options);
    const Fd idle = TcpClient(), half = TcpClient();
    SendTcp(half, U16(100) + "half");
    EXPECT_TRUE(IsClosed(idle));
    EXPECT_TRUE(IsClosed(half));
    EXPECT_EQ(counters().idle_closed, 2u);
}

TEST_F(StubClientsTest, ConnectionsAreCounted) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()}, kPatient);
    std::vector<Fd> fds;
    for (size_t i = 0; i < dns::kStubConnections; ++i) {
        fds.push_back(TcpClient());
        SendTcp(fds.back(), Frame(WireQuery(i, "a.example", kA)));
        EXPECT_EQ(ReadWire(ReceiveTcp(fds.back())).id, i);
    }
    EXPECT_TRUE(IsClosed(TcpClient()));
    EXPECT_EQ(counters().over_connections, 1u);
    SendTcp(fds[0], U16(0));
    EXPECT_TRUE(IsClosed(fds[0]));
    EXPECT_THAT(ReadWire(AskTcp(WireQuery(1, "a.example", kA))).answers, SizeIs(1));
}

TEST_F(StubClientsTest, QueriesWithoutAnswerAreCounted) {
    std::atomic<size_t> heard = 0;
    FakeUpstream upstream([&](const FakeUpstream::Query&) { ++heard; });
    Start({upstream.address()}, kPatient);
    const Fd fd = UdpClient();
    for (size_t i = 0; i < dns::kStubInFlightPerClient; ++i) {
        const std::string query = WireQuery(i, absl::StrCat("n", i, ".example"), kA);
        send(fd.get(), query.data(), query.size(), 0);
        while (heard <= i) poll(nullptr, 0, 1);  // so that no socket on the way is full
    }
    EXPECT_EQ(ReadWire(AskUdp(WireQuery(1, "more.example", kA))).rcode(), 2);
    EXPECT_EQ(counters().over_client_limit, 1u);
    stub_->Remove(1);  // with all of them under way
}

TEST_F(StubClientsTest, ConnectionsToUpstreamsAreCounted) {
    std::vector<FakeUpstream::Query> held;
    std::promise<void> checked;
    const std::shared_future<void> until = checked.get_future().share();
    FakeUpstream upstream([&](const FakeUpstream::Query& query) {
        if (query.tcp) return until.wait();
        held.push_back(query);
        if (held.size() <= dns::kStubUpstreamTcp) return;
        for (const auto& each : held) {
            WireAnswer truncated = each.Answer();
            truncated.flags |= 0x0200;
            each.Reply(truncated.Bytes());
        }
    });
    Start({upstream.address()}, kPatient);
    const Fd fd = UdpClient();
    for (size_t i = 0; i <= dns::kStubUpstreamTcp; ++i) {
        const std::string query = WireQuery(i, absl::StrCat("n", i, ".example"), kA);
        send(fd.get(), query.data(), query.size(), 0);
    }
    EXPECT_EQ(ReadWire(ReceiveUdp(fd)).rcode(), 2);
    EXPECT_EQ(counters().over_upstream_tcp, 1u);
    stub_.reset();  // with the others under way
    checked.set_value();
}

TEST_F(StubClientsTest, WithoutDescriptorsItFailsAndComesBack) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()}, kPatient);
    const Fd udp = UdpClient(), tcp(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    rlimit none = before;
    none.rlim_cur = 3;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const std::string query = WireQuery(1, "a.example", kA);
    send(udp.get(), query.data(), query.size(), 0);
    EXPECT_EQ(ReadWire(ReceiveUdp(udp)).rcode(), 2);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(tcp.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    SendTcp(tcp, Frame(query));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (counters().socket_pauses == 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_THAT(ReadWire(ReceiveTcp(tcp)).answers, SizeIs(1));
    EXPECT_EQ(counters().socket_pauses, 1u);  // no busy loop meanwhile
    ExpectAlive();
}

TEST_F(StubClientsTest, WhoDoesNotReadHoldsNobodyUp) {
    FakeUpstream upstream([](const FakeUpstream::Query& query) {
        if (query.type == kA) return AnswerA(query);
        WireAnswer answer = query.Answer();
        answer.flags |= query.tcp ? 0 : 0x0200;
        if (query.tcp)
            answer.answers.assign(
                60, {.owner = AtQuestion(), .type = kTxt, .ttl_s = 300, .data = std::string(1000, '\x03')});
        query.Reply(answer.Bytes());
    });
    Start({upstream.address()}, kPatient);
    const Fd fd = TcpClient();
    std::string all;
    constexpr int kMany = 100;  // 6 MB
    for (int i = 0; i < kMany; ++i) all += Frame(WireQuery(i, absl::StrCat("n", i, ".example"), kTxt));
    SendTcp(fd, all);
    ExpectAlive();
    for (int i = 0; i < kMany; ++i) ASSERT_THAT(ReadWire(ReceiveTcp(fd)).answers, SizeIs(60)) << i;
}

TEST_F(StubClientsTest, NoiseDoesNoHarm) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()}, kPatient);
    std::mt19937 random(1);
    const Fd udp = UdpClient();
    for (int i = 0; i < 2000; ++i) {
        std::string noise(random() % 600, '\0');
        for (char& c : noise) c = static_cast<char>(random());
        if (i % 2) noise = WireQuery(i, "a.example", kA, WireOpt(1232));
        if (i % 2) noise[random() % noise.size()] = static_cast<char>(random());
        send(udp.get(), noise.data(), noise.size(), MSG_DONTWAIT);
        if (i % 20) continue;
        const Fd tcp = TcpClient();
        (void)send(tcp.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
        // Now and then, so that the noise is read and not dropped by a full socket.
        ExpectAlive();
    }
    EXPECT_GT(counters().not_canonical, 0u);
}

TEST_F(StubClientsTest, ClientsDoNotShareTheirCaches) {
    FakeUpstream upstream(AnswerA);
    Start({upstream.address()}, kPatient);
    AskUdp(WireQuery(1, "a.example", kA));
    auto [udp, tcp] = BoundPair();
    port_ = PortOf(udp.get());
    const dns::StubClient client = {
        .upstreams = {upstream.address()},
        .judge = [](const dns::StubQuestion&) { return dns::StubPolicy::kForward; },
        .answered = [](const dns::StubAnswered&) { return true; }};
    ASSERT_TRUE(stub_->Add(2, std::move(udp), std::move(tcp), client).ok());
    AskUdp(WireQuery(1, "a.example", kA));
    EXPECT_THAT(upstream.queries(), SizeIs(2));
    EXPECT_EQ(counters().cache_hits, 0u);
}

}  // namespace
}  // namespace stockade
