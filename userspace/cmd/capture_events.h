// Captured packets as the events that a sandbox in the client's place would have given: connections begun, first
// datagrams, DNS queries. A client's address stands for the sandbox; of processes a capture knows nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <tuple>

#include "userspace/base/status.h"
#include "userspace/dns/capture.h"
#include "userspace/dns/packet.h"
#include "userspace/dns/tcp_stream.h"
#include "userspace/model/event.pb.h"

namespace stockade::cmd {

class CaptureEvents {
  public:
    struct Counters {
        uint64_t packets = 0;
        uint64_t others = 0;     // neither TCP nor UDP over IP
        uint64_t fragments = 0;  // of which no port is known
        uint64_t forgotten =
            0;  // times that too many flows were under way: their next datagrams are first ones again
        uint64_t lost_streams = 0;  // DNS over TCP that could not be joined
    };
    using Each = std::function<void(v1::Event&&)>;

    // A pcap or pcapng file, gzipped or not; - is standard input. Errors name the byte.
    Status Read(const std::string& path, const Each& each);
    const Counters& counters() const { return counters_; }

    // Flows that are remembered: a busy host's of some minutes, at 64 bytes each.
    static constexpr size_t kMaxFlows = 65'536;

  private:
    // Both ends in a fixed order, and what tells two connections of the same ends apart.
    using Flow = std::tuple<dns::Address, uint16_t, dns::Address, uint16_t, uint64_t>;

    void TakeFrame(const dns::Packet& packet, const Each& each);
    void TakeQuery(const dns::Segment& segment, absl::string_view message, const Each& each);
    bool IsFirst(const dns::Segment& segment);
    v1::Event Blank(const dns::Segment& segment) const;

    std::set<Flow> flows_;
    dns::TcpStreams streams_;
    uint64_t time_ns_ = 0;  // of the packet at hand
    Counters counters_;
};

}  // namespace stockade::cmd
