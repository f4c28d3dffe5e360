#include "userspace/guest/frame.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace stockade::guest {
namespace {

constexpr char kMagic[2] = {'S', 'G'};

uint32_t Length(absl::string_view header) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i)
        value |= static_cast<uint32_t>(static_cast<uint8_t>(header[4 + i])) << (8 * i);
    return value;
}

}  // namespace

const char* PortName(Port port) {
    switch (port) {
        case Port::kControl:
            return "control";
        case Port::kStdio:
            return "stdio";
        case Port::kEvents:
            return "events";
        case Port::kOut:
            return "out";
    }
    return "?";
}

std::optional<size_t> MaxBodyBytes(uint8_t kind) {
    switch (static_cast<Kind>(kind)) {
        case Kind::kRun:
            return kMaxRunBytes;
        case Kind::kStdin:
        case Kind::kStdout:
        case Kind::kStderr:
        case Kind::kRecords:
        case Kind::kEntryData:
            return kMaxDataBytes;
        case Kind::kHello:
        case Kind::kFailed:
        case Kind::kExited:
        case Kind::kEnd:
        case Kind::kEntry:
        case Kind::kSkipped:
            return kMaxMessageBytes;
        case Kind::kStdinEnd:
        case Kind::kAck:
        case Kind::kStarted:
            return 0;
    }
    return std::nullopt;
}

std::string EncodeFrame(Kind kind, absl::string_view body) {
    if (body.size() > MaxBodyBytes(static_cast<uint8_t>(kind)).value_or(0)) abort();
    std::string out(kMagic, sizeof(kMagic));
    out.push_back(static_cast<char>(kProtocolVersion));
    out.push_back(static_cast<char>(kind));
    for (size_t i = 0; i < 4; ++i) out.push_back(static_cast<char>(body.size() >> (8 * i)));
    out.append(body.data(), body.size());
    return out;
}

StatusOr<std::string> EncodeMessage(Kind kind, const google::protobuf::MessageLite& message) {
    const size_t size = message.ByteSizeLong();
    const size_t most = MaxBodyBytes(static_cast<uint8_t>(kind)).value_or(0);
    if (size > most) {
        return absl::ResourceExhaustedError(
            absl::StrCat("a ", message.GetTypeName(), " of ", size, " bytes is larger than ", most));
    }
    return EncodeFrame(kind, message.SerializeAsString());
}

void FrameReader::Add(absl::string_view bytes) {
    // What was handed out goes first: its views are done with, by contract.
    buffer_.erase(0, used_);
    used_ = 0;
    if (failed_.ok()) buffer_.append(bytes.data(), bytes.size());
}

StatusOr<std::optional<Frame>> FrameReader::Next() {
    SK_RETURN_IF_ERROR(failed_);
    const absl::string_view rest = absl::string_view(buffer_).substr(used_);
    if (rest.size() < kHeaderBytes) return std::optional<Frame>();
    const auto version = static_cast<uint8_t>(rest[2]);
    const auto kind = static_cast<uint8_t>(rest[3]);
    const std::optional<size_t> most = MaxBodyBytes(kind);
    if (rest[0] != kMagic[0] || rest[1] != kMagic[1]) {
        failed_ = absl::InvalidArgumentError("bytes that are no frame");
    } else if (version != kProtocolVersion) {
        failed_ = absl::InvalidArgumentError(
            absl::StrCat("a frame of protocol ", version, ", not ", kProtocolVersion));
    } else if (!most.has_value()) {
        failed_ = absl::InvalidArgumentError(absl::StrCat("a frame of unknown kind ", kind));
    } else if (Length(rest) > *most) {
        failed_ = absl::ResourceExhaustedError(absl::StrCat("a frame of kind ", kind, " that promises ",
                                                            Length(rest), " bytes; it may have ", *most));
    }
    SK_RETURN_IF_ERROR(failed_);
    if (rest.size() < kHeaderBytes + Length(rest)) return std::optional<Frame>();
    Frame frame{.kind = static_cast<Kind>(kind), .body = rest.substr(kHeaderBytes, Length(rest))};
    used_ += kHeaderBytes + frame.body.size();
    return std::optional<Frame>(frame);
}

}  // namespace stockade::guest
