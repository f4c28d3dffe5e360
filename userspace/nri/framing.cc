#include "userspace/nri/framing.h"

#include "absl/strings/str_cat.h"

namespace stockade::nri {
namespace {

uint32_t ReadU32(absl::string_view bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return value;
}

void AppendU32(uint32_t value, std::string* out) {
    for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

// What was read goes when there is more of it than of what was not: so each byte is moved once.
void DropRead(std::string* buffer, size_t* at) {
    if (*at < buffer->size() - *at && *at != buffer->size()) return;
    buffer->erase(0, *at);
    *at = 0;
}

}  // namespace

StatusOr<std::optional<TrunkFrame>> TrunkParser::Next() {
    if (!broken_.ok()) return broken_;
    if (buffered_bytes() < kTrunkHeaderBytes) return std::nullopt;
    const absl::string_view rest = absl::string_view(buffer_).substr(at_);
    TrunkFrame frame{.connection = ReadU32(rest)};
    const uint32_t length = ReadU32(rest.substr(4));
    if (frame.connection != kPluginConnection && frame.connection != kRuntimeConnection) {
        return broken_ = absl::InvalidArgumentError(absl::StrCat("a frame of the trunk is for connection ", frame.connection,
                                                                 ", which there is not: not NRI, or another version of it"));
    }
    if (length > kMaxTrunkBytes) {
        return broken_ = absl::ResourceExhaustedError(
                   absl::StrCat("a frame of the trunk has ", length, " bytes, at most ", kMaxTrunkBytes));
    }
    if (rest.size() < kTrunkHeaderBytes + length) return std::nullopt;
    frame.payload = std::string(rest.substr(kTrunkHeaderBytes, length));
    at_ += kTrunkHeaderBytes + length;
    DropRead(&buffer_, &at_);
    return frame;
}

StatusOr<std::optional<RpcFrame>> RpcParser::Next() {
    if (!broken_.ok()) return broken_;
    if (buffered_bytes() < kRpcHeaderBytes) return std::nullopt;
    const absl::string_view rest = absl::string_view(buffer_).substr(at_);
    const uint32_t length = ReadU32(rest);
    const auto type = static_cast<uint8_t>(rest[8]);
    RpcFrame frame{.stream = ReadU32(rest.substr(4)), .type = static_cast<RpcType>(type), .flags = static_cast<uint8_t>(rest[9])};
    if (length > kMaxRpcBytes) {
        return broken_ =
                   absl::ResourceExhaustedError(absl::StrCat("a ttRPC message has ", length, " bytes, at most ", kMaxRpcBytes));
    }
    if (type < static_cast<uint8_t>(RpcType::kRequest) || type > static_cast<uint8_t>(RpcType::kData)) {
        return broken_ = absl::InvalidArgumentError(absl::StrCat("a ttRPC message is of type ", type, ", which there is not"));
    }
    if (rest.size() < kRpcHeaderBytes + length) return std::nullopt;
    frame.data = std::string(rest.substr(kRpcHeaderBytes, length));
    at_ += kRpcHeaderBytes + length;
    DropRead(&buffer_, &at_);
    return frame;
}

StatusOr<std::string> EncodeFrame(uint32_t connection, const RpcFrame& frame) {
    if (frame.data.size() > kMaxRpcBytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("a ttRPC message of ", frame.data.size(), " bytes, at most ", kMaxRpcBytes));
    }
    std::string out;
    out.reserve(kTrunkHeaderBytes + kRpcHeaderBytes + frame.data.size());
    AppendU32(connection, &out);
    AppendU32(static_cast<uint32_t>(kRpcHeaderBytes + frame.data.size()), &out);
    AppendU32(static_cast<uint32_t>(frame.data.size()), &out);
    AppendU32(frame.stream, &out);
    out.push_back(static_cast<char>(frame.type));
    out.push_back(static_cast<char>(frame.flags));
    out.append(frame.data);
    return out;
}

}  // namespace stockade::nri
