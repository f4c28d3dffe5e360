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
    if (rights & kLandlockReadThis) access |= kReadDir;
    if (abi < 3) access &= ~kTruncate;
    if (abi < 2) access &= ~kRefer;
    return abi < 1 ? 0 : access;
}

uint64_t LandlockFileAccess(uint32_t rights, int abi) {
    constexpr uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate;
    uint64_t access = LandlockAccess(rights, abi) & kOfFiles;
    if (abi >= 1 && (rights & kLandlockReadThis)) access |= kReadFile;
    if (abi >= 1 && (rights & kLandlockExecuteThis)) access |= kExecute;
    return access;
}

namespace {

// The rights of one path alone where it has none of what lies below it.
uint32_t ThisAlone(uint32_t rights) {
    uint32_t alone = rights & ~(kLandlockRead | kLandlockExecute);
    if (rights & kLandlockRead) alone |= kLandlockReadThis;
    if (rights & kLandlockExecute) alone |= kLandlockExecuteThis;
    return alone;
}

// What rows above give to all below them covers what a path has alone.
uint32_t Lacking(uint32_t rights, uint32_t inherited) {
    return rights & ~(inherited | (ThisAlone(inherited) & (kLandlockReadThis | kLandlockExecuteThis)));
}

std::string ParentOf(const std::string& path) { return path.substr(0, std::max<size_t>(path.rfind('/'), 1)); }

// A file that is not there at the start gets no rule: where the sandbox may make it, it reads there.
void AddReadsOfTheMade(const std::vector<std::string>& alone, std::map<std::string, uint32_t>* merged) {
    for (const std::string& path : alone) {
        const std::string parent = ParentOf(path);
        for (const auto& [outer, rights] : *merged) {
            if ((rights & kLandlockWrite) == 0 || !Covers(outer, parent)) continue;
            (*merged)[parent] |= kLandlockRead;
            break;
        }
    }
}

}  // namespace

LandlockPlan PlanLandlock(uint32_t handled, const std::vector<LandlockPattern>& patterns) {
    std::map<std::string, uint32_t> merged;
    std::vector<std::string> alone;
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
            const std::string parent = ParentOf(path);
            if (parent != "/dev") merged[parent] |= kLandlockWrite;
        }
        if (pattern.exact && (rights & kLandlockRead) != 0 && path != "/") alone.push_back(path);
        if (rights != 0) merged[path] |= pattern.exact ? ThisAlone(rights) : rights;
    }
    AddReadsOfTheMade(alone, &merged);
    LandlockPlan plan;
    plan.handled = handled;
    for (const auto& [path, rights] : merged) {
        uint32_t inherited = 0;
        for (const LandlockPath& row : plan.paths) {
            if (row.path != path && Covers(row.path, path))
                inherited |= row.rights & (kLandlockRead | kLandlockWrite | kLandlockExecute);
        }
        if (Lacking(rights, inherited) != 0) plan.paths.push_back({path, rights});
    }
    return plan;
}

}  // namespace stockade::launch
