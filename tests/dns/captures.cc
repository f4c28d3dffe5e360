#include "tests/dns/captures.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "userspace/base/fd.h"
#include "userspace/dns/capture.h"
#include "userspace/dns/packet.h"
#include "userspace/dns/tcp_stream.h"

namespace stockade {
namespace {
constexpr size_t kMaxFile = 8 * 1024 * 1024;
bool IsDns(uint16_t port) { return port == 53 || port == 5353; }
}  // namespace

std::string DnsData(absl::string_view path) {
    const char* root = std::getenv("STOCKADE_SOURCE_DIR");
    return absl::StrCat(root ? root : ".", "/tests/data/dns/", path);
}

std::vector<std::string> CapturesIn(absl::string_view folder) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(DnsData(folder))) {
        if (entry.path().extension() == ".pcap") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
}

Status ForEachMessage(const std::string& file, const std::function<void(const CapturedMessage&)>& visit) {
    SK_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file, kMaxFile));
    dns::MemorySource source(bytes);
    dns::ByteReader reader(source);
    dns::CaptureReader capture(reader);
    dns::TcpStreams streams;
    dns::Packet packet;
    dns::Segment segment;
    while (true) {
        SK_ASSIGN_OR_RETURN(const bool more, capture.Next(&packet));
        if (!more) return absl::OkStatus();
        if (dns::ReadFrame(packet.link, packet.bytes, &segment) != dns::FrameKind::kSegment) continue;
        if (!IsDns(segment.from_port) && !IsDns(segment.to_port)) continue;
        const std::string where =
            absl::StrCat(std::filesystem::path(file).filename().string(), ", byte ", packet.offset);
        const auto give = [&](absl::string_view message) {
            visit({std::string(message), IsDns(segment.to_port), where});
        };
        if (segment.is_tcp)
            streams.Add(segment, give);
        else
            give(segment.payload);
    }
}

}  // namespace stockade
