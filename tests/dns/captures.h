// The DNS messages of the captures in tests/data/dns.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade {

std::string DnsData(absl::string_view path);  // of a file or folder of tests/data/dns
// All *.pcap files below a folder of tests/data/dns, sorted.
std::vector<std::string> CapturesIn(absl::string_view folder);

struct CapturedMessage {
    std::string bytes;
    bool is_query_side = false;  // sent to the port
    std::string where;           // "file.pcap, byte 40"
};
// Every payload to or from port 53 or 5353, over UDP or joined from TCP. Stops at a broken file.
Status ForEachMessage(const std::string& file, const std::function<void(const CapturedMessage&)>& visit);

}  // namespace stockade
