// What this kernel and host can do, found out feature by feature and never by version.
//
//   SK_ASSIGN_OR_RETURN(ProbeReport report, Probe({}));
//   SK_ASSIGN_OR_RETURN(Backend backend, Choose(report, Backend::kAuto));
//
// Where only a call proves it, a canary makes that call: a child in a throw-away cgroup is
// refused, or killed, by a program of ours. Everything is detached again before Probe returns,
// and that is checked. It needs root or the capabilities of DESIGN; without them the report
// says so. Takes some 100 ms; forks, so call it before starting threads where that matters
// (the children make only async-signal-safe calls).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/base/status.h"
#include "userspace/kernel/sensor.h"
#include "userspace/model/coverage_features.h"

namespace stockade::kernel {

using model::Feature;
using model::FeatureSet;

struct ProbeOptions {
    bool canaries = true;            // false: leaves their features absent, "not tried"
    std::string idmap_dir = "/usr";  // a directory of the file system that /in would come from
    std::string self_cgroup = "";    // parent of the throw-away cgroup; empty = the v2 mount
};

struct FeatureState {
    bool present = false;
    std::string reason;  // why absent; for some that are present, a figure ("ABI 7")
};

struct ProbeReport {
    std::array<FeatureState, model::kFeatureCount> features;
    std::string release;                    // to show only; nothing is decided by it
    std::string cgroup2_mount;              // empty = none
    std::string bpffs_mount;                // empty = none
    std::vector<std::string> lsms;          // active ones, in order; empty = unknown
    int landlock_abi = 0;                   // 0 = none
    std::vector<std::string> missing_caps;  // names, of those that DESIGN lists
    uint64_t memlock_bytes = 0;             // RLIMIT_MEMLOCK; ~0 = unlimited

    const FeatureState& at(Feature feature) const { return features[static_cast<size_t>(feature)]; }
    FeatureState& at(Feature feature) { return features[static_cast<size_t>(feature)]; }
    bool has(Feature feature) const { return at(feature).present; }
    FeatureSet missing() const;
};

// Fails only when the probe itself could not run or could not clean up after itself; a missing
// feature is an answer, not a failure.
StatusOr<ProbeReport> Probe(const ProbeOptions& options);

// kAuto takes lsm where its canary was denied, else signal. kFailedPrecondition names every
// missing feature of the backend, each with its reason, in one line.
StatusOr<Backend> Choose(const ProbeReport& report, Backend requested);

// The features that `backend` (kSignal or kLsm) needs and the report lacks, in table order.
std::vector<Feature> MissingFor(const ProbeReport& report, Backend backend);

// What to change on the host to get a missing feature; empty when nothing is known to help.
std::string Cure(const ProbeReport& report, Feature feature);

// What a Landlock of this ABI (at least 1) has.
void SetLandlockAbi(ProbeReport& report, int abi);

// "lockdown,capability,landlock,bpf" to names; blanks and empty entries are dropped.
std::vector<std::string> ParseLsmList(absl::string_view text);

}  // namespace stockade::kernel
