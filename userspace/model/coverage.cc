#include "userspace/model/coverage.h"

#include <array>

namespace stockade::model {
namespace {

constexpr absl::string_view kWhyNone = "";
constexpr absl::string_view kWhyScript =
    "the kernel opens the script before its program exists; it is judged, and its caller killed, "
    "when the interpreter opens it to read";
constexpr absl::string_view kWhyLdSo =
    "exec names the loader only; the program is judged when the loader opens it, and the loader "
    "is killed before it maps it";
constexpr absl::string_view kWhyMmap =
    "no program stands before a mapping; it is judged at the end of the call, and the caller "
    "killed before it can jump there, but another thread may";
constexpr absl::string_view kWhyOpen =
    "judged by the object behind the returned descriptor; the caller dies before its next "
    "instruction";
constexpr absl::string_view kWhyCreated = "judged by the returned descriptor: the new file stays";
constexpr absl::string_view kWhyEmptied =
    "judged by the returned descriptor: the file is empty by then; openat2 to read is judged as a read, for its "
    "flags lie in user memory";
constexpr absl::string_view kWhyRace =
    "the caller dies before its next instruction, yet a thread that spun on pread had the bytes "
    "in 2,958 of 3,000 kills";
constexpr absl::string_view kWhySharedTable =
    "a process that shares the descriptor table (CLONE_FILES) has the descriptor too; every "
    "labelled task with that table is killed with the caller, and may have read by then";
constexpr absl::string_view kWhyPath =
    "a path-only call returns no object, and the path in user memory is no ground to decide on";
constexpr absl::string_view kWhyNoLandlockRight =
    "a path-only call returns no object, and Landlock has no right for it";
constexpr absl::string_view kWhyIoUring =
    "no system call carries it: the tracepoint sees io_uring_enter only; without the grant the "
    "making of the ring already kills";
constexpr absl::string_view kWhyListen =
    "the kernel chooses the port, as for bind of port 0, which every policy allows";
constexpr absl::string_view kWhyMprotect =
    "the call names an address and returns no object; what is mapped was opened to read, and judged then";
constexpr absl::string_view kWhySocket =
    "cgroup/sock_create is asked for inet sockets only; the maker dies before it can use it";
constexpr absl::string_view kWhyUnixPeer =
    "no program stands before the call; the peer is judged at its end, and the whole sandbox dies, for others in "
    "it may hold the connection: each task ends with the call that it is in";
constexpr absl::string_view kWhyFollowed =
    "judged where the kernel itself checks it, by the object; then the whole sandbox dies (a kernel that lets no "
    "program follow its functions, see doctor, leaves it unseen)";
constexpr absl::string_view kWhyNotFollowed =
    "this kernel lets no program follow its functions, and the end of the call leaves no object that says which it was";
constexpr absl::string_view kWhyPacket =
    "raw sockets need a grant; with it, what they send is judged by nothing";
constexpr absl::string_view kWhyInherited =
    "cgroup programs follow the cgroup in which a socket was born, not the caller; the caller is "
    "judged at the end of the call";
constexpr absl::string_view kWhyReceived =
    "judged at its first use, by the cgroup in which it was made; then the whole sandbox dies, each task with the "
    "call that it is in";
constexpr absl::string_view kWhyCall =
    "judged at the end of the call: its effect stands, its caller is dead";
constexpr absl::string_view kWhyUnused =
    "judged at the end of the call: the object is made, its maker dies before it can use it";
constexpr absl::string_view kWhyNoMount =
    "the LSM hooks tell the inode and not the mount, so there is no path to judge";
constexpr absl::string_view kWhyBornOutside =
    "the child is born, and dies before its first instruction; the sandbox is condemned";
constexpr absl::string_view kWhyMovedOut =
    "whoever moved it may do so; outside, cgroup programs no longer see it: the sandbox is "
    "condemned";
constexpr absl::string_view kWhyNoUsernsHook =
    "this kernel has no LSM hook for new user namespaces; what is done inside is judged";
constexpr absl::string_view kWhyNoAnonHook =
    "this kernel has no LSM hook for anonymous inodes: the making of the object is not refused";

constexpr Cell PREVENTED = Cell::kPrevented;
constexpr Cell KILLED = Cell::kKilledAfterEffect;
constexpr Cell SEEN = Cell::kSeen;
constexpr Cell UNSEEN = Cell::kUnseen;
constexpr Launcher NONE = Launcher::kNone;
constexpr Launcher LANDLOCK = Launcher::kLandlock;
constexpr Launcher LANDLOCK_TRUNCATE = Launcher::kLandlockTruncate;
constexpr Launcher SECCOMP = Launcher::kSeccomp;
constexpr Launcher NAMESPACE = Launcher::kNamespace;

constexpr OperationInfo kOperations[] = {
#define X(ID, id, section, text, lsm, lsm_why, signal, signal_why, launcher) \
    {id, section, text, lsm, kWhy##lsm_why, signal, kWhy##signal_why, launcher},
#include "userspace/model/coverage.def"
#undef X
};

// Cells that are worse on a kernel without a feature. Backend columns only; what the launcher
// adds comes on top.
struct Without {
    Feature feature;
    Operation operation;
    bool lsm;  // the lsm cell, else the signal cell
    Cell cell;
    absl::string_view reason;
};
constexpr Without kWithout[] = {
    {Feature::LSM_USERNS_HOOK, Operation::UNSHARE_USER, true, SEEN, kWhyNoUsernsHook},
    {Feature::LSM_ANON_INODE_HOOK, Operation::IO_URING, true, SEEN, kWhyNoAnonHook},
    {Feature::LSM_ANON_INODE_HOOK, Operation::USERFAULTFD, true, SEEN, kWhyNoAnonHook},
    {Feature::PROG_FEXIT, Operation::UNIX_DATAGRAM, false, UNSEEN, kWhyNotFollowed},
    {Feature::PROG_FEXIT, Operation::SOCKET_SWAPPED, false, UNSEEN, kWhyNotFollowed},
};

bool IsLsm(Column column) { return column == Column::kLsm || column == Column::kLsmLaunched; }

bool IsLaunched(Column column) {
    return column == Column::kLsmLaunched || column == Column::kSignalLaunched;
}

Coverage OfBackend(Operation operation, bool lsm, const FeatureSet& missing) {
    const OperationInfo& info = InfoOf(operation);
    Coverage result{lsm ? info.lsm : info.signal, "bpf",
                    lsm ? info.lsm_reason : info.signal_reason};
    for (const Without& row : kWithout) {
        if (row.operation == operation && row.lsm == lsm &&
            missing.test(static_cast<size_t>(row.feature))) {
            result.cell = row.cell;
            result.reason = row.reason;
        }
    }
    if (result.cell == Cell::kSeen || result.cell == Cell::kUnseen) result.lock = "none";
    return result;
}

// The launcher's lock on this operation, empty when it does not reach it.
absl::string_view LauncherLock(Operation operation, bool lsm, const FeatureSet& missing,
                               Place place) {
    auto lacks = [&](Feature feature) { return missing.test(static_cast<size_t>(feature)); };
    switch (InfoOf(operation).launcher) {
        case Launcher::kNone:
            return "";
        case Launcher::kLandlockTruncate:
            if (lacks(Feature::LANDLOCK_TRUNCATE)) return "";
            [[fallthrough]];
        case Launcher::kLandlock:
            // With lsm, BPF prevents already and is the exact judge.
            return !lsm && place == Place::kOutsideGrants && !lacks(Feature::LANDLOCK) ? "landlock"
                                                                                       : "";
        case Launcher::kSeccomp:
            return lacks(Feature::SECCOMP) ? "" : "seccomp";
        case Launcher::kNamespace:
            return "namespace";
    }
    return "";
}

}  // namespace

const FeatureInfo& InfoOf(Feature feature) {
    static constexpr FeatureInfo kFeatures[] = {
#define X(NAME, name, need, what) {name, Need::need, what},
        SK_FEATURES(X)
#undef X
    };
    return kFeatures[static_cast<size_t>(feature)];
}

std::span<const OperationInfo> Operations() { return kOperations; }

const OperationInfo& InfoOf(Operation operation) {
    return kOperations[static_cast<size_t>(operation)];
}

std::optional<Operation> FindOperation(absl::string_view id) {
    for (size_t i = 0; i < std::size(kOperations); ++i) {
        if (kOperations[i].id == id) return static_cast<Operation>(i);
    }
    return std::nullopt;
}

Coverage CoverageOf(Operation operation, Column column, const FeatureSet& missing, Place place) {
    Coverage result = OfBackend(operation, IsLsm(column), missing);
    if (!IsLaunched(column)) return result;
    absl::string_view lock = LauncherLock(operation, IsLsm(column), missing, place);
    if (lock.empty()) return result;
    return Coverage{Cell::kPrevented, lock, ""};
}

absl::string_view Text(Cell cell) {
    switch (cell) {
        case Cell::kPrevented: return "prevented";
        case Cell::kKilledAfterEffect: return "killed after effect";
        case Cell::kSeen: return "seen";
        case Cell::kUnseen: return "unseen";
    }
    return "?";
}

absl::string_view Text(Column column) {
    switch (column) {
        case Column::kLsm: return "lsm";
        case Column::kLsmLaunched: return "lsm+launcher";
        case Column::kSignal: return "signal";
        case Column::kSignalLaunched: return "signal+launcher";
    }
    return "?";
}

}  // namespace stockade::model
