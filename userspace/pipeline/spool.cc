#include "userspace/pipeline/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/base/wall_time.h"

namespace stockade::pipeline {
namespace {

constexpr uint64_t kNanos = 1'000'000'000;
// Of one `lost` event, which otherwise could grow beyond a record.
constexpr int kMaxRanges = 1024;
// For one flush: each gives back a segment, and what is written is no larger than a few.
constexpr int kGiveUpsPerFlush = 8;

// The numbers of these events. What a `lost` event told that is lost now itself is told again.
std::vector<v1::LostRange> RangesOf(const std::vector<v1::Event>& events) {
    std::vector<v1::LostRange> ranges;
    for (const v1::Event& event : events) {
        v1::LostRange& own = ranges.emplace_back();
        own.set_first(event.export_seq());
        own.set_last(event.export_seq());
        own.set_chain(event.chain());
        ranges.insert(ranges.end(), event.lost().exports().begin(), event.lost().exports().end());
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const auto& a, const auto& b) { return a.first() < b.first(); });
    std::vector<v1::LostRange> merged;
    for (v1::LostRange& range : ranges) {
        if (merged.empty() || merged.back().last() + 1 != range.first()) {
            merged.push_back(std::move(range));
        } else {
            merged.back().set_last(range.last());
            merged.back().set_chain(range.chain());
        }
    }
    return merged;
}

}  // namespace

Lane LaneOf(v1::Event::PayloadCase payload, absl::string_view verdict) {
    switch (payload) {
        case v1::Event::kFinding:
        case v1::Event::kAction:
        case v1::Event::kLifecycle:
        case v1::Event::kLost:
        case v1::Event::kSummary:
        case v1::Event::kSeal:
        case v1::Event::kAgent:
            return kFindings;
        case v1::Event::kRepeat:
            return kViolations;
        default:
            break;
    }
    return verdict == "deny" || verdict == "kill-process" || verdict == "kill-sandbox" ? kViolations
                                                                                       : kTelemetry;
}

Spool::Spool(Options options)
    : options_([&] {
          if (!options.write) options.write = ::write;
          if (!options.sync) options.sync = ::fdatasync;
          return std::move(options);
      }()),
      chain_(options_.node, options_.key) {}

Spool::~Spool() {
    // Whoever wants to know calls Sync first.
    (void)Flush();
    (void)Commit();
    std::lock_guard lock(mutex_);
    (void)ReplaceFile(PathOf("acks"), AcksText());
}

std::string Spool::PathOf(absl::string_view name) const { return absl::StrCat(options_.dir, "/", name); }

Status Spool::Append(const v1::Event& event) {
    std::lock_guard lock(mutex_);
    if (damage_to_tell_ > 0) TellDamage();
    if (chain_.Has(event)) {
        ++counters_.again;
        return absl::AlreadyExistsError(absl::StrCat(event.id(), " is in the spool"));
    }
    return AppendLocked(event, true);
}

Status Spool::Append(v1::Event* event) {
    std::lock_guard lock(mutex_);
    SK_RETURN_IF_ERROR(Append(*event));
    const ExportChain::Head head = chain_.HeadOf(event->sandbox().id());
    event->set_export_seq(head.seq);
    event->set_chain(head.chain);
    return absl::OkStatus();
}

bool Spool::Has(const v1::Event& event) const {
    std::lock_guard lock(mutex_);
    return chain_.Has(event);
}

ChainBooks Spool::BooksOf(const std::string& sandbox) const {
    std::lock_guard lock(mutex_);
    return chain_.HeadOf(sandbox).books;
}

std::map<std::string, ChainBooks> Spool::Unsealed() const {
    std::lock_guard lock(mutex_);
    std::map<std::string, ChainBooks> open;
    for (const auto& [sandbox, head] : chain_.heads()) {
        if (!sandbox.empty() && !head.sealed) open[sandbox] = head.books;
    }
    return open;
}

Status Spool::AppendLocked(const v1::Event& event, bool bounded) {
    SK_RETURN_IF_ERROR(MakeRoom(event.ByteSizeLong(), bounded));
    SK_ASSIGN_OR_RETURN(const absl::string_view payload, chain_.Add(event));
    Put(LaneOf(event.payload_case(), event.verdict()), payload);
    return absl::OkStatus();
}

