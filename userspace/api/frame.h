// How a Message lies in the byte stream of the socket: 12 bytes of header, then the protobuf.
//
// Everything here is pure and takes hostile bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/api/agent.pb.h"
#include "userspace/base/status.h"

namespace stockade::api {

using namespace ::stockade::api::v1;

// Grows when a message changes its meaning; the other side must have the same.
inline constexpr uint16_t kProtocolVersion = 1;
// argv and env of one command may be 2 MiB in all for Linux, but no tool call is near: 1 MiB
// keeps what one connection can make the agent hold small.
inline constexpr size_t kMaxFrameBytes = 1 << 20;
inline constexpr size_t kHeaderBytes = 12;
// Descriptors with one frame: session, stdio, directories and 64 binds (the kernel allows 253).
inline constexpr size_t kMaxFds = 80;

// kResourceExhausted when the message is larger than kMaxFrameBytes.
StatusOr<std::string> EncodeFrame(const Message& message);

struct Header {
    uint32_t body_bytes = 0;
};
// `bytes` has at least kHeaderBytes. kInvalidArgument for what is no frame of ours,
// kFailedPrecondition for another protocol version, kResourceExhausted for a too large one.
StatusOr<Header> ParseHeader(absl::string_view bytes);
StatusOr<Message> ParseBody(absl::string_view body);

// Cuts a stream into messages.
//
//   parser.Add(chunk);
//   while (true) { SK_ASSIGN_OR_RETURN(auto message, parser.Next()); if (!message) break; ... }
class FrameParser {
  public:
    void Add(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
    // Nothing when more bytes are needed. After an error the stream is of no use any more.
    StatusOr<std::optional<Message>> Next();
    size_t buffered_bytes() const { return buffer_.size() - used_; }

  private:
    std::string buffer_;
    size_t used_ = 0;  // bytes of buffer_ already handed out
};

}  // namespace stockade::api
