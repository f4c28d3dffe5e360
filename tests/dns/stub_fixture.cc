#include "tests/dns/stub_fixture.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>

namespace stockade {
namespace {

Fd Connected(int type, uint16_t port) {
    Fd fd(socket(AF_INET, type | SOCK_CLOEXEC, 0));
    const timeval patience{.tv_sec = kPatienceMs / 1000, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
}

}  // namespace

void StubTest::Start(std::vector<dns::UpstreamAddress> upstreams, dns::StubOptions options) {
    auto stub = dns::Stub::Start(options);
    ASSERT_TRUE(stub.ok()) << stub.status();
    stub_ = *std::move(stub);
    auto [udp, tcp] = BoundPair();
    port_ = PortOf(udp.get());
    dns::StubClient client;
    client.upstreams = std::move(upstreams);
    client.judge = [this](const dns::StubQuestion& question) {
        const std::lock_guard lock(mutex_);
        judged_.push_back(question);
        return policy_;
    };
    client.answered = [this](const dns::StubAnswered& answered) {
        const std::lock_guard lock(mutex_);
        told_.push_back(answered);
        return let_through_;
    };
    const Status added = stub_->Add(1, std::move(udp), std::move(tcp), std::move(client));
    ASSERT_TRUE(added.ok()) << added;
}

std::vector<dns::StubAnswered> StubTest::told() const {
    const std::lock_guard lock(mutex_);
    return told_;
}

Fd StubTest::UdpClient() const { return Connected(SOCK_DGRAM, port_); }
Fd StubTest::TcpClient() const { return Connected(SOCK_STREAM, port_); }

std::string StubTest::ReceiveUdp(const Fd& fd) {
    std::array<char, 65536> buffer;
    const ssize_t size = recv(fd.get(), buffer.data(), buffer.size(), 0);
    return size < 0 ? "" : std::string(buffer.data(), size);
}

std::string StubTest::ReceiveTcp(const Fd& fd) {
    std::array<char, 65536> buffer;
    if (recv(fd.get(), buffer.data(), 2, MSG_WAITALL) != 2) return "";
    const size_t size = (static_cast<uint8_t>(buffer[0]) << 8) | static_cast<uint8_t>(buffer[1]);
    const ssize_t got = recv(fd.get(), buffer.data(), size, MSG_WAITALL);
    return got == static_cast<ssize_t>(size) ? std::string(buffer.data(), size) : "";
}

void StubTest::SendTcp(const Fd& fd, const std::string& bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

bool StubTest::IsClosed(const Fd& fd) {
    char byte;
    const ssize_t size = recv(fd.get(), &byte, 1, 0);
    return size == 0 || (size < 0 && errno == ECONNRESET);
}

std::string StubTest::AskUdp(const std::string& query) {
    const Fd fd = UdpClient();
    EXPECT_EQ(send(fd.get(), query.data(), query.size(), 0), static_cast<ssize_t>(query.size()));
    return ReceiveUdp(fd);
}

std::string StubTest::AskTcp(const std::string& query) {
    const Fd fd = TcpClient();
    SendTcp(fd, U16(query.size()) + query);
    return ReceiveTcp(fd);
}

}  // namespace stockade
