// A segment of the spool: a file of checksummed records. Not thread-safe.
//
// File: kFileMagic, then records. Record, all little-endian: u32 magic, u32 CRC-32C of what follows it,
// u64 position, u32 bytes of the payload, u8 lane, 3 zero bytes, payload.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "userspace/base/fd.h"
#include "userspace/base/status.h"

namespace stockade::pipeline {

constexpr absl::string_view kFileMagic = "SKSPOOL1";
constexpr uint32_t kRecordMagic = 0x31524b53;  // "SKR1"
constexpr size_t kRecordHead = 24;
// The largest event is a summary: some hundred KiB. A length beyond it is damage.
constexpr size_t kMaxRecordBytes = 4 << 20;
// In the place of a lane: no record, but the word that all records up to its position are in the files of their lanes.
constexpr uint8_t kMark = 0xff;

// Not out of descriptors or memory, which statuses call by the same code.
bool IsDiskFull(const Status& status);

struct SpoolRecord {
    uint64_t position = 0;
    uint8_t lane = 0;
    absl::string_view payload;  // borrowed
};

void AppendRecord(uint64_t position, uint8_t lane, absl::string_view payload, std::string* out);

enum class Parsed {
    kRecord,   // *record is filled
    kEnd,      // nothing is left
    kTorn,     // what is left is no whole record: more may come, or a writer was cut
    kDamaged,  // something is wrong; *at is where the next record may start
};
// Reads one record of `data` at *at and moves *at behind it. After damage it looks for the next record
// whose checksum is right, so that one flipped bit costs one record.
Parsed ParseRecord(absl::string_view data, size_t* at, SpoolRecord* record);

// By rename, so that a cut leaves the old one; its content is on the disk before.
Status ReplaceFile(const std::string& path, const std::string& content);

// write(2), or what a test puts in its place.
using WriteFn = std::function<ssize_t(int fd, const void* data, size_t size)>;
// fdatasync(2), likewise.
using SyncFn = std::function<int(int fd)>;

class SpoolFile {
  public:
    // kAlreadyExists never: names hold positions, which are given once.
    static StatusOr<SpoolFile> Create(const std::string& path);
    // For more records behind `good_bytes`; what stands behind those is cut off.
    static StatusOr<SpoolFile> OpenForAppend(const std::string& path, uint64_t good_bytes);

    // All of it or nothing: after a failure the file is as long as before. The message names errno.
    Status Write(absl::string_view records, const WriteFn& write);
    // Beside a Write too: one that comes meanwhile may be in it or not.
    Status Sync(const SyncFn& sync) const;
    uint64_t bytes() const { return bytes_; }
    const std::string& path() const { return path_; }

  private:
    SpoolFile(Fd fd, std::string path, uint64_t bytes)
        : fd_(std::move(fd)), path_(std::move(path)), bytes_(bytes) {}

    Fd fd_;
    std::string path_;
    uint64_t bytes_;
};

}  // namespace stockade::pipeline
