#include "userspace/api/frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace stockade::api {
namespace {

// "SKAP": a stray HTTP client or an older tool is told apart from a short read.
constexpr char kMagic[4] = {'S', 'K', 'A', 'P'};

uint32_t Load(absl::string_view bytes, size_t at, size_t count) {
    uint32_t value = 0;
    for (size_t i = 0; i < count; ++i) {
        value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
    }
    return value;
}

void Store(std::string* out, uint32_t value, size_t count) {
    for (size_t i = 0; i < count; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

StatusOr<std::string> EncodeFrame(const Message& message) {
    const size_t size = message.ByteSizeLong();
    if (size > kMaxFrameBytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("a message of ", size, " bytes is larger than the socket's limit of ",
                         kMaxFrameBytes, ": shorten the command, its environment or the policy"));
    }
    std::string out(kMagic, sizeof(kMagic));
    Store(&out, kProtocolVersion, 2);
    Store(&out, 0, 2);
    Store(&out, static_cast<uint32_t>(size), 4);
    if (!message.AppendToString(&out)) return absl::InternalError("a message cannot be encoded");
    return out;
}

StatusOr<Header> ParseHeader(absl::string_view bytes) {
    if (bytes.size() < kHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
        return absl::InvalidArgumentError("these bytes are not of Stockade's protocol");
    }
    const uint32_t version = Load(bytes, 4, 2);
    if (version != kProtocolVersion) {
        return absl::FailedPreconditionError(absl::StrCat("the other side speaks protocol ", version,
                                                          ", this one ", kProtocolVersion,
                                                          ": use stockade and stockaded of one release"));
    }
    Header header{.body_bytes = Load(bytes, 8, 4)};
    if (header.body_bytes > kMaxFrameBytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("a frame of ", header.body_bytes, " bytes is larger than ", kMaxFrameBytes));
    }
    return header;
}

StatusOr<Message> ParseBody(absl::string_view body) {
    Message message;
    if (!message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
        return absl::InvalidArgumentError("a frame holds no valid message");
    }
    return message;
}

StatusOr<std::optional<Message>> FrameParser::Next() {
    const absl::string_view rest = absl::string_view(buffer_).substr(used_);
    if (rest.size() < kHeaderBytes) return std::optional<Message>();
    SK_ASSIGN_OR_RETURN(const Header header, ParseHeader(rest));
    if (rest.size() < kHeaderBytes + header.body_bytes) return std::optional<Message>();
    SK_ASSIGN_OR_RETURN(Message message, ParseBody(rest.substr(kHeaderBytes, header.body_bytes)));
    used_ += kHeaderBytes + header.body_bytes;
    if (used_ == buffer_.size() || used_ > kMaxFrameBytes) {
        buffer_.erase(0, used_);
        used_ = 0;
    }
    return std::optional<Message>(std::move(message));
}

}  // namespace stockade::api
