#include "userspace/dns/replay.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "userspace/dns/message.h"

namespace stockade::dns {
namespace {

constexpr uint16_t kDnsPort = 53;
constexpr uint64_t kCopyNs = 2'000'000'000;
// A client with more unanswered queries than this is not looked through for copies any more.
constexpr size_t kMaxInFlight = 65536;
// Fixed, so that a file gives the same rows each time. A meter that guards has secret ones.
constexpr sk_hash_keys kFileKeys = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameCharacter(char c) { return c == '.' || sk_dns_is_plain(static_cast<uint8_t>(c)); }
bool AllOf(absl::string_view text, bool (*test)(char)) { return std::all_of(text.begin(), text.end(), test); }

uint64_t Transaction(const Address& server, uint16_t port, uint16_t id) {
    return absl::Hash<std::tuple<Address, uint16_t, uint16_t>>{}({server, port, id});
}

}  // namespace

uint32_t AlphabetBits(absl::string_view label) {
    const auto hex = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    };
    const auto base32 = [](char c) {
        return absl::ascii_isalpha(static_cast<unsigned char>(c)) || (c >= '2' && c <= '7');
    };
    const auto lower = [](char c) { return !absl::ascii_isupper(static_cast<unsigned char>(c)); };
    const auto upper = [](char c) { return !absl::ascii_islower(static_cast<unsigned char>(c)); };
    // Mixed case is what tells base64 from the others.
    if (!AllOf(label, lower) && !AllOf(label, upper)) return 6 * SK_DNS_BIT;
    if (AllOf(label, IsDigit)) return 54;  // log2(10)
    if (AllOf(label, hex)) return 4 * SK_DNS_BIT;
    if (AllOf(label, base32)) return 5 * SK_DNS_BIT;
    return 84;  // log2(38)
}

Replay::Client& Replay::ClientOf(const std::string& name, uint64_t time_ns) {
    std::unique_ptr<Client>& client = clients_[name];
    if (!client) {
        const uint64_t epoch = options_.step_ns ? 0 : time_ns;
        client = std::make_unique<Client>(Meter(knowledge_, MeterState(kFileKeys, epoch)));
        client->now_ns = epoch;
    }
    // Captures of several interfaces step back a little; the meter's time does not.
    if (!options_.step_ns) client->now_ns = std::max(client->now_ns, time_ns);
    return *client;
}

// A packet that was captured at two places, or logged twice, left the client once.
bool Replay::IsCopy(Client& client, const Ask& ask) {
    const uint64_t key = absl::Hash<std::tuple<uint64_t, absl::string_view, uint16_t>>{}(
        {ask.transaction, ask.sent, ask.type});
    if (client.in_flight.size() >= kMaxInFlight) client.in_flight.clear();
    const auto [seen, is_new] = client.in_flight.try_emplace(key, ask.time_ns);
    if (is_new) return false;
    const bool copy = ask.time_ns - seen->second < kCopyNs || ask.time_ns < seen->second;
    if (!copy) seen->second = ask.time_ns;
    return copy;
}

uint64_t Replay::Capacity(absl::string_view client, absl::string_view name, absl::string_view zone) {
    uint64_t capacity = 0;
    if (name.size() <= zone.size()) return 0;
    for (absl::string_view label : absl::StrSplit(name.substr(0, name.size() - zone.size() - 1), '.')) {
        if (labels_.insert(absl::StrCat(client, " ", zone, " ", label)).second)
            capacity += label.size() * AlphabetBits(label);
    }
    return capacity;
}

// A name of characters that no host name has still shows whose it is, by its zone.
void Replay::RefuseName(const std::string& client, int fault, absl::string_view lower) {
    Refuse(client, fault);
    ++counts_.queries;
    if (fault != SK_DNS_FAULT_CHARACTER) return;
    const Zone zone = knowledge_.suffixes.Find(lower);
    const Tiers::Entry entry = knowledge_.tiers.Find(lower);
    // No zone ends in a number: such names are addresses and URLs that were taken for names.
    const absl::string_view top = lower.substr(lower.rfind('.') + 1);
    const bool is_zone =
        !zone.registered.empty() && AllOf(zone.registered, IsNameCharacter) && !AllOf(top, IsDigit);
    if (!is_zone || !IsCharged(entry.tier)) return;
    ReplayRow& row = rows_[{client, std::string(zone.registered)}];
    ++row.queries;
    ++row.not_canonical;
    row.tier = entry.tier;
    if (row.first_dropped == 0) row.first_dropped = row.queries;
    if (row.verdict == Verdict::kDrop) return;
    row.verdict = Verdict::kDrop;
    row.cause = Cause::kNotCanonical;
}

