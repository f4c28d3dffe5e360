#include "userspace/kernel/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stockade::kernel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ProbeReport Full() {
    ProbeReport report;
    report.release = "test";
    for (FeatureState& state : report.features) state.present = true;
    report.lsms = {"capability", "bpf", "landlock"};
    return report;
}

void Remove(ProbeReport& report, Feature feature, std::string reason) {
    report.at(feature) = {false, std::move(reason)};
}

TEST(ParseLsmListTest, DropsBlanksAndEmptyEntries) {
    EXPECT_THAT(ParseLsmList("lockdown,capability,landlock,bpf\n"),
                ElementsAre("lockdown", "capability", "landlock", "bpf"));
    EXPECT_THAT(ParseLsmList(" capability ,,bpf"), ElementsAre("capability", "bpf"));
    EXPECT_THAT(ParseLsmList(""), IsEmpty());
    EXPECT_THAT(ParseLsmList(",\n"), IsEmpty());
}

TEST(ChooseTest, AutoTakesLsmOnlyWhereItsCanaryWasDenied) {
    ProbeReport report = Full();
    EXPECT_EQ(*Choose(report, Backend::kAuto), Backend::kLsm);
    EXPECT_EQ(*Choose(report, Backend::kSignal), Backend::kSignal);
    Remove(report, Feature::CANARY_LSM, "attached without error and never called");
    EXPECT_EQ(*Choose(report, Backend::kAuto), Backend::kSignal);
}

TEST(ChooseTest, LsmAskedForAndNotThereIsRefusedWithItsReason) {
    ProbeReport report = Full();
    Remove(report, Feature::CANARY_LSM, "never called");
    auto chosen = Choose(report, Backend::kLsm);
    EXPECT_EQ(chosen.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(chosen.status().message()), HasSubstr("canary:lsm (never called)"));
}

TEST(ChooseTest, EveryMissingFeatureIsNamedInOneLine) {
    ProbeReport report = Full();
    Remove(report, Feature::CANARY_LSM, "never called");
    Remove(report, Feature::MAP_TASK_STORAGE, "unknown func");
    Remove(report, Feature::HELPER_CURRENT_TASK_BTF, "unknown func");
    Remove(report, Feature::CGROUP_KILL, "no such file");
    Remove(report, Feature::PROG_UNIX_ADDR, "not needed");
    auto chosen = Choose(report, Backend::kAuto);
    ASSERT_EQ(chosen.status().code(), absl::StatusCode::kFailedPrecondition);
    std::string message(chosen.status().message());
    for (const char* name : {"map:task_storage (", "helper:get_current_task_btf (", "cgroup.kill ("}) {
        EXPECT_THAT(message, HasSubstr(name));
    }
    EXPECT_THAT(message, Not(HasSubstr("connect_unix")));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST(ChooseTest, LackOfPrivilegeIsSaidAloneBecauseItHidesTheRest) {
    ProbeReport report = Full();
    Remove(report, Feature::CAPABILITIES, "lacks CAP_BPF");
    Remove(report, Feature::MAP_RINGBUF, "EPERM");
    std::string message(Choose(report, Backend::kAuto).status().message());
    EXPECT_THAT(message, HasSubstr("lacks CAP_BPF"));
    EXPECT_THAT(message, HasSubstr("run as root"));
    EXPECT_THAT(message, Not(HasSubstr("ringbuf")));
}

TEST(ChooseTest, SignalNeedsItsOwnCanaryAndLsmDoesNot) {
    ProbeReport report = Full();
    Remove(report, Feature::CANARY_EXEC, "not killed");
    EXPECT_FALSE(Choose(report, Backend::kSignal).ok());
    EXPECT_TRUE(Choose(report, Backend::kLsm).ok());
}

TEST(CureTest, TellsTheCommandLineThatAddsBpf) {
    ProbeReport report = Full();
    report.lsms = {"lockdown", "capability", "yama"};
    Remove(report, Feature::CANARY_LSM, "never called");
    EXPECT_THAT(Cure(report, Feature::CANARY_LSM), HasSubstr("lsm=lockdown,capability,yama,bpf"));
    report.lsms = {"bpf"};
    Remove(report, Feature::PROG_LSM, "EPERM");
    EXPECT_THAT(Cure(report, Feature::CANARY_LSM), HasSubstr("provider"));
    EXPECT_EQ(Cure(report, Feature::BTF), "");
}

}  // namespace
}  // namespace stockade::kernel
