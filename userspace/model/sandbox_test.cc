#include "userspace/model/sandbox.h"

#include <gtest/gtest.h>

#include <set>

namespace stockade::model {
namespace {

TEST(SandboxId, IsAUlid) {
    EXPECT_EQ(SandboxId::FromParts(0, 0, 0).str(), "sbx_00000000000000000000000000");
    EXPECT_EQ(SandboxId::FromParts(0xffffffffffff, 0xffff, ~0ULL).str(),
              "sbx_7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    // 1469918176385 ms is the example of the ULID specification: 01ARYZ6S41.
    EXPECT_EQ(SandboxId::FromParts(1469918176385, 0, 1).str(), "sbx_01ARYZ6S410000000000000001");
}

TEST(SandboxId, NewOnesDifferAndParse) {
    std::set<std::string> seen;
    for (int i = 0; i < 1000; ++i) {
        const SandboxId id = SandboxId::New();
        EXPECT_TRUE(seen.insert(id.str()).second);
        auto back = SandboxId::Parse(id.str());
        ASSERT_TRUE(back.ok()) << back.status();
        EXPECT_EQ(*back, id);
    }
}

TEST(SandboxId, RefusesWhatIsNone) {
    for (const char* text : {"", "sbx_", "01ARYZ6S410000000000000001", "sbx_01ARYZ6S41000000000000000",
                             "sbx_01ARYZ6S4100000000000000011", "sbx_01ARYZ6S41000000000000000I",
                             "sbx_81ARYZ6S410000000000000001", "sbx_01aryz6s410000000000000001",
                             "sbx_../../../../etc/passwd\n00"}) {
        EXPECT_FALSE(SandboxId::Parse(text).ok()) << text;
    }
}

TEST(Labels, GoodOnesPass) {
    EXPECT_TRUE(CheckLabels({}).ok());
    EXPECT_TRUE(CheckLabels({.session = "s-1", .tool = "exec_skill",
                             .trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                             .free = {{"team", "blå"}}}).ok());
}

TEST(Labels, BadOnesAreNamed) {
    EXPECT_NE(CheckLabels({.session = "a\nb"}).message().find("session"), std::string::npos);
    EXPECT_FALSE(CheckLabels({.tool = std::string(257, 'a')}).ok());
    EXPECT_FALSE(CheckLabels({.trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01"}).ok());
    EXPECT_FALSE(CheckLabels({.trace = "x"}).ok());
    EXPECT_FALSE(CheckLabels({.free = {{"", "v"}}}).ok());
    EXPECT_FALSE(CheckLabels({.free = {{"k", "\xff"}}}).ok());
    Labels many;
    for (int i = 0; i < 33; ++i) many.free["k" + std::to_string(i)] = "v";
    EXPECT_FALSE(CheckLabels(many).ok());
}

}  // namespace
}  // namespace stockade::model
