// Queries and answers from Zeek's dns.log (tab-separated, with its #fields line).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/dns/byte_source.h"

namespace stockade::dns {

struct ZeekQuery {
    uint64_t time_ns = 0;
    uint64_t rtt_ns = 0;  // 0: no answer was seen
    std::string client, server;
    uint16_t client_port = 0, server_port = 0;
    uint16_t id = 0;
    std::string name;  // as logged
    uint32_t type = 0, class_ = 0;
    bool has_question = false;
    bool answered = false;
    uint32_t ttl_s = 0;  // least of the answers'; 0: none
};

bool LooksLikeZeek(absl::string_view first_bytes);

// Errors name the byte offset of the line.
class ZeekReader {
  public:
    explicit ZeekReader(ByteReader& bytes) : bytes_(bytes) {}  // not owned
    // false at the end of the log.
    StatusOr<bool> Next(ZeekQuery* query);

  private:
    Status ReadFields(absl::string_view line);
    Status ReadRow(absl::string_view line, ZeekQuery* query) const;

    ByteReader& bytes_;
    enum Column {
        kTs,
        kRtt,
        kClient,
        kClientPort,
        kServer,
        kServerPort,
        kId,
        kName,
        kType,
        kClass,
        kTtls,
        kColumns
    };
    int column_[kColumns];
    size_t width_ = 0;
};

}  // namespace stockade::dns
