// Recorded traffic through the meter: one budget id per client, rows per (client, zone).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "userspace/dns/byte_source.h"
#include "userspace/dns/capture.h"
#include "userspace/dns/meter.h"
#include "userspace/dns/packet.h"
#include "userspace/dns/tcp_stream.h"
#include "userspace/dns/zeek_log.h"

namespace stockade::dns {

struct ReplayOptions {
    // Not 0: each query of a client comes this long after its last one, whatever the record says.
    uint64_t step_ns = 0;
};

struct ReplayRow {
    Tier tier = Tier::kUnranked;
    uint64_t queries = 0;        // asked, those that are not canonical among them
    uint64_t not_canonical = 0;  // refused for their form
    uint64_t let_through = 0;
    uint32_t spent = 0;                 // at the end, in sixteenths of a bit
    uint32_t budget = 0;                // 0: not charged
    Verdict verdict = Verdict::kAllow;  // the worst one
    Cause cause = Cause::kNone;         // of the first query with that verdict; kNotCanonical is no meter's
    // More zones than a budget id keeps records of: counted with others in one budget, `spent` is that of all of them.
    bool shared = false;
    uint64_t first_dropped = 0;         // 1 for the pair's first query; 0: none was
    // What the names let through could hold: new labels below the zone times the bits of a character
    // in the smallest usual alphabet that has them (digits, hex, base32, letters, base64).
    uint64_t capacity = 0;  // sixteenths of a bit
    uint64_t downlink_bytes = 0;
};

struct ReplayCounts {
    uint64_t packets = 0, queries = 0, answers = 0;
    uint64_t copies = 0;     // the same query seen twice within two seconds
    uint64_t fragments = 0;  // to or from port 53, or any fragment: its port is unknown
    uint64_t unreadable_answers = 0;
    uint64_t lost_streams = 0;  // TCP that could not be joined
    uint64_t other_packets = 0;
};

using ReplayKey = std::pair<std::string, std::string>;  // client, zone

// Feeds a file to meters. What is not canonical never reaches one: it counts as refused, by reason.
class Replay {
  public:
    // `knowledge` is not owned.
    Replay(const Knowledge& knowledge, ReplayOptions options) : knowledge_(knowledge), options_(options) {}

    // A capture, a dns.log or a list of names (one a line), by its first bytes.
    Status Read(ByteSource& source);

    const std::map<ReplayKey, ReplayRow>& rows() const { return rows_; }
    // (client, fault of bpf/wire/dns_message.h) -> queries
    const std::map<std::pair<std::string, int>, uint64_t>& refused() const { return refused_; }
    const ReplayCounts& counts() const { return counts_; }
    size_t clients() const { return clients_.size(); }
    size_t largest_state_bytes() const;

  private:
    struct Client {
        explicit Client(Meter m) : meter(std::move(m)) {}
        Meter meter;
        uint64_t now_ns = 0;
        absl::flat_hash_map<uint64_t, uint64_t> in_flight;  // hash of the query -> when
    };
    struct Ask {
        std::string client;
        uint64_t transaction = 0;  // port, server and id
        absl::string_view sent, lower;
        uint16_t type = 0;
        uint64_t time_ns = 0;
    };

    Status ReadCapture(ByteReader& bytes);
    Status ReadZeek(ByteReader& bytes);
    Status ReadNames(ByteReader& bytes);
    void TakeFrame(uint32_t link, absl::string_view frame, uint64_t time_ns);
    void TakeMessage(const Segment& segment, absl::string_view message, uint64_t time_ns);
    void TakeAnswer(const std::string& client, absl::string_view message, uint64_t time_ns);
    void TakeZeek(const ZeekQuery& row);
    void TakeQuery(const Ask& ask);
    void Hear(const std::string& client, const Answer& answer);
    void Refuse(const std::string& client, int fault) { ++refused_[{client, fault}]; }
    void RefuseName(const std::string& client, int fault, absl::string_view lower);
    Client& ClientOf(const std::string& name, uint64_t time_ns);
    bool IsCopy(Client& client, const Ask& ask);
    uint64_t Capacity(absl::string_view client, absl::string_view name, absl::string_view zone);

    const Knowledge& knowledge_;
    ReplayOptions options_;
    std::map<std::string, std::unique_ptr<Client>> clients_;
    std::map<ReplayKey, ReplayRow> rows_;
    std::map<std::pair<std::string, int>, uint64_t> refused_;
    absl::flat_hash_set<std::string> labels_;  // client, zone, label: counted for capacity
    TcpStreams streams_;
    ReplayCounts counts_;
};

// Bits of a character, in sixteenths, in the smallest alphabet that holds the label.
uint32_t AlphabetBits(absl::string_view label);

}  // namespace stockade::dns
