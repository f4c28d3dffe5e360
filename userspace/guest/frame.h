// How the words of host and guest lie in a byte stream: 8 bytes of header, then the body.
//
//   'S' 'G'  version (1 byte)  kind (1 byte)  length of the body (4 bytes, little endian)
//
// Nothing here knows what carries the bytes: virtio-serial ports now, vsock as well. Pure, and takes hostile bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/guest/guest.pb.h"

namespace stockade::guest {

using namespace ::stockade::guest::v1;

// Grows when a frame changes its meaning; both sides have the same, since the host gives the guest its init.
inline constexpr uint8_t kProtocolVersion = 1;
inline constexpr size_t kHeaderBytes = 8;
// Bytes of a stream in one frame: what a pipe holds, so that a relay needs one read for one frame.
inline constexpr size_t kMaxDataBytes = 64 << 10;
// argv and env of one command: as much as one message of the local socket may have (userspace/api/frame.h).
inline constexpr size_t kMaxRunBytes = 1 << 20;
// Messages of the guest; the longest has a path of 4096 bytes (PATH_MAX) and some numbers.
inline constexpr size_t kMaxMessageBytes = 8 << 10;

// One stream each. The names are those of the virtio-serial ports.
enum class Port : uint8_t { kControl, kStdio, kEvents, kOut };
inline constexpr size_t kPorts = 4;
const char* PortName(Port port);

enum class Kind : uint8_t {
    // Host to guest.
    kRun = 1,
    kStdin = 2,     // bytes
    kStdinEnd = 3,  // empty
    kAck = 4,       // empty: the host has all of it, the guest may power off
    // Guest to host.
    kHello = 16,
    kStarted = 17,  // empty
    kFailed = 18,
    kExited = 19,
    kEnd = 20,
    kStdout = 21,   // bytes
    kStderr = 22,   // bytes
    kRecords = 23,  // bytes: events of the guest's agent
    kEntry = 24,
    kEntryData = 25,  // bytes
    kSkipped = 26,
};
// Nothing for a number that is no kind.
std::optional<size_t> MaxBodyBytes(uint8_t kind);

struct Frame {
    Kind kind = Kind::kAck;
    absl::string_view body;  // valid until the reader is used again
};

// `body` is at most MaxBodyBytes(kind): CHECKed, since whoever encodes has measured it.
std::string EncodeFrame(Kind kind, absl::string_view body);
// kResourceExhausted when it is too large.
StatusOr<std::string> EncodeMessage(Kind kind, const google::protobuf::MessageLite& message);

// Parses the body of a frame; the message says what it was to be.
template <typename Message>
StatusOr<Message> ParseMessage(absl::string_view body) {
    Message message;
    if (!message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
        return absl::InvalidArgumentError("a frame that holds no " + std::string(message.GetTypeName()));
    }
    return message;
}

// Cuts a stream into frames.
//
//   reader.Add(chunk);
//   while (true) { SK_ASSIGN_OR_RETURN(auto frame, reader.Next()); if (!frame) break; ... }
//
// Holds at most one frame and what was added. After an error it gives errors only.
class FrameReader {
  public:
    void Add(absl::string_view bytes);
    // Nothing when more bytes are needed. A header that promises too much is refused before its body is waited for.
    StatusOr<std::optional<Frame>> Next();
    size_t buffered_bytes() const { return buffer_.size() - used_; }

  private:
    std::string buffer_;
    size_t used_ = 0;
    Status failed_;
};

}  // namespace stockade::guest
