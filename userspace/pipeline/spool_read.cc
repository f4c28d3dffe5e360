// The readers' side of the spool.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/pipeline/spool.h"

namespace stockade::pipeline {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kAtOnceBytes = 2 << 20;  // what whoever takes many at once may have to hold

}  // namespace

// Lanes are written one after the other: what lies behind a record that still waits is not handed out
// before it.
uint64_t Spool::Readable() const {
    uint64_t readable = next_position_ - 1;
    for (const LaneState& state : lanes_) {
        if (!state.buffer.empty()) readable = std::min(readable, state.buffer_first - 1);
    }
    return readable;
}

// False when the lane has no further segment.
bool Spool::NextSegment(Cursor& cursor, Lane lane) {
    for (const Segment& segment : lanes_[lane].segments) {
        if (segment.first <= cursor.segment) continue;
        cursor.segment = segment.first;
        cursor.base = 0;
        cursor.data.clear();
        cursor.at = 0;
        return true;
    }
    return false;
}

// kNothing when the segment has no more bytes.
Spool::Look Spool::ReadMore(Cursor& cursor, Lane lane) {
    const auto& segments = lanes_[lane].segments;
    const auto segment = std::find_if(segments.begin(), segments.end(),
                                      [&](const Segment& s) { return s.first == cursor.segment; });
    if (segment == segments.end()) return Look::kNothing;
    cursor.base += cursor.at;
    cursor.data.erase(0, cursor.at);
    cursor.at = 0;
    const uint64_t from = cursor.base + cursor.data.size();
    if (from >= segment->bytes) return Look::kNothing;
    const size_t want = std::min<uint64_t>(kReadBytes, segment->bytes - from);
    auto fd = Fd::Open(segment->path, O_RDONLY | O_NOFOLLOW);
    if (!fd.ok()) {
        Count(fd.status());
        return Look::kFailed;
    }
    const size_t had = cursor.data.size();
    cursor.data.resize(had + want);
    const ssize_t got = pread(fd->get(), cursor.data.data() + had, want, static_cast<off_t>(from));
    const int error = errno;
    cursor.data.resize(had + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got < 0) {
        Count(ErrnoStatus(error, absl::StrCat("read ", segment->path)));
        return Look::kFailed;
    }
    if (cursor.base == 0 && cursor.at == 0) cursor.at = std::min(kFileMagic.size(), cursor.data.size());
    return got > 0 ? Look::kThere : Look::kNothing;
}

Spool::Look Spool::Peek(Reader& reader, Lane lane) {
    Cursor& cursor = reader.lanes[lane];
    while (!cursor.peeked) {
        if (cursor.segment == 0 && !NextSegment(cursor, lane)) return Look::kNothing;
        SpoolRecord record;
        size_t at = cursor.at;
        const Parsed parsed = ParseRecord(cursor.data, &at, &record);
        if (parsed == Parsed::kEnd || parsed == Parsed::kTorn) {
            const Look more = ReadMore(cursor, lane);
            if (more == Look::kFailed) return more;
            if (more == Look::kThere) continue;
            const auto& last = lanes_[lane].segments.back();
            if (cursor.segment == last.first) return Look::kNothing;
            if (parsed == Parsed::kTorn) ++counters_.lost_damaged, ++damage_to_tell_;
            if (!NextSegment(cursor, lane)) return Look::kNothing;
            continue;
        }
        cursor.at = at;
        if (parsed == Parsed::kRecord && record.lane == kMark) continue;
        if (parsed == Parsed::kDamaged) {
            ++counters_.lost_damaged;
            ++damage_to_tell_;
            continue;
        }
        const auto flight = reader.flight.find(record.position);
        if (record.position <= reader.acked || (flight != reader.flight.end() && flight->second != kRewound))
            continue;
        cursor.peeked =
            Record{record.position, std::string(record.payload), record.position < first_of_start_};
    }
    return Look::kThere;
}

std::optional<Spool::Record> Spool::Next(const std::string& name) {
    std::vector<Record> records = Next(name, 1);
    if (records.empty()) return std::nullopt;
    return std::move(records.front());
}

std::vector<Spool::Record> Spool::Next(const std::string& name, size_t most) {
    const auto found = readers_.find(name);  // they are fixed
    if (found == readers_.end()) return {};
    bool unsynced = false;
    {
        std::lock_guard lock(mutex_);
        std::vector<Record> records = NextLocked(found->second, most, &unsynced);
        if (!records.empty() || !unsynced || BootNow() - committed_ns_ < options_.commit_ns) return records;
    }
    if (!Commit().ok()) return {};  // counted
    std::lock_guard lock(mutex_);
    return NextLocked(found->second, most, &unsynced);
}

std::vector<Spool::Record> Spool::NextLocked(Reader& reader, size_t most, bool* unsynced) {
    std::vector<Record> records;
    size_t bytes = 0;
    while (records.size() < most && bytes < kAtOnceBytes) {
        std::optional<Record> record = NextOne(reader, unsynced);
        if (!record) break;
        bytes += record->payload.size();
        records.push_back(*std::move(record));
    }
    return records;
}

// `unsynced`: there is one, and it is not on the disk.
std::optional<Spool::Record> Spool::NextOne(Reader& reader, bool* unsynced) {
    Cursor* next = nullptr;
    for (int lane = 0; lane < kLanes; ++lane) {
        const Look seen = Peek(reader, static_cast<Lane>(lane));
        if (seen == Look::kFailed) return std::nullopt;
        if (seen == Look::kNothing) continue;
        Cursor& cursor = reader.lanes[lane];
        if (!next || cursor.peeked->position < next->peeked->position) next = &cursor;
    }
    if (!next || next->peeked->position > Readable()) return std::nullopt;
    *unsynced = next->peeked->position > synced_;
    if (*unsynced) return std::nullopt;
    const bool fresh = reader.flight.count(next->peeked->position) == 0;
    if (fresh && reader.flight.size() >= options_.max_in_flight) return std::nullopt;
    reader.flight[next->peeked->position] = kHanded;
    std::optional<Record> record = std::move(next->peeked);
    next->peeked.reset();
    return record;
}

void Spool::Ack(const std::string& name, const std::vector<uint64_t>& positions) {
    std::lock_guard lock(mutex_);
    const auto found = readers_.find(name);
    if (found == readers_.end()) return;
    Reader& reader = found->second;
    for (const uint64_t position : positions) {
        const auto flight = reader.flight.find(position);
        if (flight != reader.flight.end()) flight->second = kAcked;  // else given up meanwhile, or acknowledged twice
    }
    reader.Advance();
}

void Spool::Reader::Advance() {
    while (!flight.empty() && flight.begin()->second == kAcked) {
        acked = flight.begin()->first;
        flight.erase(flight.begin());
    }
}

void Spool::Rewind(const std::string& name) {
    std::lock_guard lock(mutex_);
    const auto found = readers_.find(name);
    if (found == readers_.end()) return;
    for (auto& [position, flight] : found->second.flight) {
        if (flight == kHanded) flight = kRewound;
    }
    for (Cursor& cursor : found->second.lanes) cursor = Cursor{};
}

}  // namespace stockade::pipeline
