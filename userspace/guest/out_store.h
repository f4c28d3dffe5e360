// Writes what a guest says was in /out below a directory. The guest is hostile: regular files and directories only, new
// names only, bounded in number, bytes and depth, and never a step out of the directory.
//
// The directory is the caller's own and empty, and nobody else writes there (a runtime makes one, mode 0700, and brings
// its files on with launch/out_copy, which knows the rights of whoever asked).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/base/fd.h"
#include "userspace/guest/frame.h"

namespace stockade::guest {

struct OutLimits {
    uint64_t max_bytes = 256ull << 20;  // the same as launch::OutLimits, for the same reasons
    uint32_t max_entries = 65536;
    uint32_t max_depth = 32;
    uint32_t max_reported = 1000;  // rows of `skipped`; more are only counted
};

struct OutReport {
    uint32_t files = 0;
    uint32_t directories = 0;
    uint64_t bytes = 0;
    // As the guest tells: bytes of its choice.
    uint64_t skipped_count = 0;
    std::vector<std::pair<std::string, std::string>> skipped;  // path, reason
};

// kInvalidArgument unless it is relative, without empty, "." and ".." parts, without zero bytes, and short enough.
Status CheckOutPath(absl::string_view path, uint32_t max_depth);

// Threads: one.
class OutStore {
  public:
    // `directory` is borrowed.
    OutStore(int directory, const OutLimits& limits) : directory_(directory), limits_(limits) {}

    // The init in the guest keeps to the limits by itself and tells what it leaves out: more than that is a lie.
    Status Begin(const Entry& entry);
    Status Bytes(absl::string_view bytes);
    // The file is whole. One that never gets here keeps mode 0600, whatever it was to have.
    Status Done();
    Status AddSkipped(const Skipped& skipped);
    const OutReport& report() const { return report_; }

  private:
    int directory_;
    OutLimits limits_;
    OutReport report_;
    uint32_t entries_ = 0;
    uint64_t promised_bytes_ = 0;
    Fd file_;
    uint32_t file_mode_ = 0;
};

}  // namespace stockade::guest