void Replay::TakeQuery(const Ask& ask) {
    Client& client = ClientOf(ask.client, ask.time_ns);
    ++counts_.queries;
    if (IsCopy(client, ask)) {
        ++counts_.copies;
        return;
    }
    client.now_ns += options_.step_ns;
    const Query query = {.name = ask.lower, .sent = ask.sent, .type = ask.type, .time_ns = client.now_ns};
    const Decision decision = client.meter.Ask(query);
    ReplayRow& row = rows_[{ask.client, std::string(decision.zone)}];
    // A record, once there, stays; and so does the lack of one.
    if (row.queries == 0 && decision.budget > 0 && decision.tier != Tier::kReverse) {
        size_t index = 0;
        row.shared = !client.meter.state().FindZone(decision.zone, &index);
    }
    ++row.queries;
    row.tier = decision.tier;
    row.spent = decision.spent;
    row.budget = decision.budget;
    if (decision.verdict > row.verdict) {
        row.verdict = decision.verdict;
        row.cause = decision.cause;
    }
    if (decision.verdict == Verdict::kDrop) {
        if (row.first_dropped == 0) row.first_dropped = row.queries;
        return;
    }
    ++row.let_through;
    if (decision.budget > 0) row.capacity += Capacity(ask.client, ask.sent, decision.zone);
}

void Replay::Hear(const std::string& client, const Answer& answer) {
    const auto found = clients_.find(client);
    if (found == clients_.end()) return;  // answers to nobody's question
    Answer heard = answer;
    Client& asker = *found->second;
    // With a clock of our own an answer comes at once.
    heard.time_ns = options_.step_ns ? asker.now_ns : std::max(asker.now_ns, answer.time_ns);
    const Decision decision = asker.meter.Hear(heard);
    const auto row = rows_.find({client, std::string(decision.zone)});
    if (row == rows_.end()) return;
    row->second.downlink_bytes += answer.downlink_bytes;
    row->second.spent = decision.spent;
    if (decision.verdict > row->second.verdict) {
        row->second.verdict = decision.verdict;
        row->second.cause = decision.cause;
    }
}

void Replay::TakeAnswer(const std::string& client, absl::string_view message, uint64_t time_ns) {
    AnswerSummary summary;
    ++counts_.answers;
    if (ReadAnswer(message, &summary) != SK_DNS_OK) {
        ++counts_.unreadable_answers;
        return;
    }
    HostName name;
    ToHostName(summary.question.name, &name);
    Hear(client, {.name = name.lower(),
                  .sent = name.sent(),
                  .type = summary.question.type,
                  .time_ns = time_ns,
                  .ttl_s = summary.truncated ? 0 : summary.ttl_s,
                  .downlink_bytes = summary.downlink_bytes});
}

void Replay::TakeMessage(const Segment& segment, absl::string_view message, uint64_t time_ns) {
    if (segment.to_port != kDnsPort) return TakeAnswer(AddressText(segment.to), message, time_ns);
    const std::string client = AddressText(segment.from);
    sk_dns_query query;
    const auto len = static_cast<uint32_t>(std::min<size_t>(message.size(), UINT32_MAX));
    int fault = sk_dns_check_query(MessageBytes(message), len, SK_DNS_ALLOW_UPPER, &query);
    if (segment.extension) fault = SK_DNS_FAULT_EXTENSION;
    if (segment.length_fault) fault = SK_DNS_FAULT_UDP_LENGTH;
    HostName name;
    if (fault == SK_DNS_FAULT_CHARACTER || fault == SK_DNS_OK) ToHostName(query.question.name, &name);
    if (fault != SK_DNS_OK) return RefuseName(client, fault, name.lower());
    TakeQuery({.client = client,
               .transaction = Transaction(segment.to, segment.from_port, query.id),
               .sent = name.sent(),
               .lower = name.lower(),
               .type = query.question.type,
               .time_ns = time_ns});
}

void Replay::TakeFrame(uint32_t link, absl::string_view frame, uint64_t time_ns) {
    ++counts_.packets;
    Segment segment;
    const FrameKind kind = ReadFrame(link, frame, &segment);
    if (kind == FrameKind::kFragment) {
        ++counts_.fragments;
        return;
    }
    if (kind != FrameKind::kSegment || (segment.from_port != kDnsPort && segment.to_port != kDnsPort)) {
        ++counts_.other_packets;
        return;
    }
    if (!segment.is_tcp) return TakeMessage(segment, segment.payload, time_ns);
    streams_.Add(segment, [&](absl::string_view message) { TakeMessage(segment, message, time_ns); });
    counts_.lost_streams = streams_.given_up();
}

