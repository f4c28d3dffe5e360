#include "userspace/dns/packet.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "bpf/wire/dns_message.h"

namespace stockade::dns {
namespace {

constexpr uint32_t kLinkNull = 0, kLinkEthernet = 1, kLinkRaw = 101, kLinkLoop = 108, kLinkSll = 113,
                   kLinkIpv4 = 228, kLinkIpv6 = 229, kLinkSll2 = 276;
// Also written for raw IP by some systems (OpenBSD and old libpcap).
constexpr uint32_t kLinkRawBsd = 12, kLinkRawOpenBsd = 14;
constexpr uint16_t kEtherIpv4 = 0x0800, kEtherIpv6 = 0x86dd, kEtherVlan = 0x8100, kEtherQinQ = 0x88a8;
constexpr uint8_t kTcp = 6, kUdp = 17, kHopByHop = 0, kRouting = 43, kFragmentHead = 44, kDestination = 60;

const uint8_t* Bytes(absl::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }
uint16_t U16(absl::string_view text, size_t at) {
    return static_cast<uint16_t>(sk_dns_u16(Bytes(text) + at));
}

// Cuts the link header; the rest begins with an IP header, or is empty.
absl::string_view SkipEthernet(absl::string_view frame, size_t type_at) {
    // Two tags are as many as networks use.
    for (int tags = 0; tags <= 2 && frame.size() >= type_at + 2; ++tags) {
        const uint16_t type = U16(frame, type_at);
        if (type == kEtherIpv4 || type == kEtherIpv6) return frame.substr(type_at + 2);
        if (type != kEtherVlan && type != kEtherQinQ) break;
        type_at += 4;
    }
    return {};
}

absl::string_view SkipLink(uint32_t link, absl::string_view frame) {
    const auto skip = [&](size_t bytes) {
        return frame.size() > bytes ? frame.substr(bytes) : absl::string_view();
    };
    switch (link) {
        case kLinkEthernet:
            return SkipEthernet(frame, 12);
        case kLinkSll:
            return SkipEthernet(frame, 14);
        case kLinkNull:
        case kLinkLoop:
            return skip(4);
        case kLinkSll2:
            return skip(20);
        default:
            return frame;
    }
}

void SetIpv4(absl::string_view bytes, Address* out) {
    out->fill(0);
    (*out)[10] = (*out)[11] = 0xff;
    memcpy(out->data() + 12, bytes.data(), 4);
}

FrameKind ReadTransport(uint8_t protocol, absl::string_view bytes, Segment* segment) {
    if (bytes.size() < 8) return FrameKind::kOther;
    segment->from_port = U16(bytes, 0);
    segment->to_port = U16(bytes, 2);
    if (protocol == kUdp) {
        const size_t length = U16(bytes, 4);
        segment->length_fault = length < 8 || (length != bytes.size() && !segment->cut);
        segment->payload = bytes.substr(8, std::max<size_t>(length, 8) - 8);
        return FrameKind::kSegment;
    }
    if (protocol != kTcp || bytes.size() < 20) return FrameKind::kOther;
    const size_t head = size_t{4} * (Bytes(bytes)[12] >> 4);
    if (head < 20 || head > bytes.size()) return FrameKind::kOther;
    segment->is_tcp = true;
    segment->tcp_seq = sk_dns_u32(Bytes(bytes) + 4);
    segment->tcp_flags = Bytes(bytes)[13];
    segment->payload = bytes.substr(head);
    return FrameKind::kSegment;
}

FrameKind ReadIpv4(absl::string_view packet, Segment* segment) {
    if (packet.size() < 20) return FrameKind::kOther;
    const size_t head = size_t{4} * (Bytes(packet)[0] & 0x0f), total = U16(packet, 2);
    if (head < 20 || head > packet.size() || total < head) return FrameKind::kOther;
    SetIpv4(packet.substr(12, 4), &segment->from);
    SetIpv4(packet.substr(16, 4), &segment->to);
    // More fragments, or not the first.
    if (U16(packet, 6) & 0x3fff) return FrameKind::kFragment;
    segment->cut = total > packet.size();
    // Ethernet pads short frames: only the packet's own bytes count.
    return ReadTransport(Bytes(packet)[9], packet.substr(head, total - head), segment);
}

FrameKind ReadIpv6(absl::string_view packet, Segment* segment) {
    if (packet.size() < 40) return FrameKind::kOther;
    memcpy(segment->from.data(), packet.data() + 8, 16);
    memcpy(segment->to.data(), packet.data() + 24, 16);
    const size_t length = U16(packet, 4);
    segment->cut = length > packet.size() - 40;
    uint8_t next = Bytes(packet)[6];
    absl::string_view rest = packet.substr(40, length);
    // Longer chains are nobody's; they end as kOther.
    for (int i = 0; i < 8; ++i) {
        if (next == kFragmentHead) return FrameKind::kFragment;
        if (next != kHopByHop && next != kRouting && next != kDestination) break;
        if (rest.size() < 8) return FrameKind::kOther;
        segment->extension = true;
        const size_t head = 8 * (size_t{Bytes(rest)[1]} + 1);
        next = Bytes(rest)[0];
        rest.remove_prefix(std::min(head, rest.size()));
    }
    return ReadTransport(next, rest, segment);
}

}  // namespace

std::string AddressText(const Address& address) {
    char text[INET6_ADDRSTRLEN];
    const bool mapped =
        std::all_of(address.begin(), address.begin() + 10, [](uint8_t b) { return b == 0; }) &&
        address[10] == 0xff && address[11] == 0xff;
    inet_ntop(mapped ? AF_INET : AF_INET6, address.data() + (mapped ? 12 : 0), text, sizeof(text));
    return text;
}

bool IsKnownLink(uint32_t link) {
    switch (link) {
        case kLinkNull:
        case kLinkEthernet:
        case kLinkRaw:
        case kLinkLoop:
        case kLinkSll:
        case kLinkSll2:
        case kLinkIpv4:
        case kLinkIpv6:
        case kLinkRawBsd:
        case kLinkRawOpenBsd:
            return true;
        default:
            return false;
    }
}

FrameKind ReadFrame(uint32_t link, absl::string_view frame, Segment* segment) {
    *segment = Segment();
    if (!IsKnownLink(link)) return FrameKind::kOther;
    const absl::string_view packet = SkipLink(link, frame);
    if (packet.empty()) return FrameKind::kOther;
    const int version = Bytes(packet)[0] >> 4;
    if (version == 4) return ReadIpv4(packet, segment);
    if (version == 6) return ReadIpv6(packet, segment);
    return FrameKind::kOther;
}

}  // namespace stockade::dns
