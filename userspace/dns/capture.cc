#include "userspace/dns/capture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stockade::dns {
namespace {

// libpcap's MAXIMUM_SNAPLEN: nothing on a wire is larger; a larger length is a broken file.
constexpr uint32_t kMaxPacket = 256 * 1024;
constexpr uint32_t kMaxBlock = 16 * 1024 * 1024;  // name resolution and secrets blocks can be large
constexpr size_t kMaxInterfaces = 4096;
constexpr uint32_t kPcapMicro = 0xa1b2c3d4, kPcapNano = 0xa1b23c4d;
constexpr uint32_t kSectionBlock = 0x0a0d0d0a, kByteOrder = 0x1a2b3c4d;
constexpr uint32_t kInterfaceBlock = 1, kObsoleteBlock = 2, kSimpleBlock = 3, kEnhancedBlock = 6;
constexpr uint32_t kOptionEnd = 0, kOptionResolution = 9, kOptionOffset = 14;
constexpr size_t kPcapHead = 24, kPcapRecord = 16;

uint32_t Little(absl::string_view bytes) {
    const auto at = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])); };
    return at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24;
}

uint32_t Swapped(uint32_t value) { return __builtin_bswap32(value); }

bool IsPcap(uint32_t magic) { return magic == kPcapMicro || magic == kPcapNano; }

}  // namespace

bool LooksLikeCapture(absl::string_view first_bytes) {
    if (first_bytes.size() < 4) return false;
    const uint32_t magic = Little(first_bytes);
    return IsPcap(magic) || IsPcap(Swapped(magic)) || magic == kSectionBlock;
}

uint16_t CaptureReader::U16(absl::string_view bytes, size_t at) const {
    const auto byte = [&](size_t i) { return static_cast<uint16_t>(static_cast<uint8_t>(bytes[at + i])); };
    return static_cast<uint16_t>(big_endian_ ? byte(0) << 8 | byte(1) : byte(1) << 8 | byte(0));
}

uint32_t CaptureReader::U32(absl::string_view bytes, size_t at) const {
    const uint32_t value = Little(bytes.substr(at, 4));
    return big_endian_ ? Swapped(value) : value;
}

uint64_t CaptureReader::TimeOf(const Interface& interface, uint64_t units) const {
    const uint64_t per_second = interface.units_per_second;
    // Hostile files have any time: wrapping is as good as anything.
    const uint64_t seconds = units / per_second + interface.offset_s;
    const auto part = static_cast<unsigned __int128>(units % per_second) * 1'000'000'000 / per_second;
    return seconds * 1'000'000'000 + static_cast<uint64_t>(part);
}

Status CaptureReader::StartPcap(absl::string_view head) {
    form_ = kPcap;
    uint32_t magic = Little(head);
    big_endian_ = !IsPcap(magic);
    if (big_endian_) magic = Swapped(magic);
    Interface interface;
    // The upper bits tell of frame check sequences.
    interface.link = U32(head, 20) & 0x0fffffff;
    interface.units_per_second = magic == kPcapNano ? 1'000'000'000 : 1'000'000;
    interfaces_ = {interface};
    return absl::OkStatus();
}

Status CaptureReader::Start() {
    SK_ASSIGN_OR_RETURN(const absl::string_view magic, bytes_.Peek(4));
    if (!LooksLikeCapture(magic)) return bytes_.Error("neither pcap nor pcapng");
    if (Little(magic) == kSectionBlock) {
        form_ = kPcapng;
        return absl::OkStatus();
    }
    SK_ASSIGN_OR_RETURN(const absl::string_view head, bytes_.Take(kPcapHead));
    return StartPcap(head);
}

StatusOr<bool> CaptureReader::NextPcap(Packet* packet) {
    packet->offset = bytes_.offset();
    bool at_end = false;
    SK_ASSIGN_OR_RETURN(const absl::string_view head, bytes_.Take(kPcapRecord, &at_end));
    if (at_end) return false;
    const uint32_t captured = U32(head, 8);
    packet->link = interfaces_[0].link;
    packet->time_ns = TimeOf(interfaces_[0], U32(head, 0) * interfaces_[0].units_per_second + U32(head, 4));
    if (captured > kMaxPacket) return bytes_.Error(absl::StrCat("a packet of ", captured, " bytes"));
    SK_ASSIGN_OR_RETURN(packet->bytes, bytes_.Take(captured));
    return true;
}

// The body of the next block; its length stands before and after it.
StatusOr<absl::string_view> CaptureReader::TakeBlock(uint32_t* type, bool* at_end) {
    SK_ASSIGN_OR_RETURN(const absl::string_view taken, bytes_.Take(8, at_end));
    if (*at_end) return taken;
    const std::string head(taken);  // a look further on may move the buffer
    // The section's own block says how it is to be read.
    if (Little(head) == kSectionBlock) {
        SK_ASSIGN_OR_RETURN(const absl::string_view order, bytes_.Peek(4));
        if (order.size() < 4 || (Little(order) != kByteOrder && Swapped(Little(order)) != kByteOrder))
            return bytes_.Error("a section without its byte order");
        big_endian_ = Little(order) != kByteOrder;
    }
    *type = U32(head, 0);
    const uint32_t length = U32(head, 4);
    if (length < 12 || length % 4 != 0 || length > kMaxBlock)
        return bytes_.Error(absl::StrCat("a block of ", length, " bytes"));
    SK_ASSIGN_OR_RETURN(absl::string_view body, bytes_.Take(length - 8));
    if (U32(body, body.size() - 4) != length) return bytes_.Error("a block whose two lengths differ");
    return body.substr(0, body.size() - 4);
}

