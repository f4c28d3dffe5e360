// Landlock: the narrowest domain that contains a policy's lists, as the second lock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "userspace/base/status.h"

namespace stockade::launch {

// Rights of one path, all below it included when it is a directory.
enum LandlockRight : uint32_t {
    kLandlockRead = 1,   // open for reading, list
    kLandlockWrite = 2,  // write, truncate, make, remove, rename
    kLandlockExecute = 4,
    // Of a path that is listed alone: the file that it is, or the listing of the directory that it is.
    // Nothing below: a policy that lists "/" does not grant the machine.
    kLandlockReadThis = 8,
    kLandlockExecuteThis = 16,
};

struct LandlockPath {
    std::string path;  // absolute, inside; symlinks are followed there. Absent = no rule
    uint32_t rights = 0;
};

// What is handled is refused everywhere but under the paths that grant it.
struct LandlockPlan {
    uint32_t handled = 0;  // LandlockRight bits; 0 = no file domain
    std::vector<LandlockPath> paths;
    bool scope_signals = false;   // ABI 6: no signal to a process outside the domain
    bool scope_abstract = false;  // ABI 6: no abstract socket of outside
    bool empty() const { return handled == 0 && !scope_signals && !scope_abstract; }
};

inline constexpr size_t kMaxLandlockPaths = 4096;  // each costs an open before the start

// The pattern as the policy compiler splits it: `prefix` is its longest literal directory (or the
// whole path when `exact`).
struct LandlockPattern {
    uint32_t rights = 0;
    std::string prefix;
    bool exact = false;
};
// Hull of the patterns: one rule per prefix, those below an equal or wider one dropped.
LandlockPlan PlanLandlock(uint32_t handled, const std::vector<LandlockPattern>& patterns);

// 0 where the kernel has no Landlock, else its ABI version.
int LandlockAbi();
// landlock_ruleset_attr.handled_access_fs for the rights, cut down to the ABI.
uint64_t LandlockAccess(uint32_t rights, int abi);
// The same of a rule whose path is no directory.
uint64_t LandlockFileAccess(uint32_t rights, int abi);

}  // namespace stockade::launch
