// What is on the disk, beyond a power failure.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/errno.h"
#include "userspace/pipeline/spool.h"

namespace stockade::pipeline {
namespace {

// Names of files that were made, renamed or removed.
Status SyncFolder(const std::string& path) {
    SK_ASSIGN_OR_RETURN(const Fd folder, Fd::Open(path, O_RDONLY | O_DIRECTORY));
    if (fsync(folder.get()) != 0) return ErrnoStatus(errno, absl::StrCat("sync ", path));
    return absl::OkStatus();
}

}  // namespace

Status Spool::Sync() {
    {
        std::lock_guard lock(mutex_);
        if (damage_to_tell_ > 0) TellDamage();
        SK_RETURN_IF_ERROR(FlushLocked());
    }
    SK_RETURN_IF_ERROR(Commit());
    // As above: whoever appends does not wait for the disk.
    std::string acks;
    {
        std::lock_guard lock(mutex_);
        acks = AcksText();
    }
    {
        std::lock_guard saving(acks_mutex_);
        SK_RETURN_IF_ERROR(ReplaceFile(PathOf("acks"), acks));
    }
    std::lock_guard lock(mutex_);
    Collect();
    return absl::OkStatus();
}

// All that was flushed when it begins. mutex_ is not held while the disk works.
Status Spool::Commit() {
    std::lock_guard committing(commit_mutex_);
    std::vector<std::shared_ptr<SpoolFile>> files;
    std::optional<Snapshot> snapshot;
    uint64_t upto = 0;
    bool names = false;
    {
        std::lock_guard lock(mutex_);
        upto = Readable();
        if (upto <= synced_ && !snapshot_ && rolled_.empty()) return absl::OkStatus();
        files = rolled_;
        for (const LaneState& state : lanes_) {
            if (state.file) files.push_back(state.file);
        }
        snapshot = std::exchange(snapshot_, std::nullopt);
        names = std::exchange(names_unsynced_, false);
        committed_ns_ = BootNow();
    }
    Status status;
    for (const auto& file : files) {
        if (status.ok()) status = file->Sync(options_.sync);
    }
    if (status.ok() && names) status = SyncFolder(options_.dir);
    Status saved;
    if (status.ok() && snapshot) saved = SaveSnapshot(*snapshot);
    std::lock_guard lock(mutex_);
    Count(status);
    Count(saved);
    if (snapshot && (!status.ok() || !saved.ok()) && !snapshot_) snapshot_ = std::move(snapshot);
    names_unsynced_ |= names && !status.ok();
    SK_RETURN_IF_ERROR(status);
    ++counters_.commits;
    synced_ = std::max(synced_, upto);
    std::erase_if(rolled_, [&](const auto& file) { return std::count(files.begin(), files.end(), file) > 0; });
    return absl::OkStatus();
}

// Whoever comes second with an older one leaves it.
Status Spool::SaveSnapshot(const Snapshot& snapshot) {
    {
        std::lock_guard lock(heads_mutex_);
        if (snapshot.position <= heads_on_disk_) return absl::OkStatus();
        SK_RETURN_IF_ERROR(ReplaceFile(PathOf("heads"), snapshot.text));
        SK_RETURN_IF_ERROR(SyncFolder(options_.dir));
        heads_on_disk_ = snapshot.position;
    }
    std::lock_guard lock(mutex_);
    heads_saved_ = std::max(heads_saved_, snapshot.position);
    return absl::OkStatus();
}

// With mutex_ held, where there is no other way: segments that heads does not tell of are about to go. On a disk that
// takes nothing it is left: room is needed more.
void Spool::SecureHeads() {
    if (!FlushLanes().ok()) return;
    for (const LaneState& state : lanes_) {
        if (state.file && !state.file->Sync(options_.sync).ok()) return;
    }
    for (const auto& file : rolled_) {
        if (!file->Sync(options_.sync).ok()) return;
    }
    Count(SaveSnapshot(TakeSnapshot()));
}

}  // namespace stockade::pipeline