Status Spool::Append(const model::EventBytes& event) {
    std::lock_guard lock(mutex_);
    if (damage_to_tell_ > 0) TellDamage();
    if (chain_.Has(event.sandbox, event.kernel_seq)) {
        ++counters_.again;
        return absl::AlreadyExistsError(absl::StrCat(event.id, " is in the spool"));
    }
    SK_RETURN_IF_ERROR(MakeRoom(event.bytes.size(), true));
    SK_ASSIGN_OR_RETURN(const absl::string_view payload, chain_.Add(event));
    Put(LaneOf(event.payload, event.verdict), payload);
    return absl::OkStatus();
}

// For an event of so many bytes, before it has its number: what is given up for it is told of in its sandbox's chain.
Status Spool::MakeRoom(size_t bytes, bool bounded) {
    size_t waiting = 0;
    for (const LaneState& lane : lanes_) waiting += lane.buffer.size();
    if (bounded && waiting >= options_.buffer_bytes) {
        if (const Status status = FlushLocked(); !status.ok()) {
            ++counters_.refused;
            return absl::ResourceExhaustedError(absl::StrCat("spool ", options_.dir, ": ", status.message()));
        }
    }
    bytes += 128;  // and number, chain, head
    if (bytes > kMaxRecordBytes) {
        ++counters_.refused;
        return absl::InvalidArgumentError(
            absl::StrCat("an event of ", bytes, " bytes is larger than a record of the spool"));
    }
    while (bounded && Bytes() + bytes > options_.max_bytes && GiveUpOldest()) {
    }
    return absl::OkStatus();
}

void Spool::Put(Lane lane, absl::string_view payload) {
    LaneState& state = lanes_[lane];
    const uint64_t position = next_position_++;
    if (state.buffer.empty()) state.buffer_first = position;
    state.buffer_last = position;
    AppendRecord(position, lane, payload, &state.buffer);
    ++counters_.appended;
}

Status Spool::Seal(const v1::Sandbox& sandbox) {
    std::lock_guard lock(mutex_);
    if (chain_.IsSealed(sandbox.id())) {
        return absl::FailedPreconditionError(
            absl::StrCat("the events of ", sandbox.id(), " are sealed already"));
    }
    v1::Event seal = chain_.Seal(sandbox);
    return AppendLocked(seal, true);
}

// --- writing ---

Status Spool::Flush() {
    std::lock_guard lock(mutex_);
    return FlushLocked();
}

Status Spool::FlushLocked() {
    Status first;
    int give_ups = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        Status status = FlushLane(static_cast<Lane>(lane));
        // A disk that is full before our own bound: what is oldest makes room.
        while (!status.ok() && IsDiskFull(status) && give_ups++ < kGiveUpsPerFlush &&
               GiveUpOldest()) {
            status = FlushLane(static_cast<Lane>(lane));
        }
        if (!status.ok() && first.ok()) first = status;
    }
    if (!first.ok()) return first;
    Count(Mark());  // without it what was written counts as unfinished only where something of it is missing
    bool rolled = false;
    for (int lane = 0; lane < kLanes; ++lane) {
        LaneState& state = lanes_[lane];
        if (state.file && state.file->bytes() >= options_.segment_bytes) {
            Roll(static_cast<Lane>(lane));
            rolled = true;
        }
    }
    if (rolled) snapshot_ = TakeSnapshot();
    return absl::OkStatus();
}

Status Spool::FlushLanes() {
    for (int lane = 0; lane < kLanes; ++lane) SK_RETURN_IF_ERROR(FlushLane(static_cast<Lane>(lane)));
    return Mark();
}

// Behind the last lane: once it is there, so is all else.
Status Spool::Mark() {
    if (marked_ + 1 == next_position_) return absl::OkStatus();
    for (int lane = kLanes; lane-- > 0;) {
        LaneState& state = lanes_[lane];
        if (!state.file) continue;
        std::string mark;
        AppendRecord(next_position_ - 1, kMark, "", &mark);
        SK_RETURN_IF_ERROR(state.file->Write(mark, options_.write));
        disk_bytes_ += mark.size();
        state.segments.back().bytes += mark.size();
        marked_ = next_position_ - 1;
        break;
    }
    return absl::OkStatus();
}