Status Replay::ReadCapture(ByteReader& bytes) {
    CaptureReader reader(bytes);
    Packet packet;
    while (true) {
        SK_ASSIGN_OR_RETURN(const bool more, reader.Next(&packet));
        if (!more) return absl::OkStatus();
        if (!IsKnownLink(packet.link))
            return bytes.Error(absl::StrCat("link type ", packet.link, " is not known"));
        TakeFrame(packet.link, packet.bytes, packet.time_ns);
    }
}

void Replay::TakeZeek(const ZeekQuery& row) {
    if (!row.has_question) {
        ++counts_.unreadable_answers;
        return;
    }
    const bool is_root = row.name == "." || row.name == "(empty)";
    const std::string lower = absl::AsciiStrToLower(is_root ? "" : row.name);
    const int fault = row.class_ != SK_DNS_CLASS_IN          ? SK_DNS_FAULT_CLASS
                      : !AllOf(lower, IsNameCharacter)       ? SK_DNS_FAULT_CHARACTER
                      : lower.size() > SK_DNS_NAME_BYTES - 2 ? SK_DNS_FAULT_NAME_LONG
                                                             : SK_DNS_OK;
    if (fault != SK_DNS_OK) return RefuseName(row.client, fault, lower);
    const uint64_t transaction =
        absl::Hash<std::tuple<std::string, uint16_t, uint16_t>>{}({row.server, row.client_port, row.id});
    // The log keeps no case: 0x20 cannot be seen in it.
    TakeQuery({.client = row.client,
               .transaction = transaction,
               .sent = lower,
               .lower = lower,
               .type = static_cast<uint16_t>(row.type),
               .time_ns = row.time_ns});
    if (!row.answered) return;
    ++counts_.answers;
    Hear(row.client, {.name = lower,
                      .sent = lower,
                      .type = static_cast<uint16_t>(row.type),
                      .time_ns = row.time_ns + row.rtt_ns,
                      .ttl_s = row.ttl_s});
}

Status Replay::ReadZeek(ByteReader& bytes) {
    ZeekReader reader(bytes);
    ZeekQuery row;
    while (true) {
        SK_ASSIGN_OR_RETURN(const bool more, reader.Next(&row));
        if (!more) return absl::OkStatus();
        // mDNS, NetBIOS and their like do not go to a resolver.
        if (row.server_port == kDnsPort)
            TakeZeek(row);
        else
            ++counts_.other_packets;
    }
}

Status Replay::ReadNames(ByteReader& bytes) {
    // A second apart, where no clock is given.
    if (!options_.step_ns) options_.step_ns = 1'000'000'000;
    for (uint64_t number = 0;; ++number) {
        bool at_end = false;
        SK_ASSIGN_OR_RETURN(const absl::string_view line, bytes.TakeLine(4096, &at_end));
        if (at_end) return absl::OkStatus();
        const absl::string_view name = absl::StripSuffix(absl::StripAsciiWhitespace(line), ".");
        if (name.empty() || name[0] == '#') continue;
        if (!AllOf(name, IsNameCharacter))
            return bytes.Error(number == 0 ? "neither a capture, nor a Zeek log, nor a list of host names"
                                           : absl::StrCat("line ", number + 1, " is no host name"));
        if (name.size() > SK_DNS_NAME_BYTES - 2) {
            Refuse("-", SK_DNS_FAULT_NAME_LONG);
            continue;
        }
        const std::string lower = absl::AsciiStrToLower(name), sent(name);
        TakeQuery({.client = "-",
                   .transaction = number,
                   .sent = sent,
                   .lower = lower,
                   .type = SK_DNS_TYPE_A,
                   .time_ns = number});
    }
}

Status Replay::Read(ByteSource& source) {
    ByteReader bytes(source);
    SK_ASSIGN_OR_RETURN(const absl::string_view first, bytes.Peek(16));
    if (LooksLikeCapture(first)) return ReadCapture(bytes);
    if (LooksLikeZeek(first)) return ReadZeek(bytes);
    if (first.empty()) return absl::InvalidArgumentError("byte 0: the input is empty");
    return ReadNames(bytes);
}

size_t Replay::largest_state_bytes() const {
    size_t largest = 0;
    for (const auto& [name, client] : clients_)
        largest = std::max(largest, client->meter.state().memory_bytes());
    return largest;
}

}  // namespace stockade::dns
