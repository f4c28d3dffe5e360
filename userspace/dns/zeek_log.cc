#include "userspace/dns/zeek_log.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stockade::dns {
namespace {

constexpr size_t kMaxLine = 1 << 20;
constexpr absl::string_view kUnset = "-";
// 2^32 seconds since 1970: no time of a log is later, and nanoseconds of it fit 64 bits.
constexpr double kMaxSeconds = 4294967296.0;

bool ReadTime(absl::string_view text, uint64_t* ns) {
    double seconds;
    if (!absl::SimpleAtod(text, &seconds) || !(seconds >= 0 && seconds < kMaxSeconds)) return false;
    // Zeek writes microseconds: a double holds them exactly enough when the parts are taken apart.
    *ns = static_cast<uint64_t>(std::llround(seconds * 1e6)) * 1000;
    return true;
}

template <typename T>
bool ReadNumber(absl::string_view text, T* out) {
    uint32_t value;
    if (!absl::SimpleAtoi(text, &value) || value > std::numeric_limits<T>::max()) return false;
    *out = static_cast<T>(value);
    return true;
}

// The least TTL of a list; 0 when there is none.
bool ReadTtls(absl::string_view text, uint32_t* ttl_s) {
    *ttl_s = 0;
    if (text == kUnset || text == "(empty)") return true;
    double least = kMaxSeconds;
    for (absl::string_view item : absl::StrSplit(text, ',')) {
        double ttl;
        if (!absl::SimpleAtod(item, &ttl) || !(ttl >= 0 && ttl < kMaxSeconds)) return false;
        least = std::min(least, ttl);
    }
    *ttl_s = static_cast<uint32_t>(least);
    return true;
}

}  // namespace

bool LooksLikeZeek(absl::string_view first_bytes) { return absl::StartsWith(first_bytes, "#separator"); }

Status ZeekReader::ReadFields(absl::string_view line) {
    static constexpr absl::string_view kNames[kColumns] = {"ts",        "rtt",       "id.orig_h", "id.orig_p",
                                                           "id.resp_h", "id.resp_p", "trans_id",  "query",
                                                           "qtype",     "qclass",    "TTLs"};
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '\t');
    width_ = fields.size() - 1;
    for (int i = 0; i < kColumns; ++i) {
        const auto found = std::find(fields.begin() + 1, fields.end(), kNames[i]);
        if (found == fields.end())
            return bytes_.Error(absl::StrCat("no field '", kNames[i], "': is this a dns.log?"));
        column_[i] = static_cast<int>(found - fields.begin()) - 1;
    }
    return absl::OkStatus();
}

Status ZeekReader::ReadRow(absl::string_view line, ZeekQuery* query) const {
    const std::vector<absl::string_view> row = absl::StrSplit(line, '\t');
    if (row.size() != width_)
        return bytes_.Error(absl::StrCat("a row of ", row.size(), " fields, ", width_, " expected"));
    const auto at = [&](Column column) { return row[static_cast<size_t>(column_[column])]; };
    const auto bad = [&](absl::string_view field) {
        return bytes_.Error(absl::StrCat("bad value in field '", field, "'"));
    };
    *query = ZeekQuery();
    if (!ReadTime(at(kTs), &query->time_ns)) return bad("ts");
    query->answered = at(kRtt) != kUnset;
    if (query->answered && !ReadTime(at(kRtt), &query->rtt_ns)) return bad("rtt");
    query->client = std::string(at(kClient));
    query->server = std::string(at(kServer));
    if (!ReadNumber(at(kClientPort), &query->client_port)) return bad("id.orig_p");
    if (!ReadNumber(at(kServerPort), &query->server_port)) return bad("id.resp_p");
    if (!ReadNumber(at(kId), &query->id)) return bad("trans_id");
    if (!ReadTtls(at(kTtls), &query->ttl_s)) return bad("TTLs");
    // Without a question Zeek saw an answer alone.
    query->has_question = at(kName) != kUnset && at(kType) != kUnset && at(kClass) != kUnset;
    if (!query->has_question) return absl::OkStatus();
    query->name = std::string(at(kName));
    if (!ReadNumber(at(kType), &query->type)) return bad("qtype");
    if (!ReadNumber(at(kClass), &query->class_)) return bad("qclass");
    return absl::OkStatus();
}

StatusOr<bool> ZeekReader::Next(ZeekQuery* query) {
    while (true) {
        bool at_end = false;
        SK_ASSIGN_OR_RETURN(const absl::string_view line, bytes_.TakeLine(kMaxLine, &at_end));
        if (at_end) return false;
        if (absl::StartsWith(line, "#separator") && line != "#separator \\x09")
            return bytes_.Error("fields separated by other than tabs");
        if (absl::StartsWith(line, "#fields")) SK_RETURN_IF_ERROR(ReadFields(line));
        if (line.empty() || line[0] == '#') continue;
        if (width_ == 0) return bytes_.Error("a row before the line '#fields'");
        SK_RETURN_IF_ERROR(ReadRow(line, query));
        return true;
    }
}

}  // namespace stockade::dns
