// The two framings below NRI, as bytes: the trunk that carries several connections in one socket, and ttRPC in each of them.
//
//   trunk   u32 connection | u32 length | payload            (big-endian; a payload is a piece of its connection's stream)
//   ttRPC   u32 length | u32 stream | u8 type | u8 flags | data
//
// Pure. What comes in is the runtime's, which is root; it is bounded and checked all the same, as a runtime of another version may
// say anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::nri {

// Connections of the trunk: on the first the runtime asks and we answer, on the second the other way round.
inline constexpr uint32_t kPluginConnection = 1;
inline constexpr uint32_t kRuntimeConnection = 2;

inline constexpr size_t kTrunkHeaderBytes = 8;
inline constexpr size_t kRpcHeaderBytes = 10;
inline constexpr size_t kMaxRpcBytes = 4 << 20;  // ttRPC's own limit for the data of a message
inline constexpr size_t kMaxTrunkBytes = kRpcHeaderBytes + kMaxRpcBytes;  // and NRI's for a payload

enum class RpcType : uint8_t { kRequest = 1, kResponse = 2, kData = 3 };
struct RpcFrame {
    uint32_t stream = 0;
    RpcType type = RpcType::kRequest;
    uint8_t flags = 0;
    std::string data{};
};
inline constexpr uint8_t kRpcFlagClosed = 1;  // nothing follows in this direction; unary calls may set it or not
inline constexpr uint8_t kRpcFlagOpen = 2;    // more follows: a stream, which NRI has none of

struct TrunkFrame {
    uint32_t connection = 0;
    std::string payload{};
};

// Takes bytes as they come and gives whole frames. After an error it gives nothing any more.
class TrunkParser {
  public:
    void Add(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
    // kInvalidArgument for a connection that is none of the two, kResourceExhausted for a length beyond kMaxTrunkBytes.
    StatusOr<std::optional<TrunkFrame>> Next();
    size_t buffered_bytes() const { return buffer_.size() - at_; }

  private:
    std::string buffer_;
    size_t at_ = 0;
    Status broken_;
};
class RpcParser {
  public:
    void Add(absl::string_view bytes) { buffer_.append(bytes.data(), bytes.size()); }
    // kInvalidArgument for an unknown type, kResourceExhausted for a length beyond kMaxRpcBytes.
    StatusOr<std::optional<RpcFrame>> Next();
    size_t buffered_bytes() const { return buffer_.size() - at_; }

  private:
    std::string buffer_;
    size_t at_ = 0;
    Status broken_;
};

// One ttRPC message in one frame of the trunk. kResourceExhausted when `data` is too long.
StatusOr<std::string> EncodeFrame(uint32_t connection, const RpcFrame& frame);

}  // namespace stockade::nri
