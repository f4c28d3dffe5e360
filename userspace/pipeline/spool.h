// Events between the rings and who takes them away: bounded, on disk, in order, each until every reader
// has said that it is delivered.
//
//   SK_ASSIGN_OR_RETURN(auto spool, Spool::Open({.dir = "/var/lib/stockade/spool", .readers = {"kafka"}}));
//   Status status = spool->Append(&event);      // gives export_seq and chain
//   status = spool->Flush();                    // now kill -9 loses nothing of it
//   for (auto& record : spool->Next("kafka", 64)) {   // which are on the disk
//       send(record.payload); ... spool->Ack("kafka", {record.position});
//   }
//
// SEAM: the thread behind the rings calls Append for each event and Flush for each pass; only then may
// the rings be released. When Append fails with kResourceExhausted the record stays in the ring, which
// counts what it loses. An exporter's thread calls Next, and Ack from its delivery reports, in any order;
// after a failed delivery Rewind. After a start, seal the sandboxes that are gone: heads of what is not
// sealed are kept for ever. Seal a sandbox once it is destroyed and its summary appended. Sync
// every second or so. Any thread; whoever appends is held for no longer than a write.
//
// No reader gets what a power failure could take back: its number would be given to another event. So Next syncs, for
// all readers and all that was flushed at once (group commit), and whoever appends goes on meanwhile.
//
// Three lanes of segment files: telemetry, violations, and findings with all that keeps the books. When
// the bound is reached the oldest telemetry goes, findings last. What goes unread becomes a `lost` event
// of its sandbox, which names the numbers and the chain behind them. Records of a sandbox keep their order
// over the lanes. A record that was handed out before a start may come again, marked `again`.
//
// A record that the rings still have after a start, as they were not released yet, is recognised: the numbers that each
// sandbox's chain has had are read with the records, and stand in the snapshot of heads for segments that are gone.
// So there is no second list of them that could say something else than the spool.
//
// A start reads what came since the last snapshot of heads: a cut in mid-record costs that record, which
// was in no ring's release; a flipped bit costs its record and is told as lost. What a flush had written when it was
// cut between two lanes is taken back: nobody was handed it, and the rings have it still. Any other number that is
// missing is told as lost. Numbers are never given twice.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/model/event.pb.h"
#include "userspace/pipeline/export_chain.h"
#include "userspace/pipeline/spool_file.h"

namespace stockade::pipeline {

// In the order in which they are given up.
enum Lane : uint8_t { kTelemetry, kViolations, kFindings, kLanes };
Lane LaneOf(v1::Event::PayloadCase payload, absl::string_view verdict);

struct SpoolCounters {
    uint64_t appended = 0;
    uint64_t lost_full = 0;     // given up, as the bound was reached
    uint64_t lost_damaged = 0;  // checksum or form was wrong; at least so many
    uint64_t rejected = 0;      // what a peer will never take
    uint64_t torn = 0;          // cut in mid-record, found at a start
    uint64_t unfinished = 0;    // records of a flush that was cut between two lanes, found at a start and taken back
    uint64_t commits = 0;       // syncs that a reader waited for
    uint64_t refused = 0;       // Append failed: the disk takes nothing and the buffer is full
    uint64_t again = 0;         // read from the rings once more after a start, and here already
    std::map<std::string, uint64_t> write_errors;  // of reading too, by errno's name: ENOSPC, EROFS ...
    uint64_t bytes = 0;                            // on disk now
};

class Spool {
  public:
    struct Options {
        std::string dir{};
        std::string node{};
        std::vector<std::string> readers{};
        const NodeKey* key = nullptr;            // not owned
        uint64_t max_bytes = uint64_t{4} << 30;  // ten minutes of 5,000 events per second, twice over
        uint64_t segment_bytes = 2 << 20;        // what is given up at once, and read at once
        uint64_t buffer_bytes = 8 << 20;         // what waits in memory while the disk takes nothing
        size_t max_in_flight = 65536;            // handed to a reader and not acknowledged
        uint64_t commit_ns = 0;                  // readers ask for a sync no more often: what they wait at most, and what a disk is spared
        WriteFn write{};                         // unset: write(2)
        SyncFn sync{};                           // unset: fdatasync(2); of segments
        std::string boot_id_path = "/proc/sys/kernel/random/boot_id";
    };
    struct Record {
        uint64_t position;
        std::string payload;  // serialised stockade.v1.Event
        bool again;           // may have been delivered before this start
    };