// By errno's name, which ErrnoStatus puts in brackets at the end.
void Spool::Count(const Status& status) {
    if (status.ok()) return;
    const std::string text(status.message());
    const size_t open = text.rfind('(');
    ++counters_.write_errors[open == text.npos ? text : text.substr(open + 1, text.size() - open - 2)];
}

Status Spool::FlushLane(Lane lane) {
    LaneState& state = lanes_[lane];
    if (state.buffer.empty()) return absl::OkStatus();
    if (!state.file) {
        Segment segment{.path = PathOf(absl::StrFormat("%d-%020d.seg", lane, state.buffer_first)),
                        .first = state.buffer_first};
        auto file = SpoolFile::Create(segment.path);
        Count(file.status());
        if (!file.ok()) return file.status();
        state.file = std::make_shared<SpoolFile>(*std::move(file));
        state.segments.push_back(std::move(segment));
        names_unsynced_ = true;
    }
    const Status status = state.file->Write(state.buffer, options_.write);
    Count(status);
    if (!status.ok()) return status;
    disk_bytes_ += state.file->bytes() - state.segments.back().bytes;
    state.segments.back().bytes = state.file->bytes();
    state.buffer.clear();
    return status;
}

void Spool::Roll(Lane lane) {
    LaneState& state = lanes_[lane];
    if (!state.file) return;
    rolled_.push_back(std::move(state.file));
    state.file.reset();
    // All below what waits is in files.
    state.segments.back().last = (state.buffer.empty() ? next_position_ : state.buffer_first) - 1;
}

// --- giving up ---

uint64_t Spool::Bytes() const {
    uint64_t bytes = disk_bytes_;
    for (const LaneState& state : lanes_) bytes += state.buffer.size();
    return bytes;
}

bool Spool::GiveUpOldest() {
    Collect();
    for (int lane = 0; lane < kLanes; ++lane) {
        LaneState& state = lanes_[lane];
        if (state.segments.empty()) continue;
        if (state.segments.size() == 1) Roll(static_cast<Lane>(lane));
        return GiveUp(static_cast<Lane>(lane));
    }
    return false;
}

bool Spool::GiveUp(Lane lane) {
    LaneState& state = lanes_[lane];
    // Its records may be all that is known of their sandboxes' numbers.
    if (state.segments.front().last >= heads_saved_) SecureHeads();
    const Segment segment = state.segments.front();
    Lost lost;
    uint64_t count = 0;
    const auto data = ReadFile(segment.path, segment.bytes + kMaxRecordBytes);
    // Out of descriptors or memory: the segment is whole, and can be read in a moment.
    if (absl::IsResourceExhausted(data.status())) return false;
    if (data.ok()) {
        SpoolRecord record;
        size_t at = kFileMagic.size();
        for (Parsed parsed;
             (parsed = ParseRecord(*data, &at, &record)) == Parsed::kRecord || parsed == Parsed::kDamaged;) {
            if (parsed == Parsed::kDamaged || record.lane == kMark) continue;
            bool wanted = false;
            for (auto& [name, reader] : readers_) {
                const auto flight = reader.flight.find(record.position);
                const bool acked = record.position <= reader.acked ||
                                   (flight != reader.flight.end() && flight->second == kAcked);
                wanted |= !acked;
                // It will not be handed out again: nothing may wait for it.
                if (!acked && flight != reader.flight.end()) reader.flight.erase(flight);
            }
            v1::Event event;
            if (!wanted ||
                !event.ParseFromArray(record.payload.data(), static_cast<int>(record.payload.size())))
                continue;
            ++count;
            lost[event.sandbox().id()].push_back(std::move(event));
        }
    } else {
        ++damage_to_tell_;  // what was in it nobody knows
    }
    state.segments.pop_front();
    for (auto& [name, reader] : readers_) {
        if (reader.lanes[lane].segment == segment.first) reader.lanes[lane] = Cursor{};
        reader.Advance();
    }
    counters_.lost_full += count;
    TellLost(lost, "spool", "full");
    // Told before it is gone, where the disk has room for that.
    if (count > 0) (void)FlushLanes();
    // What stays is read once more at the next start, and is acknowledged or lost then.
    (void)unlink(segment.path.c_str());
    // Open and waiting for its sync, it would keep the room that it was to make.
    std::erase_if(rolled_, [&](const auto& file) { return file->path() == segment.path; });
    disk_bytes_ -= segment.bytes;
    return true;
}

