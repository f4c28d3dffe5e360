#include "userspace/cmd/doctor_report.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include "userspace/model/coverage.h"

namespace stockade {
namespace {

using kernel::Backend;
using kernel::Feature;
using kernel::ProbeReport;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ProbeReport Full() {
    ProbeReport report;
    report.release = "test";
    report.cgroup2_mount = "/a \"b\"\n\xff";
    for (auto& state : report.features) state.present = true;
    return report;
}

ProbeReport WithoutLsm() {
    ProbeReport report = Full();
    report.lsms = {"capability"};
    report.at(Feature::CANARY_LSM) = {false, "never called"};
    return report;
}

google::protobuf::Struct Parsed(const std::string& json) {
    google::protobuf::Struct document;
    auto status = google::protobuf::util::JsonStringToMessage(json, &document);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return document;
}

TEST(DiagnoseTest, ABackendIsEnoughUnlessMoreIsRequired) {
    EXPECT_EQ(ExitCodeOf(Diagnose(WithoutLsm(), {})), 0);
    EXPECT_EQ(ExitCodeOf(Diagnose(WithoutLsm(), {"signal"})), 0);
    EXPECT_EQ(ExitCodeOf(Diagnose(Full(), {"lsm"})), 0);
    Diagnosis refused = Diagnose(WithoutLsm(), {"lsm"});
    EXPECT_EQ(ExitCodeOf(refused), 1);
    EXPECT_THAT(refused.required, ElementsAre(Feature::CANARY_LSM));
}

TEST(DiagnoseTest, AFeatureCanBeRequiredByName) {
    ProbeReport report = Full();
    report.at(Feature::LANDLOCK) = {false, "ENOSYS"};
    EXPECT_EQ(ExitCodeOf(Diagnose(report, {})), 0);
    EXPECT_EQ(ExitCodeOf(Diagnose(report, {"landlock"})), 1);
}

TEST(DiagnoseTest, WhatRunAndPinsNeedIsRequired) {
    for (Feature feature : {Feature::BPFFS, Feature::SECCOMP}) {
        ProbeReport report = Full();
        report.at(feature) = {false, "gone"};
        EXPECT_THAT(Diagnose(report, {}).required, ElementsAre(feature));
    }
}

TEST(DoctorTextTest, SaysBackendCellsReasonsAndCures) {
    std::string text = DoctorText(Diagnose(WithoutLsm(), {}), false);
    EXPECT_THAT(text, HasSubstr("backend signal"));
    EXPECT_THAT(text, HasSubstr("never called"));
    EXPECT_THAT(text, HasSubstr("boot with lsm=capability,bpf"));
    EXPECT_THAT(text, HasSubstr("killed after effect"));
    for (const auto& info : model::Operations()) EXPECT_THAT(text, HasSubstr(std::string(info.id)));
    EXPECT_THAT(text, Not(HasSubstr("\033")));
    EXPECT_THAT(DoctorText(Diagnose(WithoutLsm(), {}), true), HasSubstr("\033[32m"));
}

TEST(DoctorTextTest, WithLsmAllIsPreventedButTheListedRows) {
    std::string text = DoctorText(Diagnose(Full(), {}), false);
    EXPECT_THAT(text, HasSubstr("backend lsm"));
    int listed = 0;
    for (const auto& info : model::Operations()) listed += info.lsm != model::Cell::kPrevented;
    // setxattr, utimes, listen, packets of a granted raw socket, moved out: each with its reason.
    EXPECT_EQ(listed, 5);
    EXPECT_THAT(text, HasSubstr("the LSM hooks tell the inode and not the mount"));
    EXPECT_THAT(text, Not(HasSubstr("To get more")));
}

TEST(DoctorJsonTest, IsValidAndCompleteWhateverAMountIsCalled) {
    auto fields = Parsed(DoctorJson(Diagnose(WithoutLsm(), {"lsm"}))).fields();
    EXPECT_FALSE(fields.at("ok").bool_value());
    EXPECT_EQ(fields.at("backend").kind_case(), google::protobuf::Value::kNullValue);
    EXPECT_THAT(fields.at("why").string_value(), HasSubstr("canary:lsm"));
    EXPECT_EQ(fields.at("missing").list_value().values(0).string_value(), "canary:lsm");
    EXPECT_EQ(fields.at("features").list_value().values_size(), static_cast<int>(model::kFeatureCount));
    EXPECT_EQ(fields.at("coverage").list_value().values_size(),
              static_cast<int>(model::Operations().size()));
    auto well = Parsed(DoctorJson(Diagnose(Full(), {}))).fields();
    EXPECT_TRUE(well.at("ok").bool_value());
    EXPECT_EQ(well.at("backend").string_value(), "lsm");
}

}  // namespace
}  // namespace stockade
