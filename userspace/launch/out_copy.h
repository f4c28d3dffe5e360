// Brings files out of a sandbox: hostile source, caller's directory as the target.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "userspace/base/status.h"
#include "userspace/policy/pattern.h"

namespace stockade::launch {

// Files that may leave: those that `pattern` covers, taken as if /out were the root.
struct OutRule {
    policy::PathPattern pattern;
    uint64_t max_bytes = 0;  // of one file
    uint32_t max_files = 0;
};

struct OutLimits {
    uint64_t max_bytes = 256ull << 20;  // sum of file sizes, holes counted as bytes
    uint32_t max_entries = 65536;       // files and directories
    uint32_t max_depth = 32;            // directories below each other
    uint32_t max_reported = 1000;       // rows of `dropped` and of `copied`; more are only counted
    // Where there is a list, what none of it covers stays: the first rule that covers a file is its rule.
    std::optional<std::vector<OutRule>> rules{};
    std::string left_out{};  // a name directly in the source that is somebody else's affair, and not reported
};

struct OutCopied {
    std::string path{};
    uint64_t bytes = 0;
    std::array<uint8_t, 32> sha256{};  // of what was written to the target
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
    std::vector<OutCopied> copied;
};

// Copies regular files below `source_fd` to the directory `target_fd`, as the caller (its fsuid
// decides what may be written there), replacing files of the same name. A sparse file arrives whole,
// and counts with its holes. Each name of a hard link arrives as a file of its own, but only from a
// tmpfs of the source's own: elsewhere the link may show a file that is none of its business. Safe
// against a source and a target that change meanwhile. Errors only when nothing can be done at all.
StatusOr<OutReport> CopyOut(int source_fd, int target_fd, uid_t caller_uid, gid_t caller_gid,
                            const OutLimits& limits = {});

// One regular file directly in `source_fd`, as hostile as those above. kNotFound, or what it is in place of one.
StatusOr<std::string> ReadOut(int source_fd, const std::string& name, uint64_t max_bytes);

}  // namespace stockade::launch
