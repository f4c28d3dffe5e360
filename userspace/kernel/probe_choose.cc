#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "userspace/kernel/probe.h"

namespace stockade::kernel {
namespace {

using model::Need;

bool Needs(Backend backend, Need need) {
    switch (need) {
        case Need::kBoth: return true;
        case Need::kLsm: return backend == Backend::kLsm;
        case Need::kSignal: return backend == Backend::kSignal;
        case Need::kPins:
        case Need::kLaunch:
        case Need::kExtra: return false;
    }
    return false;
}

const char* Name(Backend backend) { return backend == Backend::kLsm ? "lsm" : "signal"; }

Status Refusal(const ProbeReport& report, Backend backend, const std::vector<Feature>& missing) {
    // Without them the kernel refuses every other question too, which would name them all.
    if (!report.has(Feature::CAPABILITIES)) {
        return absl::FailedPreconditionError(
            absl::StrCat("not enough privilege (", report.at(Feature::CAPABILITIES).reason,
                         "): run as root; what else is missing can only be told then"));
    }
    std::vector<std::string> parts;
    for (Feature feature : missing) {
        const FeatureState& state = report.at(feature);
        absl::string_view name = InfoOf(feature).name;
        parts.push_back(state.reason.empty() ? std::string(name)
                                             : absl::StrCat(name, " (", state.reason, ")"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("this kernel (", report.release, ") lacks what the ", Name(backend),
                     " backend needs: ", absl::StrJoin(parts, "; "),
                     "; `stockade doctor` says what helps"));
}

}  // namespace

void SetLandlockAbi(ProbeReport& report, int abi) {
    report.landlock_abi = abi;
    const std::string figure = absl::StrCat("ABI ", abi);
    report.at(Feature::LANDLOCK) = {true, figure};
    report.at(Feature::LANDLOCK_TRUNCATE) = {abi >= 3, figure};
}

std::vector<std::string> ParseLsmList(absl::string_view text) {
    std::vector<std::string> names;
    for (absl::string_view part : absl::StrSplit(text, ',')) {
        part = absl::StripAsciiWhitespace(part);
        if (!part.empty()) names.emplace_back(part);
    }
    return names;
}

std::vector<Feature> MissingFor(const ProbeReport& report, Backend backend) {
    std::vector<Feature> missing;
    for (size_t i = 0; i < model::kFeatureCount; ++i) {
        Feature feature = static_cast<Feature>(i);
        if (!report.has(feature) && Needs(backend, InfoOf(feature).need)) missing.push_back(feature);
    }
    return missing;
}

StatusOr<Backend> Choose(const ProbeReport& report, Backend requested) {
    if (requested == Backend::kAuto) {
        requested = report.has(Feature::CANARY_LSM) && MissingFor(report, Backend::kLsm).empty()
                        ? Backend::kLsm
                        : Backend::kSignal;
    }
    std::vector<Feature> missing = MissingFor(report, requested);
    if (!missing.empty()) return Refusal(report, requested, missing);
    return requested;
}

std::string Cure(const ProbeReport& report, Feature feature) {
    if (report.has(feature)) return "";
    switch (feature) {
        case Feature::BTF:
            return "a kernel built with CONFIG_DEBUG_INFO_BTF=y";
        case Feature::CGROUP2:
            return "mount -t cgroup2 none /sys/fs/cgroup/unified (or boot with cgroup_no_v1=all)";
        case Feature::BPFFS:
            return "mount -t bpf bpf /sys/fs/bpf";
        case Feature::CAPABILITIES:
            return absl::StrCat("run as root, or grant ", absl::StrJoin(report.missing_caps, " "));
        case Feature::PROG_LSM:
        case Feature::CANARY_LSM: {
            bool listed = std::find(report.lsms.begin(), report.lsms.end(), "bpf") !=
                          report.lsms.end();
            if (!report.has(Feature::PROG_LSM)) {
                return listed ? "the host's provider forbids LSM programs: ask it, or use another host"
                              : "a kernel built with CONFIG_BPF_LSM=y";
            }
            std::vector<std::string> names = report.lsms;
            names.push_back("bpf");
            return listed ? ""
                          : absl::StrCat("boot with lsm=", absl::StrJoin(names, ","),
                                         " on the kernel's command line");
        }
        case Feature::LANDLOCK:
            return "a kernel with CONFIG_SECURITY_LANDLOCK=y and landlock in lsm= of its command line";
        case Feature::LANDLOCK_TRUNCATE:
            return "Linux 6.2 or a kernel with it back-ported";
        case Feature::LANDLOCK_AFTER_BPF:
            return "boot with bpf before landlock in lsm= of the kernel's command line";
        case Feature::LSM_PATH_HOOKS:
            return "a kernel built with CONFIG_SECURITY_PATH=y";
        case Feature::LSM_NETWORK_HOOKS:
            return "a kernel built with CONFIG_SECURITY_NETWORK=y";
        case Feature::PROG_UNIX_ADDR:
            return "Linux 6.7 or a kernel with it back-ported";
        case Feature::CGROUP_KILL:
            return "Linux 5.14 or a kernel with it back-ported";
        default:
            return "";
    }
}

}  // namespace stockade::kernel
