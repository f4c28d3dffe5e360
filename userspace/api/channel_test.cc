#include "userspace/api/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

namespace stockade::api {
namespace {

Message PingMessage() {
    Message message;
    message.mutable_ping();
    return message;
}

std::pair<Channel, Channel> MakePair() {
    auto pair = Channel::Pair();
    EXPECT_TRUE(pair.ok()) << pair.status();
    return *std::move(pair);
}

TEST(Channel, CarriesMessagesInOrder) {
    auto [a, b] = MakePair();
    for (int i = 1; i <= 3; ++i) {
        Message message;
        message.mutable_signal()->set_number(i);
        ASSERT_TRUE(a.Send(message).ok());
    }
    for (int i = 1; i <= 3; ++i) {
        auto packet = b.Receive(1000);
        ASSERT_TRUE(packet.ok()) << packet.status();
        EXPECT_EQ(packet->message.signal().number(), i);
    }
}

TEST(Channel, DescriptorsArriveWithTheirMessageAndRole) {
    auto [a, b] = MakePair();
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    Fd reader(pipe_fds[0]), writer(pipe_fds[1]);
    ASSERT_TRUE(a.Queue(PingMessage()).ok());
    ASSERT_TRUE(a.Send(PingMessage(), {{FD_STDOUT, writer.get()}, {FD_STDIN, reader.get()}}).ok());
    ASSERT_TRUE(a.Send(PingMessage()).ok());
    auto first = b.Receive(1000);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_TRUE(first->fds.empty());
    auto second = b.Receive(1000);
    ASSERT_TRUE(second.ok()) << second.status();
    ASSERT_EQ(second->fds.size(), 2u);
    Fd out = second->Take(FD_STDOUT);
    ASSERT_TRUE(out.ok());
    EXPECT_FALSE(second->Take(FD_STDOUT).ok());
    EXPECT_NE(fcntl(out.get(), F_GETFD) & FD_CLOEXEC, 0);
    ASSERT_TRUE(WriteAll(out.get(), "x").ok());
    char byte = 0;
    ASSERT_EQ(read(reader.get(), &byte, 1), 1);
    EXPECT_EQ(byte, 'x');
}

TEST(Channel, LargeMessagesPassAndTooLargeOnesDoNot) {
    auto [a, b] = MakePair();
    Message message;
    message.mutable_error()->set_message(std::string(kMaxFrameBytes - 100, 'x'));
    Status sent;
    std::thread sender([&, &a = a] { sent = a.Send(message); });
    auto packet = b.Receive(5000);
    sender.join();
    ASSERT_TRUE(sent.ok()) << sent;
    ASSERT_TRUE(packet.ok()) << packet.status();
    EXPECT_EQ(packet->message.error().message().size(), kMaxFrameBytes - 100);
    message.mutable_error()->set_message(std::string(kMaxFrameBytes + 1, 'x'));
    EXPECT_EQ(a.Send(message).code(), absl::StatusCode::kResourceExhausted);
}

TEST(Channel, EndOfStreamIsUnavailable) {
    auto [a, b] = MakePair();
    a.Close();
    EXPECT_EQ(b.Receive(1000).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(b.Send(PingMessage()).code(), absl::StatusCode::kUnavailable);
}

TEST(Channel, ReceiveKeepsItsDeadline) {
    auto [a, b] = MakePair();
    EXPECT_EQ(b.Receive(20).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(Channel, AReaderThatDoesNotReadCostsABoundedQueue) {
    auto [a, b] = MakePair();
    Message message;
    message.mutable_error()->set_message(std::string(kMaxFrameBytes / 2, 'x'));
    Status status;
    for (int i = 0; i < 100 && status.ok(); ++i) {
        status = a.Queue(message);
        ASSERT_TRUE(a.Flush().ok());
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_LE(a.queued_bytes(), kMaxQueuedBytes);
}

TEST(Channel, RefusesBytesOfAnotherProtocolAndVersion) {
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("SKAP\x63\0\0\0\0\0\0\0", 12),
          std::string("SKAP\x01\0\0\0\xff\xff\xff\xff", 12)}) {
        auto [a, b] = MakePair();
        ASSERT_TRUE(WriteAll(a.fd(), bytes).ok());
        EXPECT_FALSE(b.Receive(1000).ok());
    }
}

TEST(Channel, AMessageMayNotNameDescriptorsItDoesNotCarry) {
    auto [a, b] = MakePair();
    Message message = PingMessage();
    message.add_fds(FD_STDIN);
    auto frame = EncodeFrame(message);
    ASSERT_TRUE(frame.ok());
    ASSERT_TRUE(WriteAll(a.fd(), *frame).ok());
    EXPECT_EQ(b.Receive(1000).status().code(), absl::StatusCode::kInvalidArgument);
}

class Listening : public ::testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/stockade_channel_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(dir_); }
    std::string dir_;
};

TEST_F(Listening, TellsWhoConnectsAndIsPrivate) {
    const std::string path = dir_ + "/run/agent.sock";
    auto listening = Listen(path);
    ASSERT_TRUE(listening.ok()) << listening.status();
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    auto client = Channel::Connect(path);
    ASSERT_TRUE(client.ok()) << client.status();
    auto server = Accept(listening->get());
    ASSERT_TRUE(server.ok() && server->has_value());
    auto peer = (*server)->PeerCredentials();
    ASSERT_TRUE(peer.ok());
    EXPECT_EQ(peer->pid, getpid());
    EXPECT_EQ(peer->uid, getuid());
}

TEST_F(Listening, ASecondListenerIsRefusedAndADeadSocketReplaced) {
    const std::string path = dir_ + "/agent.sock";
    {
        auto first = Listen(path);
        ASSERT_TRUE(first.ok()) << first.status();
        EXPECT_EQ(Listen(path).status().code(), absl::StatusCode::kAlreadyExists);
    }
    EXPECT_EQ(Channel::Connect(path).status().code(), absl::StatusCode::kUnavailable);
    EXPECT_TRUE(Listen(path).ok());
}

}  // namespace
}  // namespace stockade::api
