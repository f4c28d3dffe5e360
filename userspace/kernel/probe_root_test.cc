// Probe() on the kernel at hand. What it asserts holds on any machine: answers agree with one
// another and with what the kernel says elsewhere, and nothing of the probe is left.
#include <bpf/bpf.h>
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "userspace/base/fd.h"
#include "userspace/kernel/probe.h"

namespace stockade::kernel {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ProbeReport& Report() {
    static const auto* report = new StatusOr<ProbeReport>(Probe({}));
    EXPECT_TRUE(report->ok()) << report->status();
    return **report;
}

class ProbeRootTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (geteuid() != 0) GTEST_SKIP() << "needs root";
    }
};

// Names of loaded programs and maps that start with the probe's prefix.
std::vector<std::string> OursInKernel() {
    std::vector<std::string> found;
    uint32_t id = 0;
    while (bpf_prog_get_next_id(id, &id) == 0) {
        Fd fd(bpf_prog_get_fd_by_id(id));
        bpf_prog_info info{};
        uint32_t size = sizeof(info);
        if (fd.ok() && bpf_obj_get_info_by_fd(fd.get(), &info, &size) == 0 &&
            absl::StartsWith(info.name, "skc_")) {
            found.push_back(info.name);
        }
    }
    id = 0;
    while (bpf_map_get_next_id(id, &id) == 0) {
        Fd fd(bpf_map_get_fd_by_id(id));
        bpf_map_info info{};
        uint32_t size = sizeof(info);
        if (fd.ok() && bpf_obj_get_info_by_fd(fd.get(), &info, &size) == 0 &&
            absl::StartsWith(info.name, "skc_")) {
            found.push_back(info.name);
        }
    }
    return found;
}

TEST_F(ProbeRootTest, EveryAbsentFeatureHasAReason) {
    for (size_t i = 0; i < model::kFeatureCount; ++i) {
        Feature feature = static_cast<Feature>(i);
        const FeatureState& state = Report().at(feature);
        RecordProperty(std::string(InfoOf(feature).name),
                       state.present ? "yes " + state.reason : "no: " + state.reason);
        EXPECT_TRUE(state.present || !state.reason.empty()) << InfoOf(feature).name;
    }
}

TEST_F(ProbeRootTest, CanariesAgreeWithWhatTheyNeed) {
    const ProbeReport& report = Report();
    if (report.has(Feature::CANARY_LSM)) {
        EXPECT_TRUE(report.has(Feature::PROG_LSM));
        EXPECT_THAT(report.lsms, ::testing::AnyOf(IsEmpty(), Contains("bpf")));
    } else if (report.has(Feature::PROG_LSM)) {
        EXPECT_THAT(report.at(Feature::CANARY_LSM).reason, HasSubstr("never called"));
        EXPECT_THAT(report.lsms, ::testing::Not(Contains("bpf")));
    } else {
        EXPECT_THAT(report.at(Feature::CANARY_LSM).reason, HasSubstr("not tried"));
    }
    if (report.has(Feature::PROG_TP_BTF)) {
        EXPECT_TRUE(report.has(Feature::CANARY_EXEC)) << report.at(Feature::CANARY_EXEC).reason;
    }
    if (report.has(Feature::PROG_SOCK_ADDR)) {
        EXPECT_TRUE(report.has(Feature::CANARY_CONNECT)) << report.at(Feature::CANARY_CONNECT).reason;
    }
    EXPECT_EQ(report.has(Feature::LANDLOCK), report.landlock_abi > 0);
    EXPECT_EQ(report.has(Feature::LANDLOCK_TRUNCATE), report.landlock_abi >= 3);
}

// Where the kernel is known (vmtests), the list of tests says what must come out: lsm, signal,
// or none for one that must be refused.
void ExpectBackend(const StatusOr<Backend>& chosen) {
    const char* expected = std::getenv("STOCKADE_EXPECT_BACKEND");
    if (expected == nullptr) return;
    std::string found = !chosen.ok() ? "none" : *chosen == Backend::kLsm ? "lsm" : "signal";
    EXPECT_EQ(found, expected) << chosen.status();
    const char* named = std::getenv("STOCKADE_EXPECT_MISSING");
    if (named == nullptr) return;
    for (absl::string_view name : absl::StrSplit(named, ',')) {
        EXPECT_THAT(std::string(chosen.status().message()), HasSubstr(std::string(name) + " ("));
    }
}

TEST_F(ProbeRootTest, ChoiceFollowsTheCanaries) {
    const ProbeReport& report = Report();
    auto chosen = Choose(report, Backend::kAuto);
    ExpectBackend(chosen);
    if (!MissingFor(report, Backend::kSignal).empty() && !MissingFor(report, Backend::kLsm).empty()) {
        EXPECT_EQ(chosen.status().code(), absl::StatusCode::kFailedPrecondition);
        return;
    }
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ(*chosen == Backend::kLsm, report.has(Feature::CANARY_LSM));
    EXPECT_EQ(Choose(report, Backend::kLsm).ok(), report.has(Feature::CANARY_LSM));
}

TEST_F(ProbeRootTest, NothingIsLeft) {
    ASSERT_TRUE(Probe({}).ok());
    // Another probe may be running beside this test: only what stays for three looks is left.
    std::vector<std::string> left = OursInKernel();
    for (int look = 0; look < 3 && !left.empty(); ++look) {
        ASSERT_TRUE(Probe({}).ok());
        left = OursInKernel();
    }
    EXPECT_THAT(left, IsEmpty());
    std::vector<std::string> cgroups;
    const std::string own = "stockade-probe-" + std::to_string(getpid()) + "-";
    if (DIR* dir = opendir(Report().cgroup2_mount.c_str())) {
        while (dirent* entry = readdir(dir)) {
            if (absl::StartsWith(entry->d_name, own)) cgroups.push_back(entry->d_name);
        }
        closedir(dir);
    }
    EXPECT_THAT(cgroups, IsEmpty());
}

TEST_F(ProbeRootTest, WithoutCanariesNoBackendIsChosen) {
    auto report = Probe({.canaries = false});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->at(Feature::CANARY_EXEC).reason, "not tried");
    EXPECT_FALSE(Choose(*report, Backend::kAuto).ok());
}

TEST_F(ProbeRootTest, AParentThatIsNoCgroupIsAReasonNotAFailure) {
    auto report = Probe({.self_cgroup = "/proc/self"});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_FALSE(report->has(Feature::CGROUP_KILL));
    EXPECT_THAT(report->at(Feature::CANARY_CONNECT).reason, HasSubstr("/proc/self"));
}

}  // namespace
}  // namespace stockade::kernel
