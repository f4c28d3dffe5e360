// What the stub and those who use it speak of, and every bound of it with its reason.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"

namespace stockade::dns {

// Queries of one client that have no answer yet. Package managers and `curl -Z` look up 50 to 100 hosts at once, each for A
// and AAAA. More: SERVFAIL, which the C library takes for the answer.
inline constexpr size_t kStubInFlightPerClient = 256;
// Of all clients: each may hold a few descriptors (kStubTries). More: SERVFAIL.
inline constexpr size_t kStubInFlight = 4096;
// TCP connections of one client; a resolver opens one. More are closed at once.
inline constexpr size_t kStubConnections = 16;
// Queries of one connection that have no answer yet. The next ones wait in the socket.
inline constexpr size_t kStubPipelined = 8;
// Bytes that a connection's peer has not read yet, above which its queries wait: one answer.
inline constexpr size_t kStubUnreadBytes = 65536;
// TCP connections to upstreams for one client: each may fill a buffer of 64 KiB. More: SERVFAIL.
inline constexpr size_t kStubUpstreamTcp = 16;
// CNAMEs followed. Unbound follows 11 and most name servers fewer; more: SERVFAIL.
inline constexpr size_t kStubChain = 8;
// Of a message: its length over TCP has 16 bits.
inline constexpr size_t kStubMessageBytes = 65535;
// UDP payload that we offer and use: what passes any path unfragmented (DNS flag day 2020).
inline constexpr size_t kStubUdpBytes = 1232;
// What a client without EDNS takes (RFC 1035 2.3.4).
inline constexpr size_t kStubPlainUdpBytes = 512;
// Times that a question is sent over UDP.
inline constexpr int kStubTries = 4;
// Datagrams that are not the answer, after which a socket is given up for TCP: somebody guesses.
inline constexpr int kStubStrays = 16;
// Cached answers of one client, and the size of one: together at most 2 MiB.
inline constexpr size_t kStubCacheEntries = 512;
inline constexpr size_t kStubCacheEntryBytes = 4096;
// TTLs above a day are a day's (RFC 8767 section 4 allows a cap), negative ones three hours' (RFC 2308 section 5).
inline constexpr uint32_t kStubMaxTtl = 86400;
inline constexpr uint32_t kStubMaxNegativeTtl = 10800;

enum StubRcode : uint8_t {
    kStubNoError = 0,
    kStubFormError = 1,
    kStubServerFailure = 2,
    kStubNoSuchName = 3,
    kStubNotImplemented = 4,
    kStubRefused = 5,
};

struct StubAddress {
    uint8_t family = 0;               // 4 or 6
    std::array<uint8_t, 16> bytes{};  // network order; IPv4 in the first four
    bool operator==(const StubAddress&) const = default;
    std::string ToString() const;  // "10.0.0.1", "fd00::1"
};

struct UpstreamAddress {
    StubAddress address;
    uint16_t port = 53;
    // "10.0.0.1", "fd00::1"; a zone (%eth0) is none of it.
    static StatusOr<UpstreamAddress> Parse(absl::string_view text, uint16_t port = 53);
};

struct StubQuestion {
    std::string name;  // lower case, no final dot; empty: the root
    uint16_t type = 0;
    bool tcp = false;
};

enum class StubPolicy {
    kForward,
    kFromCache,   // what an upstream has answered already, else REFUSED
    kRefuse,      // REFUSED
    kNoSuchName,  // NXDOMAIN
};

// An answer as a sandbox gets it, to a question whose policy was kForward or kFromCache.
struct StubAnswered {
    std::string name;
    uint16_t type = 0;
    uint8_t rcode = 0;
    bool tcp = false;
    bool from_cache = false;  // this question did not go upstream itself
    bool truncated = false;   // too large for UDP: no records went out, and it will be asked again over TCP
    // The name asked for, then each CNAME's target (at most kStubChain). Lower case; a byte that host names do
    // not have is \DDD, so that a dot always parts two labels.
    std::vector<std::string> names;
    struct Pinned {
        StubAddress address;
        uint32_t ttl_s = 0;
    };
    std::vector<Pinned> addresses;  // A, AAAA, and the hints of HTTPS and SVCB
    uint32_t ttl_s = 0;             // least of all that it holds; 0 with SERVFAIL
    uint32_t downlink_bytes = 0;    // data of TXT and NULL
};

struct StubClient {
    std::vector<UpstreamAddress> upstreams;  // in the order they are tried
    // Both are called on the stub's thread, which serves nobody meanwhile, and must not call the stub.
    std::function<StubPolicy(const StubQuestion&)> judge;
    // Told BEFORE the answer is sent. False: the client gets SERVFAIL in its place.
    std::function<bool(const StubAnswered&)> answered;
};

struct StubOptions {
    uint32_t min_ttl_s = 30;          // smaller TTLs are raised to it
    uint32_t retry_ms = 1000;         // until the next upstream is asked, too
    uint32_t upstream_tcp_ms = 2000;  // the same, once a truncated answer is asked for over TCP
    uint32_t deadline_ms = 5000;      // until SERVFAIL: the patience of glibc's resolver
    uint32_t idle_ms = 10000;         // of a client's connection
};

}  // namespace stockade::dns
