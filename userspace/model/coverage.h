// What becomes of a refused operation, by operation and backend: prevented, killed after its
// effect, seen or unseen. The data is coverage.def, which docs/coverage.md is printed from;
// `stockade doctor`, `stockade ps` and events show it, and the live tests assert each cell.
//
//   Coverage c = CoverageOf(Operation::UNLINK, Column::kSignal);
//   c.cell == Cell::kSeen; c.reason == "a path-only call returns no object ..."
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/model/coverage_features.h"

namespace stockade::model {

// Best first, so that a smaller value is never worse.
enum class Cell : uint8_t { kPrevented, kKilledAfterEffect, kSeen, kUnseen };

// A backend, and whether the launcher built the sandbox (with seccomp, Landlock and its own
// namespaces) or it is somebody else's cgroup (a pod).
enum class Column : uint8_t { kLsm, kLsmLaunched, kSignal, kSignalLaunched };
inline constexpr size_t kColumnCount = 4;

// What the launcher adds to an operation's row.
enum class Launcher : uint8_t {
    kNone,
    kLandlock,   // only outside the trees that the compiled domain grants, and only with `signal`
    kLandlockTruncate,  // the same, by a right that Landlock has since ABI 3
    kSeccomp,    // argument by value
    kNamespace,  // what would be reached is not there: own namespaces, nothing handed in
};

enum class Operation : uint8_t {
#define X(ID, ...) ID,
#include "userspace/model/coverage.def"
#undef X
};

struct OperationInfo {
    absl::string_view id;       // stable, lower case: "open_read"
    absl::string_view section;  // exec, files, network, escape
    absl::string_view text;     // for a table
    Cell lsm;
    absl::string_view lsm_reason;
    Cell signal;
    absl::string_view signal_reason;
    Launcher launcher;
};

struct Coverage {
    Cell cell;
    absl::string_view lock;    // who stops it: bpf, landlock, seccomp, namespace; "none" if nobody
    absl::string_view reason;  // why it is not prevented; empty when it is
};

// Where the object lies, which only Landlock's cells depend on.
enum class Place : uint8_t {
    kOutsideGrants,  // no allow rule reaches its directory
    kInsideGrants,   // a deny, or a pattern finer than a directory, inside what Landlock grants
};

// In the order of the table.
std::span<const OperationInfo> Operations();
const OperationInfo& InfoOf(Operation operation);
std::optional<Operation> FindOperation(absl::string_view id);

// `missing`: features that this kernel lacks (ProbeReport::missing()).
Coverage CoverageOf(Operation operation, Column column, const FeatureSet& missing = {},
                    Place place = Place::kOutsideGrants);

absl::string_view Text(Cell cell);      // "killed after effect"
absl::string_view Text(Column column);  // "signal+launcher"

// The whole of docs/coverage.md.
std::string CoverageMarkdown();

}  // namespace stockade::model