Status CaptureReader::StartSection(absl::string_view body) {
    if (body.size() < 16) return bytes_.Error("a section block that is cut");
    if (U16(body, 4) != 1) return bytes_.Error(absl::StrCat("pcapng of version ", U16(body, 4)));
    interfaces_.clear();
    return absl::OkStatus();
}

Status CaptureReader::ReadOption(uint32_t code, absl::string_view value, Interface* interface) const {
    if (code == kOptionResolution && !value.empty()) {
        const auto resolution = static_cast<uint8_t>(value[0]);
        const uint32_t exponent = resolution & 0x7f;
        // Beyond nanoseconds no clock goes; 64 bits hold 10^19 and 2^63.
        if (exponent > (resolution & 0x80 ? 63u : 18u))
            return bytes_.Error("a resolution of time beyond any clock");
        interface->units_per_second = 1;
        for (uint32_t i = 0; i < exponent; ++i) interface->units_per_second *= resolution & 0x80 ? 2 : 10;
    }
    if (code == kOptionOffset && value.size() >= 8) {
        const uint64_t first = U32(value, 0), second = U32(value, 4);
        interface->offset_s = big_endian_ ? first << 32 | second : second << 32 | first;
    }
    return absl::OkStatus();
}

Status CaptureReader::AddInterface(absl::string_view body) {
    if (body.size() < 8) return bytes_.Error("an interface block that is cut");
    if (interfaces_.size() >= kMaxInterfaces) return bytes_.Error("too many interfaces");
    Interface interface;
    interface.link = U16(body, 0);
    absl::string_view options = body.substr(8);
    while (options.size() >= 4) {
        const uint32_t code = U16(options, 0), length = U16(options, 2);
        if (code == kOptionEnd) break;
        if (length > options.size() - 4) return bytes_.Error("an option that runs past its block");
        SK_RETURN_IF_ERROR(ReadOption(code, options.substr(4, length), &interface));
        options.remove_prefix(std::min<size_t>(options.size(), 4 + (length + 3) / 4 * 4));
    }
    interfaces_.push_back(interface);
    return absl::OkStatus();
}

Status CaptureReader::ReadEnhanced(absl::string_view body, Packet* packet) const {
    if (body.size() < 20) return bytes_.Error("a packet block that is cut");
    const uint32_t interface = U32(body, 0), captured = U32(body, 12);
    if (interface >= interfaces_.size())
        return bytes_.Error(absl::StrCat("a packet of interface ", interface, ", which is not there"));
    if (captured > body.size() - 20 || captured > kMaxPacket)
        return bytes_.Error("a packet that runs past its block");
    packet->link = interfaces_[interface].link;
    packet->time_ns = TimeOf(interfaces_[interface], uint64_t{U32(body, 4)} << 32 | U32(body, 8));
    packet->bytes = body.substr(20, captured);
    return absl::OkStatus();
}

Status CaptureReader::ReadSimple(absl::string_view body, Packet* packet) const {
    if (body.size() < 4 || interfaces_.empty())
        return bytes_.Error("a simple packet block that is cut or of no interface");
    packet->link = interfaces_[0].link;
    packet->time_ns = 0;  // it has none
    packet->bytes = body.substr(4, U32(body, 0));
    return absl::OkStatus();
}

StatusOr<bool> CaptureReader::NextBlock(Packet* packet) {
    while (true) {
        packet->offset = bytes_.offset();
        uint32_t type = 0;
        bool at_end = false;
        SK_ASSIGN_OR_RETURN(const absl::string_view body, TakeBlock(&type, &at_end));
        if (at_end) return false;
        switch (type) {
            case kSectionBlock:
                SK_RETURN_IF_ERROR(StartSection(body));
                break;
            case kInterfaceBlock:
                SK_RETURN_IF_ERROR(AddInterface(body));
                break;
            case kEnhancedBlock:
                SK_RETURN_IF_ERROR(ReadEnhanced(body, packet));
                return true;
            case kSimpleBlock:
                SK_RETURN_IF_ERROR(ReadSimple(body, packet));
                return true;
            case kObsoleteBlock:
                return bytes_.Error(
                    "a packet block of the form that was dropped in 2009; convert the file with a newer "
                    "tool");
            default:  // statistics, names, secrets: not packets
                break;
        }
    }
}

StatusOr<bool> CaptureReader::Next(Packet* packet) {
    if (form_ == kUnread) SK_RETURN_IF_ERROR(Start());
    return form_ == kPcap ? NextPcap(packet) : NextBlock(packet);
}

}  // namespace stockade::dns