    // kFailedPrecondition: another process has it open. kPermissionDenied and kUnavailable say which
    // file could not be written and why (EROFS, ENOSPC).
    static StatusOr<std::unique_ptr<Spool>> Open(Options options);
    ~Spool();

    // kAlreadyExists when a record of that kernel_seq is in the sandbox's chain, or its sandbox is sealed and known by its
    // slot alone: it is left as it is.
    Status Append(const v1::Event& event);
    // What AppendCanonical (export_chain.h) made of one; the same but for that.
    Status Append(const model::EventBytes& event);
    // And sets the number and chain that it was given.
    Status Append(v1::Event* event);
    // Several calls as one: held by each alone, the lock goes to a reader that is catching up more often than to who writes.
    [[nodiscard]] std::unique_lock<std::recursive_mutex> Hold() { return std::unique_lock(mutex_); }
    // kFailedPrecondition when it is sealed already.
    Status Seal(const v1::Sandbox& sandbox);
    // What was appended is with the operating system. On failure it stays in the buffer for the next try.
    Status Flush();
    // And on the disk, with what was acknowledged.
    Status Sync();

    // At most so many, and no more than some MiB. Empty: there is none, or too many are in flight, or none is on the disk yet.
    std::vector<Record> Next(const std::string& reader, size_t most);
    void Ack(const std::string& reader, const std::vector<uint64_t>& positions);
    // The same of one.
    std::optional<Record> Next(const std::string& reader);
    void Ack(const std::string& reader, uint64_t position) { Ack(reader, std::vector<uint64_t>{position}); }
    // The peer will never take this one: acknowledged, and told as lost. `event` is what was handed out.
    void Reject(const std::string& reader, uint64_t position, const v1::Event& event,
                absl::string_view cause);
    // What was handed out and is not acknowledged is handed out again, in order.
    void Rewind(const std::string& reader);

    // Of the sandboxes that are not sealed, by id: what the spool knows of them, also from before this start.
    std::map<std::string, ChainBooks> Unsealed() const;
    ChainBooks BooksOf(const std::string& sandbox) const;
    // Append would say kAlreadyExists.
    bool Has(const v1::Event& event) const;

    SpoolCounters counters() const;
    uint64_t after_seal() const;

  private:
    struct Segment {
        std::string path;
        uint64_t first = 0;  // position that its name holds: nothing in it is below
        uint64_t last = 0;   // 0 = it is written to still
        uint64_t bytes = 0;
    };
    struct LaneState {
        std::deque<Segment> segments;
        std::shared_ptr<SpoolFile> file;  // of the last segment; null = the next write makes one
        std::string buffer;               // records that are not written yet
        uint64_t buffer_first = 0;
        uint64_t buffer_last = 0;
    };
    struct Cursor {            // of a reader in a lane
        uint64_t segment = 0;  // Segment::first; 0 = at the first there is
        uint64_t base = 0;     // where in the file `data` starts
        std::string data;
        size_t at = 0;  // in data
        std::optional<Record> peeked;
    };
    enum Flight { kHanded, kAcked, kRewound };
    struct Reader {
        void Advance();

        uint64_t acked = 0;                 // all up to here are acknowledged
        std::map<uint64_t, Flight> flight;  // above that, by position
        Cursor lanes[kLanes];
    };
    // What heads was to say when all that was appended was in files.
    struct Snapshot {
        std::string text;
        uint64_t position = 0;  // all below are in it
    };
    using Found = std::vector<std::pair<uint64_t, v1::Event>>;   // by position
    using Lost = std::map<std::string, std::vector<v1::Event>>;  // by sandbox, in order

