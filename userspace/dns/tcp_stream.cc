#include "userspace/dns/tcp_stream.h"

#include <algorithm>

#include "bpf/wire/dns_message.h"

namespace stockade::dns {
namespace {
constexpr uint8_t kFin = 0x01, kSyn = 0x02, kRst = 0x04;
}

void TcpStreams::Kill(Stream& stream) {
    stream = Stream();
    stream.dead = true;
    ++given_up_;
}

// Appends what of the payload has not come before; keeps it for later when there is a gap.
void TcpStreams::Take(Stream& stream, uint32_t seq, absl::string_view payload) {
    if (payload.empty()) return;
    const auto ahead = static_cast<int32_t>(seq - stream.next);
    if (ahead > 0) {
        std::string& kept = stream.early[seq - stream.base];
        if (payload.size() <= kept.size()) return;
        stream.early_bytes += payload.size() - kept.size();
        kept = std::string(payload);
        return;
    }
    const size_t old = static_cast<size_t>(-static_cast<int64_t>(ahead));
    if (old >= payload.size()) return;
    payload.remove_prefix(old);
    stream.ready.append(payload.data(), payload.size());
    stream.next += static_cast<uint32_t>(payload.size());
}

void TcpStreams::TakeEarly(Stream& stream) {
    while (!stream.early.empty()) {
        const auto first = stream.early.begin();
        if (static_cast<int32_t>(first->first + stream.base - stream.next) > 0) return;
        const std::string payload = std::move(first->second);
        const uint32_t seq = first->first + stream.base;
        stream.early_bytes -= payload.size();
        stream.early.erase(first);
        Take(stream, seq, payload);
    }
}

void TcpStreams::Add(const Segment& segment, absl::FunctionRef<void(absl::string_view)> on_message) {
    const Key key = {segment.from, segment.to, segment.from_port, segment.to_port};
    auto found = streams_.find(key);
    if (found != streams_.end() && segment.tcp_flags & (kSyn | kRst)) {
        streams_.erase(found);
        found = streams_.end();
    }
    if (segment.tcp_flags & kRst) return;
    if (found == streams_.end()) {
        if (streams_.size() >= kMaxStreams) {
            ++given_up_;
            return;
        }
        found = streams_.emplace(key, Stream()).first;
        const uint32_t first = segment.tcp_seq + (segment.tcp_flags & kSyn ? 1 : 0);
        found->second.next = found->second.base = first;
    }
    Stream& stream = found->second;
    if (stream.dead) return;
    Take(stream, segment.tcp_seq + (segment.tcp_flags & kSyn ? 1 : 0), segment.payload);
    TakeEarly(stream);
    absl::string_view ready = stream.ready;
    while (ready.size() >= 2) {
        const size_t length = sk_dns_u16(reinterpret_cast<const uint8_t*>(ready.data()));
        if (ready.size() < 2 + length) break;
        on_message(ready.substr(2, length));
        ready.remove_prefix(2 + length);
    }
    stream.ready.erase(0, stream.ready.size() - ready.size());
    if (stream.ready.size() + stream.early_bytes > kMaxBuffer) Kill(stream);
    if (segment.tcp_flags & kFin && stream.ready.empty()) streams_.erase(found);
}

}  // namespace stockade::dns