v1::Event Spool::LostEvent(absl::string_view stage, absl::string_view cause, uint64_t count) const {
    v1::Event event;
    event.set_node(options_.node);
    event.set_kind("lost");
    event.set_boot_ns(BootNow());
    const uint64_t wall = WallAt(event.boot_ns());
    event.mutable_time()->set_seconds(static_cast<int64_t>(wall / kNanos));
    event.mutable_time()->set_nanos(static_cast<int32_t>(wall % kNanos));
    event.mutable_lost()->set_stage(std::string(stage));
    event.mutable_lost()->set_cause(std::string(cause));
    event.mutable_lost()->set_count(count);
    event.set_id(absl::StrCat(options_.node, ".spool.", next_position_));
    return event;
}

// Not bounded: it makes room, and what it writes is a fraction of that.
void Spool::TellLost(const Lost& lost, absl::string_view stage, absl::string_view cause) {
    for (const auto& [sandbox, events] : lost) TellRanges(events.front().sandbox(), RangesOf(events), stage, cause);
}

void Spool::TellRanges(const v1::Sandbox& sandbox, const std::vector<v1::LostRange>& ranges, absl::string_view stage,
                       absl::string_view cause) {
    v1::Event told = LostEvent(stage, cause, 0);
    const auto tell = [&] {
        if (!sandbox.id().empty()) *told.mutable_sandbox() = sandbox;
        (void)AppendLocked(told, false);  // cannot fail: it is small, and of the kind that a sealed chain takes
        told = LostEvent(stage, cause, 0);
    };
    for (const v1::LostRange& range : ranges) {
        v1::Lost* out = told.mutable_lost();
        if (out->exports_size() == kMaxRanges) {
            tell();
            out = told.mutable_lost();
        }
        *out->add_exports() = range;
        out->set_count(out->count() + range.last() - range.first() + 1);
    }
    tell();
    if (!chain_.IsSealed(sandbox.id())) return;
    v1::Event seal = chain_.Seal(sandbox);
    (void)AppendLocked(seal, false);  // as above
}

void Spool::Reject(const std::string& reader, uint64_t position, const v1::Event& event,
                   absl::string_view cause) {
    Ack(reader, position);
    std::lock_guard lock(mutex_);
    ++counters_.rejected;
    TellLost({{event.sandbox().id(), {event}}}, "exporter", cause);
}

void Spool::TellDamage() {
    v1::Event event = LostEvent("spool", "damaged", damage_to_tell_);
    damage_to_tell_ = 0;
    (void)AppendLocked(event, false);  // small: cannot fail
}

void Spool::Collect() {
    uint64_t acked = next_position_;
    for (const auto& [name, reader] : readers_) acked = std::min(acked, reader.acked);
    for (LaneState& state : lanes_) {
        while (!state.segments.empty()) {
            const Segment& segment = state.segments.front();
            // Its events may be all that is known of their sandboxes' numbers.
            if (segment.last == 0 || segment.last > acked || segment.last >= heads_saved_) break;
            (void)unlink(
                segment.path.c_str());  // what stays is read again at the next start, and is acknowledged
            disk_bytes_ -= segment.bytes;
            state.segments.pop_front();
        }
    }
}

SpoolCounters Spool::counters() const {
    std::lock_guard lock(mutex_);
    SpoolCounters counters = counters_;
    counters.bytes = Bytes();
    return counters;
}

uint64_t Spool::after_seal() const {
    std::lock_guard lock(mutex_);
    return chain_.after_seal();
}

}  // namespace stockade::pipeline