    explicit Spool(Options options);
    // spool_load.cc
    Status Load();
    // `from`: records below this position are known from the heads.
    Status LoadLane(Lane lane, uint64_t from, Found* found, uint64_t* damaged);
    Status LoadSegment(LaneState& state, Segment& segment, bool is_last, Found* found, uint64_t* damaged);
    Status CutUnfinished(Found* found);
    Status CutLane(Lane lane, uint64_t from);
    void RestoreChains(const Found& found);
    void AccountForDamage(uint64_t damaged);
    Status LoadHeads();
    Status LoadAcks();
    Snapshot TakeSnapshot() const;
    std::string AcksText() const;
    // spool.cc
    std::string PathOf(absl::string_view name) const;
    Status AppendLocked(const v1::Event& event, bool bounded);
    Status MakeRoom(size_t bytes, bool bounded);
    void Put(Lane lane, absl::string_view payload);
    Status FlushLocked();
    Status FlushLanes();
    Status FlushLane(Lane lane);
    Status Mark();
    void Count(const Status& status);
    void Roll(Lane lane);
    uint64_t Bytes() const;
    bool GiveUpOldest();
    // False when what it holds cannot be looked at now.
    bool GiveUp(Lane lane);
    void TellLost(const Lost& lost, absl::string_view stage, absl::string_view cause);
    void TellRanges(const v1::Sandbox& sandbox, const std::vector<v1::LostRange>& ranges, absl::string_view stage,
                    absl::string_view cause);
    void TellDamage();
    v1::Event LostEvent(absl::string_view stage, absl::string_view cause, uint64_t count) const;
    void Collect();
    // spool_sync.cc
    Status Commit();
    Status SaveSnapshot(const Snapshot& snapshot);
    void SecureHeads();
    // spool_read.cc
    std::vector<Record> NextLocked(Reader& reader, size_t most, bool* unsynced);
    std::optional<Record> NextOne(Reader& reader, bool* unsynced);
    uint64_t Readable() const;
    // kFailed: the disk, or no descriptor or memory is left; what comes behind must wait for it.
    enum class Look { kNothing, kThere, kFailed };
    Look Peek(Reader& reader, Lane lane);
    Look ReadMore(Cursor& cursor, Lane lane);
    bool NextSegment(Cursor& cursor, Lane lane);

    const Options options_;
    std::mutex commit_mutex_;             // of who syncs; before mutex_
    mutable std::recursive_mutex mutex_;  // for Hold
    std::mutex heads_mutex_;              // of the file heads alone; last
    std::mutex acks_mutex_;               // of the file acks alone
    Fd lock_;
    ExportChain chain_;
    LaneState lanes_[kLanes];
    std::map<std::string, Reader> readers_;
    uint64_t next_position_ = 1;
    uint64_t first_of_start_ = 1;  // positions below were there before this start
    uint64_t disk_bytes_ = 0;      // of all segments
    uint64_t heads_saved_ = 0;     // the snapshot of heads holds all below
    uint64_t heads_on_disk_ = 0;   // likewise, under heads_mutex_
    std::string boot_, heads_boot_;  // ids of this start of the machine, and of the one that heads is of
    uint64_t marked_ = 0;          // all up to here were in files once
    uint64_t synced_ = 0;          // all up to here are on the disk, if they are there still
    uint64_t committed_ns_ = 0;    // boot; when the last sync for a reader began
    bool names_unsynced_ = false;  // files were made since the folder was synced
    std::vector<std::shared_ptr<SpoolFile>> rolled_;  // not written to any more, and not synced
    std::optional<Snapshot> snapshot_;                // to be saved once its records are on the disk
    uint64_t damage_to_tell_ = 0;
    SpoolCounters counters_;
};

}  // namespace stockade::pipeline
