// DNS messages by hand, for tests: right ones and wrong ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stockade {

std::string U16(uint32_t value);
std::string U32(uint32_t value);
// "a.example" as on the wire.
std::string WireName(absl::string_view name);
inline constexpr uint16_t kClassIn = 1;

struct WireRecord {
    std::string owner;  // on the wire, or a pointer
    uint16_t type;
    uint32_t ttl_s;
    std::string data;
    uint16_t record_class = kClassIn;
};

// A pointer to the question's name.
inline std::string AtQuestion() { return U16(0xc00c); }
std::string WireQuery(uint16_t id, absl::string_view name, uint16_t type, const std::string& opt = "");
// An OPT record of a query.
std::string WireOpt(uint16_t udp_bytes, const std::string& options = "");

struct WireAnswer {
    uint16_t id = 0;
    uint16_t flags = 0x8180;  // QR RD RA
    std::string name;         // of the question, dotted
    uint16_t type = 1;
    std::vector<WireRecord> answers, authorities;
    std::string Bytes() const;
};

// A message as a reader without mercy sees it. `whole` is false for anything that does not add up.
struct ReadMessage {
    bool whole = false;
    uint16_t id = 0, flags = 0, type = 0;
    std::string name;  // of the question, on the wire
    struct Record {
        std::string owner;  // as PrintedName
        uint16_t type = 0;
        uint32_t ttl_s = 0;
        std::string data;
    };
    std::vector<Record> answers, authorities, additionals;

    int rcode() const { return flags & 0xf; }
    bool truncated() const { return flags & 0x0200; }
};
ReadMessage ReadWire(absl::string_view message);

WireRecord ARecord(const std::string& owner, const std::string& four_bytes, uint32_t ttl_s = 300);
WireRecord Cname(absl::string_view owner, absl::string_view target, uint32_t ttl_s = 300);
WireRecord Soa(absl::string_view zone, uint32_t ttl_s, uint32_t minimum);

}  // namespace stockade
