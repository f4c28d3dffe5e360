#include "userspace/launch/landlock.h"

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/launch/syscalls.h"

namespace stockade::launch {
namespace {

// linux/landlock.h of Debian 12 ends at ABI 2.
constexpr uint64_t kExecute = 1u << 0, kWriteFile = 1u << 1, kReadFile = 1u << 2, kReadDir = 1u << 3,
                   kRemoveDir = 1u << 4, kRemoveFile = 1u << 5, kMakeChar = 1u << 6, kMakeDir = 1u << 7,
                   kMakeReg = 1u << 8, kMakeSock = 1u << 9, kMakeFifo = 1u << 10, kMakeBlock = 1u << 11,
                   kMakeSym = 1u << 12, kRefer = 1u << 13, kTruncate = 1u << 14;
constexpr uint64_t kWriteAll = kWriteFile | kRemoveDir | kRemoveFile | kMakeChar | kMakeDir | kMakeReg |
                               kMakeSock | kMakeFifo | kMakeBlock | kMakeSym | kRefer | kTruncate;
constexpr unsigned kCreateVersion = 1;  // LANDLOCK_CREATE_RULESET_VERSION

bool Covers(const std::string& outer, const std::string& inner) {
    return outer == "/" || inner == outer || absl::StartsWith(inner, absl::StrCat(outer, "/"));
}

}  // namespace

int LandlockAbi() {
    long abi = syscall(kNrLandlockCreate, nullptr, 0, kCreateVersion);
    return abi < 0 ? 0 : static_cast<int>(abi);
}

uint64_t LandlockAccess(uint32_t rights, int abi) {
    uint64_t access = 0;
    if (rights & kLandlockRead) access |= kReadFile | kReadDir;
    if (rights & kLandlockWrite) access |= kWriteAll;
    if (rights & kLandlockExecute) access |= kExecute;
    if (abi < 3) access &= ~kTruncate;
    if (abi < 2) access &= ~kRefer;
    return abi < 1 ? 0 : access;
}

LandlockPlan PlanLandlock(uint32_t handled, const std::vector<LandlockPattern>& patterns) {
    std::map<std::string, uint32_t> merged;
    for (const LandlockPattern& pattern : patterns) {
        std::string path = pattern.prefix;
        // A prefix that ends inside a component ("/usr/bin/python" of python3*) stands for its
        // directory: Landlock knows no globs.
        if (!pattern.exact && !path.empty() && path.back() != '/') path.erase(path.rfind('/') + 1);
        while (path.size() > 1 && path.back() == '/') path.pop_back();
        if (path.empty() || path[0] != '/') path.assign(1, '/');
        uint32_t rights = pattern.rights & handled;
        // The kernel asks for reading as well when it opens a file to execute it.
        if ((pattern.rights & kLandlockExecute) != 0) rights |= kLandlockRead & handled;
        // Making or removing a file asks its directory for the right. Not so /dev: its nodes are
        // there, nobody makes one, and the right would reach /dev/shm.
        if (pattern.exact && (rights & kLandlockWrite) != 0 && path != "/") {
            std::string parent = path.substr(0, std::max<size_t>(path.rfind('/'), 1));
            if (parent != "/dev") merged[parent] |= kLandlockWrite;
        }
        if (rights != 0) merged[path] |= rights;
    }
    LandlockPlan plan;
    plan.handled = handled;
    for (const auto& [path, rights] : merged) {
        uint32_t inherited = 0;
        for (const LandlockPath& row : plan.paths) {
            if (row.path != path && Covers(row.path, path)) inherited |= row.rights;
        }
        if ((rights & ~inherited) != 0) plan.paths.push_back({path, rights});
    }
    return plan;
}

}  // namespace stockade::launch
