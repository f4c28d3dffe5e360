#include "userspace/kernel/policy_maps.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "absl/strings/match.h"

namespace stockade::kernel {
namespace {

std::vector<union sk_cell> Cells(size_t count) {
    std::vector<union sk_cell> cells(count);
    memset(cells.data(), 0, cells.size() * sizeof(union sk_cell));
    cells[0].head.magic = SK_POLICY_MAGIC;
    cells[0].head.abi = SK_POLICY_ABI;
    return cells;
}

// No kernel: what is full is refused before a map is made, and a map without its outer one is never published.
TEST(PolicyMaps, AFullTableIsRefusedAndOtherSizesAreNot) {
    PolicyMaps maps({-1, -1, -1});
    for (uint32_t index = 0; index < SK_MAX_POLICIES; ++index) maps.AddUser(index);
    const auto full = maps.Acquire(Cells(2));
    EXPECT_TRUE(absl::IsResourceExhausted(full.status())) << full.status();
    EXPECT_TRUE(absl::StrContains(full.status().message(), "stockade kill")) << full.status();
    // The next size has places; all that it lacks here is a kernel's map.
    const auto larger = maps.Acquire(Cells(SK_POLICY_CELLS_SMALL + 1));
    EXPECT_FALSE(larger.ok());
    EXPECT_FALSE(absl::IsResourceExhausted(larger.status())) << larger.status();
    // Nor was anything counted for what failed.
    EXPECT_FALSE(maps.Release(SK_MAX_POLICIES).ok());
    ASSERT_TRUE(maps.Release(7).ok());
    EXPECT_FALSE(absl::IsResourceExhausted(maps.Acquire(Cells(2)).status()));
}

TEST(PolicyMaps, WhatIsNoPolicyIsRefused) {
    PolicyMaps maps({-1, -1, -1});
    auto cells = Cells(2);
    EXPECT_TRUE(absl::IsInvalidArgument(maps.Acquire({}).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(maps.Acquire(Cells(SK_POLICY_MAX_CELLS + 1)).status()));
    cells[0].head.abi++;
    EXPECT_TRUE(absl::IsInvalidArgument(maps.Acquire(cells).status()));
}

}  // namespace
}  // namespace stockade::kernel
