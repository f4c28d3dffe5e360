#include "userspace/kernel/probe.h"

#include <bpf/libbpf.h>
#include <sys/utsname.h>

#include "absl/strings/str_cat.h"
#include "userspace/kernel/probe_parts.h"

namespace stockade::kernel {
namespace probe {

void Set(ProbeReport& report, Feature feature, const Status& status) {
    report.at(feature) = {status.ok(), std::string(status.message())};
}

namespace {

// libbpf's complaints about what is only being tried are no news to anybody.
class QuietLibbpf {
  public:
    QuietLibbpf() : before_(libbpf_set_print(nullptr)) {}
    ~QuietLibbpf() { libbpf_set_print(before_); }
    QuietLibbpf(const QuietLibbpf&) = delete;
    QuietLibbpf& operator=(const QuietLibbpf&) = delete;

  private:
    libbpf_print_fn_t before_;
};

constexpr Feature kByCanary[] = {Feature::CANARY_LSM, Feature::CANARY_EXEC,
                                 Feature::CANARY_CONNECT, Feature::CANARY_WHOLE};
constexpr Feature kByCgroup[] = {Feature::CGROUP_KILL, Feature::CGROUP_FREEZE,
                                 Feature::CLONE3_CGROUP};

void SetAll(ProbeReport& report, std::span<const Feature> features, absl::string_view reason) {
    for (Feature feature : features) report.at(feature) = {false, std::string(reason)};
}

Status FillInCgroup(const ProbeOptions& options, ProbeReport& report) {
    const std::string parent =
        options.self_cgroup.empty() ? report.cgroup2_mount : options.self_cgroup;
    auto cgroup = ThrowAwayCgroup::Create(parent);
    if (!cgroup.ok()) {
        std::string reason = absl::StrCat("not tried: ", cgroup.status().message());
        SetAll(report, kByCgroup, reason);
        SetAll(report, kByCanary, reason);
        return absl::OkStatus();
    }
    FillCgroup(*cgroup, report);
    Status canaries;
    if (options.canaries) {
        canaries = FillCanaries(*cgroup, report);
    } else {
        SetAll(report, kByCanary, "not tried");
    }
    Status removed = cgroup->Remove();
    return canaries.ok() ? removed : canaries;
}

}  // namespace
}  // namespace probe

FeatureSet ProbeReport::missing() const {
    FeatureSet set;
    for (size_t i = 0; i < features.size(); ++i) set.set(i, !features[i].present);
    return set;
}

StatusOr<ProbeReport> Probe(const ProbeOptions& options) {
    probe::QuietLibbpf quiet;
    ProbeReport report;
    utsname names{};
    if (uname(&names) == 0) report.release = names.release;
    probe::FillHost(options, report);
    probe::FillPrograms(report);
    SK_RETURN_IF_ERROR(Annotate(probe::FillInCgroup(options, report), "probe the kernel"));
    return report;
}

}  // namespace stockade::kernel
