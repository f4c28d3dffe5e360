// Captured packets from pcap and pcapng files.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/dns/byte_source.h"

namespace stockade::dns {

struct Packet {
    uint64_t time_ns = 0;     // since 1970
    uint32_t link = 0;        // LINKTYPE_* of the capture
    absl::string_view bytes;  // as captured, perhaps cut; valid until the next packet
    uint64_t offset = 0;      // of the record in the file
};

// Whether a file begins like a capture.
bool LooksLikeCapture(absl::string_view first_bytes);

// Reads either form, of either byte order. Every error names the byte offset, and ends the reading.
//
//   CaptureReader reader(bytes);
//   while (true) { SK_ASSIGN_OR_RETURN(const bool more, reader.Next(&packet)); if (!more) break; ... }
class CaptureReader {
  public:
    explicit CaptureReader(ByteReader& bytes) : bytes_(bytes) {}  // not owned

    // false at the end of the file.
    StatusOr<bool> Next(Packet* packet);

  private:
    struct Interface {
        uint32_t link = 0;
        uint64_t units_per_second = 1'000'000;
        uint64_t offset_s = 0;
    };

    Status Start();
    Status StartPcap(absl::string_view head);
    StatusOr<bool> NextPcap(Packet* packet);
    StatusOr<bool> NextBlock(Packet* packet);
    StatusOr<absl::string_view> TakeBlock(uint32_t* type, bool* at_end);
    Status StartSection(absl::string_view body);
    Status AddInterface(absl::string_view body);
    Status ReadOption(uint32_t code, absl::string_view value, Interface* interface) const;
    Status ReadEnhanced(absl::string_view body, Packet* packet) const;
    Status ReadSimple(absl::string_view body, Packet* packet) const;
    uint16_t U16(absl::string_view bytes, size_t at) const;
    uint32_t U32(absl::string_view bytes, size_t at) const;
    uint64_t TimeOf(const Interface& interface, uint64_t units) const;

    ByteReader& bytes_;
    enum { kUnread, kPcap, kPcapng } form_ = kUnread;
    bool big_endian_ = false;
    std::vector<Interface> interfaces_;
};

}  // namespace stockade::dns
