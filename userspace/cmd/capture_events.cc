#include "userspace/cmd/capture_events.h"

#include "absl/strings/str_cat.h"
#include "userspace/cmd/gzip_source.h"
#include "userspace/dns/message.h"
#include "userspace/model/text.h"

namespace stockade::cmd {
namespace {

constexpr uint16_t kDnsPort = 53;
constexpr uint8_t kSyn = 0x02, kAck = 0x10;
constexpr uint64_t kNanos = 1'000'000'000;

bool IsIpv4(const dns::Address& address) { return dns::AddressText(address).find(':') == std::string::npos; }

}  // namespace

v1::Event CaptureEvents::Blank(const dns::Segment& segment) const {
    v1::Event event;
    // As packets are numbered by whatever shows the same file.
    event.set_id(absl::StrCat("packet.", counters_.packets));
    event.mutable_time()->set_seconds(static_cast<int64_t>(time_ns_ / kNanos));
    event.mutable_time()->set_nanos(static_cast<int32_t>(time_ns_ % kNanos));
    event.mutable_sandbox()->set_id(dns::AddressText(segment.from));
    event.set_verdict("allow");
    return event;
}

// Whether it begins what a sandbox would call connect, or sends to for the first time.
bool CaptureEvents::IsFirst(const dns::Segment& segment) {
    if (segment.is_tcp && (segment.tcp_flags & (kSyn | kAck)) != kSyn) return false;
    const auto from = std::pair(segment.from, segment.from_port), to = std::pair(segment.to, segment.to_port);
    const auto& [low, high] = std::minmax(from, to);
    // A SYN that is sent again has the same number. Numbers have 32 bits: the next one is UDP's.
    const uint64_t which = segment.is_tcp ? segment.tcp_seq : uint64_t{1} << 32;
    if (flows_.size() >= kMaxFlows) {
        flows_.clear();
        ++counters_.forgotten;
    }
    return flows_.insert({low.first, low.second, high.first, high.second, which}).second;
}

void CaptureEvents::TakeQuery(const dns::Segment& segment, absl::string_view message, const Each& each) {
    sk_dns_query query;
    const auto size = static_cast<uint32_t>(std::min<size_t>(message.size(), UINT32_MAX));
    const int fault = sk_dns_check_query(dns::MessageBytes(message), size, SK_DNS_ALLOW_UPPER, &query);
    v1::Event event = Blank(segment);
    v1::Dns& out = *event.mutable_dns();
    out.set_server(dns::AddressText(segment.to));
    // As the kernel's records have it: of other faults the name may be half read.
    if (fault == SK_DNS_OK || fault == SK_DNS_FAULT_CHARACTER) {
        dns::HostName name;
        dns::ToHostName(query.question.name, &name);
        out.set_escaped(model::AppendEscaped(name.lower(), out.mutable_name()));
    }
    if (fault != SK_DNS_OK) {
        out.set_fault(std::string(dns::FaultText(fault)));
    } else {
        const absl::string_view type = dns::TypeName(query.question.type);
        out.set_type(type.empty() ? absl::StrCat(query.question.type) : std::string(type));
    }
    each(std::move(event));
}

void CaptureEvents::TakeFrame(const dns::Packet& packet, const Each& each) {
    ++counters_.packets;
    time_ns_ = packet.time_ns;
    dns::Segment segment;
    const dns::FrameKind kind = dns::ReadFrame(packet.link, packet.bytes, &segment);
    counters_.fragments += kind == dns::FrameKind::kFragment;
    counters_.others += kind == dns::FrameKind::kOther;
    if (kind != dns::FrameKind::kSegment) return;
    if (IsFirst(segment)) {
        v1::Event event = Blank(segment);
        v1::Net& net = *event.mutable_net();
        net.set_op(segment.is_tcp ? "connect" : "send");
        net.set_family(IsIpv4(segment.to) ? "inet" : "inet6");
        net.set_type(segment.is_tcp ? "stream" : "dgram");
        net.set_protocol(segment.is_tcp ? "tcp" : "udp");
        net.set_address(dns::AddressText(segment.to));
        net.set_port(segment.to_port);
        each(std::move(event));
    }
    if (segment.to_port != kDnsPort) return;
    if (!segment.is_tcp) return TakeQuery(segment, segment.payload, each);
    streams_.Add(segment, [&](absl::string_view message) { TakeQuery(segment, message, each); });
    counters_.lost_streams = streams_.given_up();
}

Status CaptureEvents::Read(const std::string& path, const Each& each) {
    SK_ASSIGN_OR_RETURN(const std::unique_ptr<GzipSource> source, GzipSource::Open(path));
    dns::ByteReader bytes(*source);
    SK_ASSIGN_OR_RETURN(const absl::string_view first, bytes.Peek(16));
    if (!dns::LooksLikeCapture(first))
        return absl::InvalidArgumentError(absl::StrCat(path, " is no pcap or pcapng file"));
    dns::CaptureReader reader(bytes);
    dns::Packet packet;
    while (true) {
        SK_ASSIGN_OR_RETURN(const bool more, reader.Next(&packet));
        if (!more) return absl::OkStatus();
        if (!dns::IsKnownLink(packet.link))
            return bytes.Error(absl::StrCat("link type ", packet.link, " is not known"));
        TakeFrame(packet, each);
    }
}

}  // namespace stockade::cmd
