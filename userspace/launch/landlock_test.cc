#include "userspace/launch/landlock.h"

#include <gtest/gtest.h>

#include <map>

namespace stockade::launch {
namespace {

std::map<std::string, uint32_t> Rows(const LandlockPlan& plan) {
    std::map<std::string, uint32_t> rows;
    for (const LandlockPath& row : plan.paths) rows[row.path] = row.rights;
    return rows;
}

TEST(LandlockPlan, HullsOfPatterns) {
    LandlockPlan plan =
        PlanLandlock(kLandlockRead | kLandlockWrite,
                     {{kLandlockRead, "/usr/", false},
                      {kLandlockRead, "/usr/lib/x", true},      // covered by /usr
                      {kLandlockRead, "/opt/tool-", false},     // a glob within a component
                      {kLandlockExecute, "/usr/bin/a", true},   // not handled; reading is covered
                      {kLandlockWrite, "/out/report", true}});  // making it asks /out
    const std::map<std::string, uint32_t> expected = {
        {"/usr", kLandlockRead}, {"/opt", kLandlockRead}, {"/out", kLandlockWrite}};
    EXPECT_EQ(Rows(plan), expected);
    EXPECT_EQ(plan.handled, static_cast<uint32_t>(kLandlockRead | kLandlockWrite));
}

TEST(LandlockPlan, ExecuteAsksForReading) {
    LandlockPlan plan =
        PlanLandlock(kLandlockRead | kLandlockExecute, {{kLandlockExecute, "/usr/bin/python3", false}});
    const std::map<std::string, uint32_t> expected = {{"/usr/bin", kLandlockRead | kLandlockExecute}};
    EXPECT_EQ(Rows(plan), expected);
}

TEST(LandlockPlan, AnyNamePatternIsTheWholeTree) {
    EXPECT_EQ(Rows(PlanLandlock(kLandlockRead, {{kLandlockRead, "", false}})),
              (std::map<std::string, uint32_t>{{"/", kLandlockRead}}));
    EXPECT_EQ(Rows(PlanLandlock(kLandlockRead, {{kLandlockRead, "/", false}, {kLandlockRead, "/a", true}})),
              (std::map<std::string, uint32_t>{{"/", kLandlockRead}}));
}

// "/" listed alone is the names in it; what the sandbox can make it can read back.
TEST(LandlockPlan, APathAloneGivesNothingBelowIt) {
    EXPECT_EQ(Rows(PlanLandlock(kLandlockRead | kLandlockExecute,
                                {{kLandlockRead, "/", true}, {kLandlockRead, "/etc/passwd", true}, {kLandlockExecute, "/bin/sh", true}})),
              (std::map<std::string, uint32_t>{{"/", kLandlockReadThis},
                                               {"/etc/passwd", kLandlockReadThis},
                                               {"/bin/sh", kLandlockReadThis | kLandlockExecuteThis}}));
    EXPECT_EQ(Rows(PlanLandlock(kLandlockRead | kLandlockWrite, {{kLandlockWrite, "/out/", false}, {kLandlockRead, "/out/a/b", true}})),
              (std::map<std::string, uint32_t>{{"/out", kLandlockWrite}, {"/out/a", kLandlockRead}}));
    EXPECT_EQ(LandlockAccess(kLandlockReadThis | kLandlockExecuteThis, 7), 8u);
    EXPECT_EQ(LandlockFileAccess(kLandlockReadThis | kLandlockExecuteThis, 7), 1u | 4u);
    EXPECT_EQ(LandlockFileAccess(kLandlockRead, 7), 4u);
}

TEST(LandlockAccess, CutDownToTheKernels) {
    EXPECT_EQ(LandlockAccess(kLandlockRead, 0), 0u);
    EXPECT_EQ(LandlockAccess(kLandlockRead | kLandlockExecute, 1), 1u | 4u | 8u);
    const uint64_t refer = 1u << 13, truncate = 1u << 14;
    EXPECT_EQ(LandlockAccess(kLandlockWrite, 1) & (refer | truncate), 0u);
    EXPECT_EQ(LandlockAccess(kLandlockWrite, 2) & (refer | truncate), refer);
    EXPECT_EQ(LandlockAccess(kLandlockWrite, 7) & (refer | truncate), refer | truncate);
}

}  // namespace
}  // namespace stockade::launch
