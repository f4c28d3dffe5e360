// From a captured frame to what its UDP datagram or TCP segment carries.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace stockade::dns {

// 16 bytes in network order, IPv4 mapped (::ffff:0:0/96).
using Address = std::array<uint8_t, 16>;
// "10.0.0.1", "2001:db8::1".
std::string AddressText(const Address& address);

struct Segment {
    Address from{}, to{};
    uint16_t from_port = 0, to_port = 0;
    bool is_tcp = false;
    bool extension = false;     // an IPv6 extension header stands before it
    bool length_fault = false;  // the UDP length is not the packet's
    bool cut = false;           // not all of it was captured
    uint32_t tcp_seq = 0;
    uint8_t tcp_flags = 0;
    absl::string_view payload;  // part of the frame
};

enum class FrameKind {
    kOther,  // not UDP or TCP over IP, or cut before its ports
    kSegment,
    kFragment,  // of a larger packet; `from`, `to` are set
};

// VLAN tags are skipped. Link types: Ethernet, raw IP, BSD loopback, Linux cooked 1 and 2.
FrameKind ReadFrame(uint32_t link, absl::string_view frame, Segment* segment);
// Whether ReadFrame knows this link type at all.
bool IsKnownLink(uint32_t link);

}  // namespace stockade::dns
