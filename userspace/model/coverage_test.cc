#include "userspace/model/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace stockade::model {
namespace {

using ::testing::HasSubstr;

FeatureSet Without(Feature feature) {
    FeatureSet set;
    set.set(static_cast<size_t>(feature));
    return set;
}

TEST(CoverageTest, EveryCellIsPreventedOrSaysWhyNot) {
    for (const OperationInfo& info : Operations()) {
        EXPECT_EQ(info.lsm == Cell::kPrevented, info.lsm_reason.empty()) << info.id;
        EXPECT_EQ(info.signal == Cell::kPrevented, info.signal_reason.empty()) << info.id;
    }
}

TEST(CoverageTest, IdsAreUniqueLowerCaseAndFound) {
    std::set<absl::string_view> seen;
    for (size_t i = 0; i < Operations().size(); ++i) {
        absl::string_view id = Operations()[i].id;
        EXPECT_TRUE(seen.insert(id).second) << id;
        for (char c : id) EXPECT_TRUE(islower(c) || isdigit(c) || c == '_') << id;
        EXPECT_EQ(FindOperation(id), static_cast<Operation>(i));
    }
    EXPECT_EQ(FindOperation("open"), std::nullopt);
}

TEST(CoverageTest, LauncherNeverWeakens) {
    for (size_t i = 0; i < Operations().size(); ++i) {
        Operation op = static_cast<Operation>(i);
        Cell lsm = CoverageOf(op, Column::kLsm).cell;
        Cell signal = CoverageOf(op, Column::kSignal).cell;
        EXPECT_LE(CoverageOf(op, Column::kLsmLaunched).cell, lsm) << Operations()[i].id;
        EXPECT_LE(CoverageOf(op, Column::kSignalLaunched).cell, signal) << Operations()[i].id;
    }
}

TEST(CoverageTest, SignalPreventsExecButOnlyKillsAfterOpens) {
    EXPECT_EQ(CoverageOf(Operation::EXEC_PROGRAM, Column::kSignal).cell, Cell::kPrevented);
    EXPECT_EQ(CoverageOf(Operation::OPEN_READ, Column::kSignal).cell, Cell::kKilledAfterEffect);
    EXPECT_EQ(CoverageOf(Operation::UNLINK, Column::kSignal).cell, Cell::kSeen);
    EXPECT_EQ(CoverageOf(Operation::UNLINK, Column::kSignal).lock, "none");
}

TEST(CoverageTest, LandlockPreventsOnlyOutsideItsGrantsAndOnlyWhereItExists) {
    Coverage outside = CoverageOf(Operation::UNLINK, Column::kSignalLaunched);
    EXPECT_EQ(outside.cell, Cell::kPrevented);
    EXPECT_EQ(outside.lock, "landlock");
    EXPECT_EQ(CoverageOf(Operation::UNLINK, Column::kSignalLaunched, {}, Place::kInsideGrants).cell,
              Cell::kSeen);
    EXPECT_EQ(CoverageOf(Operation::UNLINK, Column::kSignalLaunched, Without(Feature::LANDLOCK)).cell,
              Cell::kSeen);
    EXPECT_EQ(CoverageOf(Operation::UNLINK, Column::kLsmLaunched).lock, "bpf");
}

TEST(CoverageTest, LandlockWithoutTheRightPreventsNoTruncate) {
    const FeatureSet abi2 = Without(Feature::LANDLOCK_TRUNCATE);
    EXPECT_EQ(CoverageOf(Operation::TRUNCATE, Column::kSignalLaunched).cell, Cell::kPrevented);
    EXPECT_EQ(CoverageOf(Operation::TRUNCATE, Column::kSignalLaunched, abi2).cell, Cell::kSeen);
    EXPECT_EQ(CoverageOf(Operation::OPEN_TRUNCATE, Column::kSignalLaunched, abi2).cell, Cell::kKilledAfterEffect);
    EXPECT_EQ(CoverageOf(Operation::OPEN_WRITE, Column::kSignalLaunched, abi2).cell, Cell::kPrevented);
    EXPECT_EQ(CoverageOf(Operation::TRUNCATE, Column::kLsmLaunched, abi2).lock, "bpf");
    EXPECT_EQ(CoverageOf(Operation::TRUNCATE, Column::kSignalLaunched, Without(Feature::LANDLOCK)).cell, Cell::kSeen);
}

TEST(CoverageTest, MissingFeatureWorsensOnlyItsOwnCells) {
    FeatureSet old = Without(Feature::LSM_USERNS_HOOK);
    Coverage c = CoverageOf(Operation::UNSHARE_USER, Column::kLsm, old);
    EXPECT_EQ(c.cell, Cell::kSeen);
    EXPECT_THAT(std::string(c.reason), HasSubstr("no LSM hook"));
    EXPECT_EQ(CoverageOf(Operation::UNSHARE_USER, Column::kSignal, old).cell, Cell::kKilledAfterEffect);
    EXPECT_EQ(CoverageOf(Operation::CONNECT_TCP4, Column::kLsm, old).cell, Cell::kPrevented);
}

TEST(CoverageTest, DocumentIsThatOfTheTable) {
    const char* root = std::getenv("STOCKADE_SOURCE_DIR");
    if (root == nullptr) GTEST_SKIP() << "STOCKADE_SOURCE_DIR is not set";
    std::string path = std::string(root) + "/docs/coverage.md";
    if (std::getenv("STOCKADE_UPDATE_GOLDEN") != nullptr) {
        std::ofstream(path) << CoverageMarkdown();
    }
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_EQ(text.str(), CoverageMarkdown()) << "write it anew: see the first line of " << path;
}

}  // namespace
}  // namespace stockade::model
