// DNS messages out of TCP segments: each has its length before it (RFC 1035 4.2.2).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "userspace/dns/packet.h"

namespace stockade::dns {

// Joins the segments of each direction of each connection in order. What comes early, after a gap
// in the capture, waits; a direction whose buffer is full is given up. Bounded by kMaxStreams.
class TcpStreams {
  public:
    // Calls `on_message` for each whole message; the view is valid during the call.
    void Add(const Segment& segment, absl::FunctionRef<void(absl::string_view)> on_message);
    uint64_t given_up() const { return given_up_; }

    static constexpr size_t kMaxStreams = 1024;
    static constexpr size_t kMaxBuffer = 128 * 1024;

  private:
    struct Key {
        Address from, to;
        uint16_t from_port, to_port;
        auto operator<=>(const Key&) const = default;
    };
    struct Stream {
        uint32_t next = 0;  // sequence number of the next byte
        std::string ready;
        std::map<uint32_t, std::string> early;  // by distance from `base`
        uint32_t base = 0;
        size_t early_bytes = 0;
        bool dead = false;
    };

    static void Take(Stream& stream, uint32_t seq, absl::string_view payload);
    static void TakeEarly(Stream& stream);
    void Kill(Stream& stream);

    std::map<Key, Stream> streams_;
    uint64_t given_up_ = 0;
};

}  // namespace stockade::dns
