// Brings files out of a sandbox: hostile source, caller's directory as the target.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::launch {

struct OutLimits {
    uint64_t max_bytes = 256ull << 20;  // sum of file sizes, holes counted as bytes
    uint32_t max_entries = 65536;       // files and directories
    uint32_t max_depth = 32;            // directories below each other
    uint32_t max_reported = 1000;       // rows of `dropped`; more are only counted
};

struct OutDropped {
    std::string path;    // relative; bytes as the sandbox chose them
    std::string reason;  // "symlink", "hard link", "fifo", "over the size limit", ...
};

struct OutReport {
    uint32_t files = 0;
    uint64_t bytes = 0;
    uint64_t dropped_count = 0;
    std::vector<OutDropped> dropped;
};

// Copies regular files below `source_fd` to the directory `target_fd`, as the caller (its fsuid
// decides what may be written there), replacing files of the same name. A sparse file arrives whole,
// and counts with its holes. Each name of a hard link arrives as a file of its own, but only from a
// tmpfs of the source's own: elsewhere the link may show a file that is none of its business. Safe
// against a source and a target that change meanwhile. Errors only when nothing can be done at all.
StatusOr<OutReport> CopyOut(int source_fd, int target_fd, uid_t caller_uid, gid_t caller_gid,
                            const OutLimits& limits = {});

}  // namespace stockade::launch
