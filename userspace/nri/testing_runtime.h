// A runtime that does what a script says: the other end of a Link, or bytes for a Session. It shares no code with them but the
// protobuf messages, so that an error in the framing is not made twice.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/fd.h"
#include "userspace/nri/nri.pb.h"

namespace stockade::nri {

inline std::string BigEndian(uint32_t value) {
    return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
            static_cast<char>(value)};
}
inline uint32_t FromBigEndian(const std::string& bytes, size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value * 256 + static_cast<unsigned char>(bytes[at + i]);
    return value;
}

inline std::string RpcBytes(uint32_t stream, int type, const std::string& data, int flags = 0) {
    return BigEndian(static_cast<uint32_t>(data.size())) + BigEndian(stream) + static_cast<char>(type) + static_cast<char>(flags) +
           data;
}
inline std::string TrunkBytes(uint32_t connection, const std::string& payload) {
    return BigEndian(connection) + BigEndian(static_cast<uint32_t>(payload.size())) + payload;
}
inline std::string CallBytes(uint32_t stream, const std::string& method, const google::protobuf::MessageLite& message,
                             int flags = 0) {
    RpcRequest request;
    request.set_service("nri.pkg.api.v1alpha1.Plugin");
    request.set_method(method);
    request.set_payload(message.SerializeAsString());
    return TrunkBytes(1, RpcBytes(stream, 1, request.SerializeAsString(), flags));
}
inline std::string RegisteredBytes() { return TrunkBytes(2, RpcBytes(1, 2, "")); }

inline ConfigureRequest Configuration(int64_t request_timeout_ms = 2000) {
    ConfigureRequest request;
    request.set_runtime_name("fake");
    request.set_runtime_version("1.0");
    request.set_request_timeout(request_timeout_ms);
    return request;
}
inline ContainerRequest ContainerOf(const std::string& id) {
    ContainerRequest request;
    request.mutable_pod()->set_id(id + "-pod");
    request.mutable_pod()->set_namespace_("tools");
    request.mutable_container()->set_id(id);
    request.mutable_container()->set_pod_sandbox_id(id + "-pod");
    return request;
}

// Both layers of what a plugin sends, taken apart.
struct Answered {
    uint32_t connection = 0;
    uint32_t stream = 0;
    int type = 0;
    std::string data;
    RpcResponse response() const {
        RpcResponse out;
        EXPECT_TRUE(out.ParseFromString(data));
        return out;
    }
};
inline std::optional<Answered> TakeAnswered(std::string* bytes) {
    if (bytes->size() < 18) return std::nullopt;
    const size_t length = FromBigEndian(*bytes, 4);
    if (bytes->size() < 8 + length) return std::nullopt;
    EXPECT_EQ(FromBigEndian(*bytes, 8) + 10, length) << "one message in each frame of the trunk";
    Answered out{.connection = FromBigEndian(*bytes, 0),
                 .stream = FromBigEndian(*bytes, 12),
                 .type = (*bytes)[16],
                 .data = bytes->substr(18, length - 10)};
    bytes->erase(0, 8 + length);
    return out;
}

class FakeRuntime {
  public:
    explicit FakeRuntime(std::string path) : path_(std::move(path)) { Listen(); }
    ~FakeRuntime() { Away(); }

    void Listen() {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
        listen_ = Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(bind(listen_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << path_;
        ASSERT_EQ(listen(listen_.get(), 4), 0);
    }
    // No socket there any more.
    void Away() {
        Drop();
        listen_.Reset();
        (void)unlink(path_.c_str());
    }
    void Drop() {
        peer_.Reset();
        received_.clear();
    }
    bool Accept(int timeout_ms = 10000) {
        pollfd wait = {listen_.get(), POLLIN, 0};
        if (poll(&wait, 1, timeout_ms) != 1) return false;
        peer_ = Fd(accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        received_.clear();
        return peer_.ok();
    }
    void Send(const std::string& bytes) {
        ASSERT_EQ(send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    }
    std::optional<Answered> Receive(int timeout_ms = 10000) {
        const uint64_t end = BootNow() + static_cast<uint64_t>(timeout_ms) * 1'000'000;
        while (true) {
            if (auto frame = TakeAnswered(&received_)) return frame;
            const uint64_t now = BootNow();
            pollfd wait = {peer_.get(), POLLIN, 0};
            if (now >= end || poll(&wait, 1, static_cast<int>((end - now) / 1'000'000 + 1)) != 1) return std::nullopt;
            char buffer[4096];
            const ssize_t n = read(peer_.get(), buffer, sizeof(buffer));
            if (n <= 0) return std::nullopt;
            received_.append(buffer, static_cast<size_t>(n));
        }
    }
    // The other end has closed it: nothing but its end is there to read.
    bool Closed(int timeout_ms = 10000) {
        while (Receive(timeout_ms)) {
        }
        pollfd wait = {peer_.get(), POLLIN, 0};
        char byte;
        return poll(&wait, 1, timeout_ms) == 1 && recv(peer_.get(), &byte, 1, MSG_DONTWAIT) <= 0;
    }
    // As a runtime does it, with what runs already.
    void Handshake(const SynchronizeRequest& running = {}, int64_t request_timeout_ms = 2000) {
        ASSERT_TRUE(Accept());
        const auto registration = Receive();
        ASSERT_TRUE(registration.has_value());
        EXPECT_EQ(registration->connection, 2u);
        Send(RegisteredBytes());
        Send(CallBytes(1, "Configure", Configuration(request_timeout_ms)));
        ASSERT_TRUE(Receive().has_value());
        Send(CallBytes(3, "Synchronize", running));
        ASSERT_TRUE(Receive().has_value());
    }

  private:
    const std::string path_;
    Fd listen_, peer_;
    std::string received_;
};

}  // namespace stockade::nri
